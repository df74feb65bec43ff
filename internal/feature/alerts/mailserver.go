package alerts

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"

	"github.com/wneessen/go-mail"
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

// A mailServer is where mails are handed in.
type mailServer struct {
	host     string
	implicit bool
	options  []mail.Option
	tls      *tls.Config // nil: the roots of the system
}

// parseServer reads the URL of a mail server.
func parseServer(text string) (s mailServer, err error) {
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
	s = mailServer{host: u.Hostname(), implicit: how == tlsImplicit, options: []mail.Option{mail.WithPort(port)}}
	auth := mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover)
	switch how {
	case tlsStart:
		s.options = append(s.options, mail.WithTLSPolicy(mail.TLSMandatory))
	case tlsImplicit: // the client does not see that the connection of our dial is encrypted
		s.options = append(s.options, mail.WithSSL())
		auth = mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256PLUS, mail.SMTPAuthSCRAMSHA256,
			mail.SMTPAuthSCRAMSHA1PLUS, mail.SMTPAuthSCRAMSHA1,
			mail.SMTPAuthCramMD5, mail.SMTPAuthPlain, mail.SMTPAuthLogin)
	case tlsNone:
		s.options = append(s.options, mail.WithTLSPolicy(mail.NoTLS))
		auth = mail.WithSMTPAuth(mail.SMTPAuthPlain)
	}
	if password, ok := u.User.Password(); ok {
		if how == tlsNone && !loopback[s.host] {
			return s, errPlain
		}
		s.options = append(s.options, auth, mail.WithUsername(u.User.Username()), mail.WithPassword(password))
	} else if u.User != nil {
		return s, errServer
	}
	return s, nil
}

// client returns a client for one mail. The library looks at a context only while it dials, begins
// its timeout anew several times, and reads what the server says without a bound. So the connection
// ends with ctx, and after maxSaid bytes.
func (s *mailServer) client(ctx context.Context) (*mail.Client, error) {
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
	return mail.NewClient(s.host, append([]mail.Option{mail.WithTLSConfig(config), mail.WithTimeout(tryTimeout),
		mail.WithDialContextFunc(dial)}, s.options...)...)
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
