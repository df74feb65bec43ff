package policy

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// validChannel reports whether a channel may have that ID.
func validChannel(id string) bool { return ident.ValidName(strings.TrimPrefix(id, "~")) }

// MaxURL is the longest URL of a policy, in bytes.
const MaxURL = 2048

// messagePlace is the part of a status URL that the ID of the message replaces.
const messagePlace = "{messageID}"

// A StatusURL is the URL that is asked about a message. Empty: none.
type StatusURL string

// For returns the URL for a message.
func (u StatusURL) For(messageID string) string {
	return strings.ReplaceAll(string(u), messagePlace, url.PathEscape(messageID))
}

func parseStatusURL(text string) (StatusURL, error) {
	if text == "" {
		return "", nil
	}
	if !strings.Contains(text, messagePlace) {
		return "", errors.New("must contain " + messagePlace)
	}
	if err := checkURL(strings.ReplaceAll(text, messagePlace, "m")); err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(text, "://")
	if host, _, _ := strings.Cut(rest, "/"); strings.ContainsAny(host, "{}") {
		// A producer names its messages: it must not name the host that gets the consumer's token.
		return "", errors.New("must have " + messagePlace + " in its path or query, after a slash")
	}
	return StatusURL(text), nil
}

// String is the inverse of parseStatusURL.
func (u StatusURL) String() string { return string(u) }

var errURL = errors.New("must be an absolute http or https URL of at most 2048 bytes, without user name and fragment")

// checkURL checks the syntax of a URL. Its error does not quote the URL, which may contain
// a secret.
func checkURL(text string) error {
	if len(text) > MaxURL || !visible(text) {
		return errURL
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "" || u.User != nil ||
		u.Fragment != "" {
		return errURL
	}
	return nil
}

// visible reports whether every byte is visible ASCII.
func visible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// A Secret is a signing secret of Standard Webhooks: "whsec_" and base64. Empty: none.
type Secret string

const (
	secretPrefix         = "whsec_"
	minSecret, maxSecret = 24, 64 // bytes
)

var errPrevious = errors.New("must be whsec_ and the standard base64 of 24 to 64 bytes")

// parsePrevious reads the secret before. It exists, so "generate" is none.
func parsePrevious(text string) (Secret, error) {
	if s, err := ParseSecret(text); err == nil {
		return s, nil
	}
	return "", errPrevious
}

var errSecret = errors.New("must be generate, or whsec_ and the standard base64 of 24 to 64 bytes")

// parseSecret reads a secret. "generate" is a new random one.
func parseSecret(text string) (Secret, error) {
	switch {
	case text == "":
		return "", nil
	case text == "generate":
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		return Secret(secretPrefix + base64.StdEncoding.EncodeToString(key)), nil
	}
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return "", errSecret
	}
	return Secret(text), nil
}

// Key returns the bytes that sign, nil for no secret.
func (s Secret) Key() []byte {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(s), secretPrefix))
	return key
}

// ParseSecret reads a secret that exists: "generate" is none.
func ParseSecret(text string) (Secret, error) {
	if text == "generate" {
		return "", errSecret
	}
	return parseSecret(text)
}

// Sign returns the signature of Standard Webhooks: the base64 of the HMAC-SHA256 of
// "id.seconds.body".
func (s Secret) Sign(id, seconds string, body []byte) string {
	mac := hmac.New(sha256.New, s.Key())
	mac.Write([]byte(id + "." + seconds + "."))
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// String is the inverse of parseSecret.
func (s Secret) String() string { return string(s) }

// mask stands for a secret wherever it is shown.
const mask = "***"

// Masked is the secret as it is shown.
func (s Secret) Masked() string {
	if s == "" {
		return ""
	}
	return secretPrefix + mask
}

// Headers are lines "Name: value", separated by "\n", in the order of the consumer.
type Headers string

const (
	maxHeaders      = 20
	maxHeadersBytes = 4096
)

// The headers that a consumer cannot set: those of the connection, and those that the
// broker sets itself.
var (
	ownHeaders = " host content-length content-type content-encoding transfer-encoding connection keep-alive " +
		"proxy-connection " +
		"proxy-authorization te trailer upgrade expect user-agent cookie x-request-id "
	ownPrefixes = []string{"x-broker-", "webhook-"}
)

// parseHeaders reads lines. It trims blanks around names and values, and drops empty lines.
func parseHeaders(text string) (Headers, error) {
	if len(text) > maxHeadersBytes {
		return "", errors.New("may have at most 4096 bytes")
	}
	var lines []string
	seen := map[string]bool{}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.Trim(value, " \t")
		folded := foldedName(name)
		switch {
		case !ok || !headerName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return "", errors.New("must be lines of the form Name: value")
		case folded == "authorization":
			return "", errors.New("cannot contain Authorization; the field authorization sets it")
		case strings.Contains(ownHeaders, " "+folded+" ") || hasPrefix(folded, ownPrefixes):
			return "", errors.New("names a header that the broker sets itself")
		case seen[folded]:
			return "", errors.New("names a header twice")
		}
		seen[folded] = true
		lines = append(lines, name+": "+value)
	}
	if len(lines) > maxHeaders {
		return "", errors.New("may have at most 20 lines")
	}
	return Headers(strings.Join(lines, "\n")), nil
}

func hasPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// foldedName returns equal texts for names that CGI and its successors do not tell apart: case does
// not count, and every character except letters and digits counts as "-".
func foldedName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// headerName reports whether name is a token of RFC 9110.
func headerName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

// All calls f with each name and value.
func (h Headers) All(f func(name, value string)) {
	if h == "" {
		return
	}
	for line := range strings.SplitSeq(string(h), "\n") {
		name, value, _ := strings.Cut(line, ": ")
		f(name, value)
	}
}

// String is the inverse of parseHeaders.
func (h Headers) String() string { return string(h) }

// An Authorization is how attempts authorize themselves: its kind and what follows, as set.
// Empty: not at all.
type Authorization string

var errAuthorization = errors.New("must be basic user:password, bearer TOKEN, oauth2 TOKEN_URL CLIENT_ID " +
	"CLIENT_SECRET [SCOPE...], or another scheme and its credentials, separated by single blanks")

func parseAuthorization(text string) (Authorization, error) {
	if text == "" {
		return "", nil
	}
	scheme, rest, _ := strings.Cut(text, " ")
	kind := strings.ToLower(scheme)
	words := strings.Split(rest, " ")
	colon := strings.Index(rest, ":")
	for _, word := range words {
		// The password of basic may contain blanks and letters beyond ASCII.
		if (kind != "basic" || colon <= 0) && (word == "" || !visible(word)) {
			return "", errAuthorization
		}
	}
	switch {
	case len(text) > maxHeadersBytes || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
	case kind == "basic":
		if colon > 0 || len(words) == 1 && encodedBasic(rest) {
			return Authorization(text), nil
		}
	case kind == "bearer":
		if len(words) == 1 {
			return Authorization(text), nil
		}
	case kind == "oauth2":
		if len(words) < 3 {
			break
		}
		if checkURL(words[0]) != nil {
			return "", errors.New("needs a token URL that is an absolute http or https URL")
		}
		return Authorization(text), nil
	case isScheme(scheme):
		return Authorization(text), nil
	}
	return "", errAuthorization
}

// encodedBasic reports whether a text is user:password as the scheme Basic has it.
func encodedBasic(text string) bool {
	credentials, err := base64.StdEncoding.DecodeString(text)
	return err == nil && bytes.IndexByte(credentials, ':') >= 0
}

// isScheme reports whether a text is a token of RFC 9110, the syntax of an authentication scheme.
func isScheme(text string) bool {
	return text != "" &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

// of returns what follows a kind, whose name may be in any case.
func (a Authorization) of(kind string) (rest string, ok bool) {
	scheme, rest, ok := strings.Cut(string(a), " ")
	return rest, ok && strings.EqualFold(scheme, kind)
}

// Fixed returns the value of the header Authorization, "" for the kind oauth2 and for none. The
// credentials of a scheme that the broker does not know are sent as they are.
func (a Authorization) Fixed() string {
	if rest, ok := a.of("basic"); ok {
		if !encodedBasic(rest) {
			rest = base64.StdEncoding.EncodeToString([]byte(rest))
		}
		return "Basic " + rest
	}
	if rest, ok := a.of("bearer"); ok {
		return "Bearer " + rest
	}
	if _, ok := a.of("oauth2"); ok {
		return ""
	}
	return string(a)
}

// An OAuth2 is a client of the client-credentials grant.
type OAuth2 struct {
	TokenURL, ClientID, ClientSecret string
	Scopes                           []string
}

// OAuth2 returns the client of the kind oauth2.
func (a Authorization) OAuth2() (client OAuth2, ok bool) {
	rest, ok := a.of("oauth2")
	if !ok {
		return OAuth2{}, false
	}
	words := strings.Split(rest, " ")
	return OAuth2{TokenURL: words[0], ClientID: words[1], ClientSecret: words[2], Scopes: words[3:]}, true
}

// String is the inverse of parseAuthorization.
func (a Authorization) String() string { return string(a) }

// Masked is the authorization as it is shown: its kind.
func (a Authorization) Masked() string {
	if a == "" {
		return ""
	}
	kind, _, _ := strings.Cut(string(a), " ")
	return kind + " " + mask
}
