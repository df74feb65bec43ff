package mail

import (
	"context"
	"crypto/tls"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/certs"
)

func TestWhatAMailServerMayBe(t *testing.T) {
	for _, url := range []string{"smtp://mail.example", "smtp://mail.example:2525?tls=starttls",
		"smtp://u:p%40ss@mail.example?tls=implicit", "smtp://mail.example?tls=none", "smtp://u:p@127.0.0.1:25?tls=none",
		"smtp://u:p@[::1]?tls=none"} {
		_, wrong := NewServer(url, "Penstock <a@example.com>", nil)
		require.Empty(t, wrong, url)
	}
	for _, tc := range []struct{ url, from, setting string }{
		{"", "a@b.c", "SMTP_URL"},
		{"http://mail", "a@b.c", "SMTP_URL"},
		{"smtp:///", "a@b.c", "SMTP_URL"},
		{"smtp://mail/box", "a@b.c", "SMTP_URL"},
		{"smtp://user@mail", "a@b.c", "SMTP_URL"},
		{"smtp://mail:0", "a@b.c", "SMTP_URL"},
		{"smtp://mail:x", "a@b.c", "SMTP_URL"},
		{"smtp://mail?tls=maybe", "a@b.c", "SMTP_URL"},
		{"smtp://mail?tsl=none", "a@b.c", "SMTP_URL"},
		{"smtp://mail?tls=none&tls=implicit", "a@b.c", "SMTP_URL"},
		{"smtp://u:secret@mail?tls=none", "a@b.c", "SMTP_URL"},
		{"smtp://mail", "nobody", "FROM"},
		{"smtp://mail", "", "FROM"},
	} {
		_, wrong := NewServer(tc.url, tc.from, nil)
		require.Len(t, wrong, 1, tc.url)
		require.Equal(t, tc.setting, wrong[0].Setting, tc.url)
		require.NotContains(t, wrong[0].Error(), "secret")
	}
	_, wrong := NewServer("http://mail", "nobody", nil)
	require.Len(t, wrong, 2)
}

// A session of a mail server that takes one user and keeps the last mail.
type session struct {
	tls  bool
	got  *atomic.Pointer[mail.Message]
	user bool
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.user = user == "u" && password == "p"
		if !s.user {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (s *session) Mail(string, *smtp.MailOptions) error {
	if !s.user || !s.tls {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	msg, err := mail.ReadMessage(strings.NewReader(string(text)))
	s.got.Store(msg)
	return err
}

func (s *session) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (s *session) Reset()                               {}
func (s *session) Logout() error                        { return nil }

func TestAMailIsSentEncryptedOnly(t *testing.T) {
	authority, err := certs.NewAuthority()
	require.NoError(t, err)
	cert, err := authority.Issue(nil)
	require.NoError(t, err)
	var got atomic.Pointer[mail.Message]
	serve := func(encrypted, implicit bool) (addr string) {
		s := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
			_, ok := c.TLSConnectionState()
			return &session{tls: ok, got: &got}, nil
		}))
		if encrypted {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		if implicit {
			l = tls.NewListener(l, s.TLSConfig)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close(); <-done })
		return l.Addr().String()
	}
	send := func(url string, config *tls.Config) error {
		m, wrong := NewServer(url, "Penstock <a@example.com>", config)
		require.Empty(t, wrong)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		said, err := m.Send(ctx, 10*time.Second, &Letter{ID: "alert-1", To: []string{"b@example.com"},
			Subject: "consumer.dead: c/k", Text: "one\n.\ntwo \u20ac", Headers: [][2]string{{"X-Broker-Test", "true"}}})
		if err == nil {
			require.Contains(t, said, "OK")
		}
		return err
	}
	trusted := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}
	addr := serve(true, false)
	require.NoError(t, send("smtp://u:p@"+addr, trusted))
	msg := got.Load()
	require.Equal(t, "<alert-1@example.com>", msg.Header.Get("Message-ID"))
	require.Equal(t, "consumer.dead: c/k", msg.Header.Get("Subject"))
	require.Equal(t, "auto-generated", msg.Header.Get("Auto-Submitted"))
	body, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	require.NoError(t, err)
	require.Equal(t, "one\r\n.\r\ntwo \u20ac", strings.TrimSpace(string(body)))
	require.Equal(t, "true", msg.Header.Get("X-Broker-Test"))

	got.Store(nil)
	require.NoError(t, send("smtp://u:p@"+serve(true, true)+"?tls=implicit", trusted))
	require.Equal(t, "<alert-1@example.com>", got.Load().Header.Get("Message-ID"))
	got.Store(nil)
	require.Error(t, send("smtp://u:p@"+addr, nil), "the certificate is of no known authority")
	err = send("smtp://u:hunter2@"+addr, trusted)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	require.Error(t, send("smtp://u:p@"+serve(false, false), trusted), "there is no STARTTLS")
	require.Nil(t, got.Load())
}

// A mail server that does not answer, answers slowly or says much without an end costs no more than
// the time and memory of one try, and the mail ends when it is told to.
func TestAHostileMailServerHoldsAMailNoLongerThanItsContext(t *testing.T) {
	drip := func(text string) func(c net.Conn) {
		return func(c net.Conn) {
			for err := error(nil); err == nil; _, err = io.WriteString(c, text) {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	hang := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	pour := func(begin, text string) func(c net.Conn) {
		return func(c net.Conn) {
			chunk := []byte(strings.Repeat(text, 64<<10/len(text)))
			_, err := io.WriteString(c, begin)
			for err == nil {
				_, err = c.Write(chunk)
			}
		}
	}
	greet := func(then func(c net.Conn)) func(c net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, "220 ready\r\n"); then(c) }
	}
	for name, tc := range map[string]struct {
		serve   func(c net.Conn)
		query   string
		tooMuch bool
	}{
		"no greeting":                   {serve: hang},
		"no TLS":                        {serve: hang, query: "?tls=implicit"},
		"a greeting that drips":         {serve: drip("2")},
		"lines of a greeting that drip": {serve: drip("220-x\r\n")},
		"no answer to EHLO":             {serve: greet(hang)},
		"an answer that drips":          {serve: greet(drip("250-x\r\n"))},
		"a banner without an end":       {serve: pour("220 ", "x"), tooMuch: true},
		"lines without an end":          {serve: pour("", "220-x\r\n"), tooMuch: true},
		"extensions without an end":     {serve: greet(pour("", "250-x\r\n")), tooMuch: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			closed, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if !tc.tooMuch {
					time.AfterFunc(500*time.Millisecond, cancel)
				}
				tc.serve(c)
				close(closed)
			}()
			t.Cleanup(func() { _ = l.Close(); <-done })
			if tc.query == "" {
				tc.query = "?tls=none"
			}
			m, wrong := NewServer("smtp://"+l.Addr().String()+tc.query, "a@example.com", nil)
			require.Empty(t, wrong)
			start := time.Now()
			_, err = m.Send(ctx, 20*time.Second, &Letter{ID: "alert-1", To: []string{"b@example.com"}})
			require.Error(t, err)
			if tc.tooMuch {
				require.ErrorIs(t, err, errSaysTooMuch)
			}
			require.Less(t, time.Since(start), 10*time.Second)
			<-closed // the server sees the end of the connection
			cancel()
		})
	}
}
