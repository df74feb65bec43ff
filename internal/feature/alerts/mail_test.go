package alerts

import (
	"context"
	"crypto/tls"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/certs"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

func TestWhatAMailServerMayBe(t *testing.T) {
	to := []string{"a@example.com"}
	for _, url := range []string{"smtp://mail.example", "smtp://mail.example:2525?tls=starttls",
		"smtp://u:p%40ss@mail.example?tls=implicit", "smtp://mail.example?tls=none", "smtp://u:p@127.0.0.1:25?tls=none",
		"smtp://u:p@[::1]?tls=none"} {
		_, err := NewMail(url, "Penstock <a@example.com>", append(to, " B <b@example.com>"), nil)
		require.NoError(t, err, url)
	}
	for _, tc := range []struct{ url, from, to, setting string }{
		{"", "a@b.c", "a@b.c", "SMTP_URL"},
		{"http://mail", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp:///", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail/box", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://user@mail", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail:0", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail:x", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail?tls=maybe", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail?tsl=none", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail?tls=none&tls=implicit", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://u:secret@mail?tls=none", "a@b.c", "a@b.c", "SMTP_URL"},
		{"smtp://mail", "nobody", "a@b.c", "FROM"},
		{"smtp://mail", "", "a@b.c", "FROM"},
		{"smtp://mail", "a@b.c", "nobody", "TO"},
		{"smtp://mail", "a@b.c", "", "TO"},
		{"smtp://mail", "a@b.c", strings.Repeat("a@b.c,", maxRecipients) + "a@b.c", "TO"},
	} {
		_, err := NewMail(tc.url, tc.from, strings.Split(tc.to, ","), nil)
		var wrong *MailError
		require.ErrorAs(t, err, &wrong, tc.url)
		require.Equal(t, tc.setting, wrong.Setting, tc.url)
		require.NotContains(t, err.Error(), "secret")
	}
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
		m, err := NewMail(url, "Penstock <a@example.com>", []string{"b@example.com"}, config)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return m.Send(ctx, "alert-1", []apitype.Alert{{Event: "consumer.dead", ChannelID: "c", ConsumerID: "k",
			Reason: "one\r\n.\r\ntwo \u20ac", ReviveURL: "https://b/x"}})
	}
	trusted := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"}
	addr := serve(true, false)
	require.NoError(t, send("smtp://u:p@"+addr, trusted))
	msg := got.Load()
	require.Equal(t, "<alert-1@example.com>", msg.Header.Get("Message-ID"))
	require.Equal(t, "[Penstock] consumer.dead: c/k", msg.Header.Get("Subject"))
	require.Equal(t, "auto-generated", msg.Header.Get("Auto-Submitted"))
	body, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	require.NoError(t, err)
	require.Contains(t, string(body), "Reason:   one . two \u20ac\r\nRevive:   https://b/x")

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
			m, err := NewMail("smtp://"+l.Addr().String()+tc.query, "a@example.com", []string{"b@example.com"}, nil)
			require.NoError(t, err)
			start := time.Now()
			err = m.Send(ctx, "alert-1", []apitype.Alert{{Event: "consumer.dead"}})
			require.Error(t, err)
			if tc.tooMuch {
				require.ErrorIs(t, err, errSaysTooMuch)
			}
			require.Less(t, time.Since(start), tryTimeout/2)
			<-closed // the server sees the end of the connection
			cancel()
		})
	}
}

func TestTheWebhookIsSignedAndFollowsNothing(t *testing.T) {
	const secret = policy.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	verifier, err := standardwebhooks.NewWebhook(string(secret))
	require.NoError(t, err)
	answer, hits := http.StatusNoContent, 0
	var verified error
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits++
		body, _ := io.ReadAll(r.Body)
		verified = verifier.Verify(body, r.Header)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(answer)
	}))
	defer server.Close()
	post := func(p string, secret policy.Secret) error {
		rules, err := egress.ParsePolicy(p, nil)
		require.NoError(t, err)
		client := egress.NewClient(egress.Options{Policy: rules})
		defer client.Close()
		w := &Webhook{URL: server.URL + "/?key=hunter2", Secret: secret, Client: client.Web(egress.Configured), Agent: "a"}
		return w.Post(context.Background(), "alert-1", []byte(`{"a":1}`))
	}
	require.NoError(t, post("private", secret))
	require.NoError(t, verified)
	require.NoError(t, post("private", ""))
	require.Error(t, verified, "it is not signed")
	for _, answer = range []int{302, 307, 410, 500} {
		before := hits
		require.ErrorContains(t, post("private", secret), "answered")
		require.Equal(t, before+1, hits)
	}
	before := hits
	err = post("public", secret)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	require.Equal(t, before, hits, "the address is not allowed")
}
