package metadata

import (
	"bytes"
	"strings"
)

// A reservedGroup is a group of header names that metadata must not use.
type reservedGroup struct {
	names string // separated by blanks; a * at the end matches any suffix
	why   string
}

// reservedGroups lists the names that a delivery never takes from a producer. docs/headers.md shows
// them.
var reservedGroups = []reservedGroup{
	{"X-Broker-* X-Request-ID User-Agent", "the broker sets them"},
	{"Content-Type Content-Length Content-Encoding Content-Range Transfer-Encoding",
		"they say how the payload is to be read, and the broker sends it as it came"},
	{"Host Connection Keep-Alive Proxy Proxy-* Upgrade HTTP2-Settings TE Trailer Expect Via Max-Forwards CDN-Loop " +
		"Early-Data", "they belong to one connection and its proxies; `Proxy` becomes `HTTP_PROXY` in CGI programs"},
	{"Forwarded X-Forwarded X-Forwarded-* X-Real-IP Client-IP X-Client-IP X-Cluster-Client-IP True-Client-IP " +
		"Fastly-Client-IP X-Originating-IP CF-* X-Envoy-* X-Host X-HTTP-Host-Override X-Scheme X-URL-Scheme Front-End-HTTPS",
		"a proxy in front of the consumer says with them who calls, and how"},
	{"Remote-* X-Remote-* X-Auth-Request-* X-Webauth-* Client-Cert Client-Cert-Chain X-Client-Cert* SSL-Client-* " +
		"X-SSL-* X-Amzn-OIDC-* X-Amzn-MTLS-* X-Goog-Authenticated-User-* X-Goog-IAP-* X-MS-Client-Principal* X-MS-Token-* " +
		"X-Appengine-*", "a gateway in front of the consumer says with them who is logged in"},
	{"X-HTTP-Method X-HTTP-Method-Override X-Method-Override X-Original-URL X-Original-URI X-Original-Host " +
		"X-Original-Method X-Original-For X-Original-Proto X-Original-Prefix X-Rewrite-URL X-Accel-* X-Sendfile-Type " +
		"X-Middleware-*", "servers and frameworks take the request for another one"},
	{"Authorization Cookie Cookie2 Set-Cookie Set-Cookie2 WWW-Authenticate Authentication-Info",
		"credentials, and what asks for them"},
	{"Accept Accept-* Range If-*", "they ask for another answer, or for none"},
	{"Origin Referer Sec-* Access-Control-*", "a browser's: what keeps forged requests out reads them"},
	{"Webhook-*", "the signature of whoever sends a webhook, which is the broker"},
	{"Nats-*", "a NATS server takes them for orders: to drop what the stream has, or to refuse the message"},
}

// reservedNames and reservedPrefixes are the names of reservedGroups, folded.
var reservedNames, reservedPrefixes = foldReservedGroups()

func foldReservedGroups() (names map[string]bool, prefixes [][]byte) {
	names = map[string]bool{}
	for _, r := range reservedGroups {
		for name := range strings.FieldsSeq(r.names) {
			if prefix, ok := strings.CutSuffix(name, "*"); ok {
				prefixes = append(prefixes, appendFolded(nil, prefix))
			} else {
				names[foldedName(name)] = true
			}
		}
	}
	return names, prefixes
}

// Reserved reports whether a header of this name is not carried as metadata: the name is in one of
// reservedGroups, or it is tokenHeader, which carries the consumer's token. Names are compared
// folded.
func Reserved(name, tokenHeader string) bool {
	var space, tokenSpace [64]byte // most names fit: no allocation
	folded := appendFolded(space[:0], name)
	if reservedNames[string(folded)] {
		return true
	}
	for _, prefix := range reservedPrefixes {
		if bytes.HasPrefix(folded, prefix) {
			return true
		}
	}
	return len(name) == len(tokenHeader) && bytes.Equal(folded, appendFolded(tokenSpace[:0], tokenHeader))
}

// ReservedHeader reports whether a delivery header already has a meaning, so that it cannot carry
// the consumer's token. Authorization and Cookie are allowed, because the token is a credential of
// the consumer. Of the names that begin with X-Broker-, only X-Broker-Consumer-Token is allowed.
func ReservedHeader(name string) bool {
	switch folded := foldedName(name); folded {
	case "authorization", "cookie":
		return false
	case "x-broker-consumer-token":
		return folded != strings.ToLower(name)
	}
	return Reserved(name, "")
}

// foldedName returns equal texts for names that a server may treat as the same. CGI, WSGI and their
// successors put headers into variables: letters have one case and, depending on the server, every
// character except letters and digits becomes "_".
func foldedName(name string) string {
	return string(appendFolded(nil, name))
}

func appendFolded(b []byte, name string) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			b = append(b, c)
		case 'A' <= c && c <= 'Z':
			b = append(b, c|0x20)
		default:
			b = append(b, '-')
		}
	}
	return b
}
