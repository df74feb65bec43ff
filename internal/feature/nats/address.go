package nats

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// The schemes of callback URLs. With plain the server may ask for TLS, with secure it must have it.
const plain, secure = "nats", "tls"

const usualPort = "4222"

// mostSubject bounds a subject, bytes.
const mostSubject = 256

// An address is what a callback URL names.
type address struct {
	secure  bool
	host    string // a name in small letters, or an address
	port    string
	subject string
}

func invalid(detail string) error { return problem.New(400, "invalid_callback", detail) }

// The errors do not quote the URL.
var (
	errForm = invalid("A callbackUrl of NATS has the form nats://host[:port]/subject, or tls:// instead of nats://.")
	errUser = invalid("A callbackUrl of NATS has no user name and password: the field authorization has the " +
		"credentials, which are never shown.")
	errMore    = invalid("A callbackUrl of NATS ends with its subject: it has no query and no fragment.")
	errPort    = invalid("The port of a callbackUrl is 1 to 65535.")
	errSubject = problem.Newf(400, "invalid_callback", "The subject of a callbackUrl of NATS has up to %d bytes: names "+
		"of visible ASCII, separated by full stops, without *, > and /.", mostSubject)
	errReserved = invalid("The subject of a callbackUrl of NATS must not begin with $ or _INBOX: the server itself uses " +
		"such subjects.")
)

// parse takes a callback URL apart. policy says which hosts it may name.
func parse(rawURL string, policy egress.Policy) (address, error) {
	u, err := url.Parse(rawURL)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "" || u.Scheme != plain && u.Scheme != secure:
		return address{}, errForm
	case u.User != nil:
		return address{}, errUser
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(rawURL, "#"):
		return address{}, errMore
	}
	a := address{secure: u.Scheme == secure, port: u.Port()}
	if a.port == "" {
		a.port = usualPort
	}
	n, err := strconv.Atoi(a.port)
	if err != nil || n < 1 || n > 65535 || strings.HasSuffix(u.Host, ":") {
		return address{}, errPort
	}
	a.port = strconv.Itoa(n)
	if a.subject, err = subject(strings.TrimPrefix(u.Path, "/")); err != nil {
		return address{}, err
	}
	a.host, err = policy.CheckHost(u.Hostname())
	return a, err
}

// subject checks a subject, which is returned as it is.
func subject(text string) (string, error) {
	if text == "" || len(text) > mostSubject {
		return "", errSubject
	}
	for name := range strings.SplitSeq(text, ".") {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune("*>/", r)
		}) {
			return "", errSubject
		}
	}
	first, _, _ := strings.Cut(text, ".")
	if first[0] == '$' || strings.HasPrefix(first, "_INBOX") {
		return "", errReserved
	}
	return text, nil
}
