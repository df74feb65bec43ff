package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	netmail "net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// The ways to encrypt a connection, as the URL of the server names them.
const (
	tlsStart    = "starttls"
	tlsImplicit = "implicit"
	tlsNone     = "none"
)

var (
	loopback    = map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	defaultPort = map[string]int{tlsStart: 587, tlsImplicit: 465, tlsNone: 25}
)

// The errors never show the URL, which contains a password.
var (
	errServer = errors.New("must be smtp://user:password@host:port?tls=starttls, with tls=starttls, implicit or none")
	errPlain  = errors.New("has a password and tls=none, which only a server on this machine may have")
	errFrom   = errors.New("must be a mail address")
)

// A SettingError says what is wrong with a setting of mail.
type SettingError struct {
	Setting string // "SMTP_URL" or "FROM"
	Err     error
}

func (e *SettingError) Error() string { return e.Setting + " " + e.Err.Error() }

// A Server is where mails are handed in, and from whom.
type Server struct {
	from   string
	domain string // of Message-IDs
	at     place
}

// A place is a mail server.
type place struct {
	host     string
	implicit bool
	options  []gomail.Option
	tls      *tls.Config // nil: the roots of the system
}

// NewServer returns the mail server of a URL, which gets mails from that address. config is that of TLS, nil:
// the roots of the system. The errors are all mistakes of both settings.
func NewServer(text, from string, config *tls.Config) (*Server, []*SettingError) {
	s := &Server{from: from}
	var wrong []*SettingError
	var err error
	if s.at, err = parsePlace(text); err == nil {
		s.at.tls = config
		if _, err = s.at.client(context.Background(), time.Second); err != nil {
			err = errServer
		}
	}
	if err != nil {
		wrong = append(wrong, &SettingError{"SMTP_URL", err})
	}
	if sender, err := netmail.ParseAddress(from); err != nil {
		wrong = append(wrong, &SettingError{"FROM", errFrom})
	} else {
		_, s.domain, _ = strings.Cut(sender.Address, "@")
	}
	return s, wrong
}

// parsePlace reads the URL of a mail server.
func parsePlace(text string) (s place, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "smtp" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return s, errServer
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(query) > 1 || len(query) == 1 && len(query["tls"]) != 1 {
		return s, errServer
	}
	how := query.Get("tls")
	if how == "" {
		how = tlsStart
	}
	port, known := defaultPort[how]
	if !known {
		return s, errServer
	}
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			return s, errServer
		}
	}
	s = place{host: u.Hostname(), implicit: how == tlsImplicit, options: []gomail.Option{gomail.WithPort(port)}}
	auth := gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover)
	switch how {
	case tlsStart:
		s.options = append(s.options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case tlsImplicit: // the client does not see that the connection of our dial is encrypted
		s.options = append(s.options, gomail.WithSSL())
		auth = gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256PLUS, gomail.SMTPAuthSCRAMSHA256,
			gomail.SMTPAuthSCRAMSHA1PLUS, gomail.SMTPAuthSCRAMSHA1,
			gomail.SMTPAuthCramMD5, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin)
	case tlsNone:
		s.options = append(s.options, gomail.WithTLSPolicy(gomail.NoTLS))
		auth = gomail.WithSMTPAuth(gomail.SMTPAuthPlain)
	}
	if password, ok := u.User.Password(); ok {
		if how == tlsNone && !loopback[s.host] {
			return s, errPlain
		}
		s.options = append(s.options, auth, gomail.WithUsername(u.User.Username()), gomail.WithPassword(password))
	} else if u.User != nil {
		return s, errServer
	}
	return s, nil
}

// client returns a client for one gomail. The library looks at a context only while it dials, begins
// its timeout anew several times, and reads what the server says without a bound. So the connection
// ends with ctx, and after maxSaid bytes.
func (s *place) client(ctx context.Context, within time.Duration) (*gomail.Client, error) {
	config := s.tls
	if config == nil {
		config = &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
	}
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		tcp, err := (&net.Dialer{}).DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = tcp.Close() }) // may be the second close
		c := &boundedConn{Conn: tcp, left: maxSaid}
		if !s.implicit {
			return c, nil
		}
		encrypted := tls.Client(c, config)
		return encrypted, encrypted.HandshakeContext(dialing)
	}
	return gomail.NewClient(s.host, append([]gomail.Option{gomail.WithTLSConfig(config), gomail.WithTimeout(within),
		gomail.WithDialContextFunc(dial)}, s.options...)...)
}

// maxSaid bounds what a mail server says in one connection: its answers to a mail with 50
// recipients, and the certificates.
const maxSaid = 256 << 10

var errSaysTooMuch = errors.New("the mail server says too much")

// A boundedConn is a connection of which only so much is read.
type boundedConn struct {
	net.Conn
	left int
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errSaysTooMuch
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
