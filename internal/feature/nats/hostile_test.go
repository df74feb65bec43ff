package nats

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

const aServer = `INFO {"headers":true,"max_payload":1048576}` + "\r\n"

// A stranger is a server whose words a test chooses. It says first to each connection; after a login, and after a
// message, it says what the functions return, which get the line.
type stranger struct {
	first   string
	welcome string
	reply   func(inbox string) string
	closes  bool // after that
	mute    bool // it answers the first PING alone
	late    int  // it acknowledges a message after so many further ones

	addr string
	got  chan string // lines
}

func (s *stranger) serve(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr, s.got = l.Addr().String(), make(chan string, 1<<10)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.talk(conn)
		}
	}()
	return s.addr
}

func (s *stranger) talk(conn net.Conn) {
	defer conn.Close()
	_, _ = conn.Write([]byte(s.first))
	r, inbox := bufio.NewReader(conn), ""
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return
		}
		text = strings.TrimSpace(text)
		s.got <- text
		switch verb, rest, _ := strings.Cut(text, " "); verb {
		case "PING":
			_, _ = conn.Write([]byte(s.welcome))
			if s.mute {
				s.welcome = ""
			}
			if inbox != "" {
				if s.late--; s.late == 0 {
					_, _ = conn.Write([]byte(stored(inbox)))
				}
			}
		case "HPUB":
			inbox = strings.Fields(rest)[1]
			if s.reply != nil {
				_, _ = conn.Write([]byte(s.reply(strings.Fields(rest)[1])))
			}
			if s.closes {
				return
			}
		}
	}
}

// patient are options with which a slow machine changes nothing.
func patient(client *egress.Client) Options {
	return Options{Client: client, Greeting: 5 * time.Minute, Quiet: 5 * time.Minute}
}

// attempt sends a message to an address with a sender that the test ends.
func attempt(t *testing.T, url, authorization string, within time.Duration) egress.Result {
	t.Helper()
	client := egress.NewClient(egress.Options{})
	s := New(patient(client))
	defer func() {
		client.Close()
		s.Close()
		require.Zero(t, s.servers.places.Taken())
	}()
	target, err := s.Row().Target(egress.ToConsumers, url, "")
	require.NoError(t, err)
	p := &policy.Policy{}
	if authorization != "" {
		require.NoError(t, policy.Set(p, "authorization", authorization))
	}
	return target.Send(t.Context(), push.Attempt{Message: &durable.Message{ID: ident.Before(1_700_000_000_000),
		ContentType: "text/plain", Payload: []byte("body")}, Consumer: &durable.Consumer{No: 1, ID: "k"}, Policy: p, No: 1},
		time.Now().Add(within))
}

// What a server announces is not allocated, and what it says is bounded: its words end its connection, and
// nothing else.
func TestAHostileServerEndsItsOwnConnection(t *testing.T) {
	hmsg := func(args string) func(string) string {
		return func(inbox string) string { return "HMSG " + inbox + " 1 " + args + "\r\n" }
	}
	for name, tc := range map[string]struct {
		stranger
		words string
	}{
		"http":        {stranger{first: "HTTP/1.1 400 Bad Request\r\n\r\n"}, errNotNATS.Error()},
		"no JSON":     {stranger{first: "INFO x\r\n"}, errNotNATS.Error()},
		"no payload":  {stranger{first: `INFO {"headers":true}` + "\r\n"}, errNotNATS.Error()},
		"old":         {stranger{first: `INFO {"max_payload":100}` + "\r\n"}, errOld.Error()},
		"long INFO":   {stranger{first: "INFO " + strings.Repeat("x", readBuffer)}, errSaysTooMuch.Error()},
		"other words": {stranger{first: aServer, welcome: "HELLO\r\n"}, errNotNATS.Error()},
		"huge message": {stranger{first: aServer, welcome: "PONG\r\nMSG a 1 4611686018427387904\r\n"},
			errSaysTooMuch.Error()},
		"overflow":     {stranger{first: aServer, welcome: "PONG\r\nMSG a 1 18446744073709551616\r\n"}, errNotNATS.Error()},
		"negative":     {stranger{first: aServer, welcome: "PONG\r\nMSG a 1 -1\r\n"}, errNotNATS.Error()},
		"few fields":   {stranger{first: aServer, welcome: "PONG\r\nMSG a\r\n"}, errNotNATS.Error()},
		"huge answer":  {stranger{first: aServer, welcome: "PONG\r\n", reply: hmsg("0 17179869184")}, errSaysTooMuch.Error()},
		"head > total": {stranger{first: aServer, welcome: "PONG\r\n", reply: hmsg("9 4")}, errNotNATS.Error()},
		"no end": {stranger{first: aServer, welcome: "PONG\r\n",
			reply: func(inbox string) string { return "MSG " + inbox + " 1 2\r\n{}xx" }}, errNotNATS.Error()},
		"closed": {stranger{first: aServer, welcome: "PONG\r\n", closes: true}, errEnded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := attempt(t, "nats://"+tc.serve(t)+"/a", "", 2*time.Minute)
			require.ErrorContains(t, res.Err, tc.words)
			require.False(t, res.Local)
			require.Zero(t, res.Status)
		})
	}
}

// Words of a server that are no acknowledgement are none, whatever they look like.
func TestOnlyAnAcknowledgementIsOne(t *testing.T) {
	for _, no := range []string{``, `{}`, `null`, `[]`, `"ok"`, `+OK`, `{"stream":"S"}`, `{"seq":1}`,
		`{"stream":"S","seq":0}`, `{"stream":"S","seq":-1}`, `{"stream":"S","seq":1,"error":{"code":0}}`,
		`{"stream":1,"seq":1}`, `{"error":{"code":200}}`, `{"error":{"code":400}}`} {
		_, ok := answerOf(frame{payload: []byte(no)})
		require.False(t, ok, no)
	}
	a, ok := answerOf(frame{payload: []byte(`{"stream":"S","seq":1}`)})
	require.True(t, ok)
	require.Equal(t, egress.Result{Status: 200, RetryAfter: -1, Sent: true, Answer: []byte(`{"stream":"S","seq":1}`)},
		a.result())
	for code, want := range map[int]egress.Reply{400: egress.Refused, 404: egress.Deferred, 429: egress.Deferred,
		500: egress.Deferred, 503: egress.Deferred} {
		a, ok := answerOf(frame{payload: fmt.Appendf(nil, `{"error":{"code":%d,"description":"why\nnot"},"stream":"S","seq":0}`,
			code)})
		require.True(t, ok)
		res := a.result()
		require.Equal(t, []any{code, want}, []any{res.Status, res.Reply})
		require.Contains(t, res.Words, "why not")
	}
	for number, want := range map[int]egress.Reply{10054: egress.Refused, accountFull: egress.Deferred,
		noTier: egress.Deferred} {
		a, ok := answerOf(frame{payload: fmt.Appendf(nil, `{"error":{"code":400,"err_code":%d}}`, number)})
		require.True(t, ok)
		require.Equal(t, want, a.result().Reply, number)
	}
}

func TestTheTimeOfAnAttemptEndsIt(t *testing.T) {
	silent := &stranger{}
	res := attempt(t, "nats://"+silent.serve(t)+"/a", "", 200*time.Millisecond)
	require.Equal(t, egress.Result{Err: errUnreached, RetryAfter: -1, Took: res.Took}, res)
	deaf := &stranger{first: aServer, welcome: "PONG\r\n"}
	// A stop of the broker is no failed attempt.
	client := egress.NewClient(egress.Options{})
	s := New(patient(client))
	defer func() { client.Close(); s.Close() }()
	deaf = &stranger{first: aServer, welcome: "PONG\r\n"}
	target, err := s.Row().Target(egress.ToConsumers, "nats://"+deaf.serve(t)+"/a", "")
	require.NoError(t, err)
	life, stop := context.WithCancel(t.Context())
	go func() {
		for line := range deaf.got {
			if strings.HasPrefix(line, "HPUB") {
				stop()
			}
		}
	}()
	res = target.Send(life, push.Attempt{Message: &durable.Message{}, Consumer: &durable.Consumer{},
		Policy: &policy.Policy{}}, time.Now().Add(2*time.Minute))
	require.ErrorIs(t, res.Err, egress.ErrClosed)
	require.True(t, res.Sent)

	// Over a connection that is there the time ends the wait for the acknowledgement.
	res = target.Send(t.Context(), push.Attempt{Message: &durable.Message{}, Consumer: &durable.Consumer{},
		Policy: &policy.Policy{}}, time.Now().Add(5*time.Second))
	require.Equal(t, egress.Result{Err: errUnconfirmed, RetryAfter: -1, Sent: true, Took: res.Took}, res)
}

// A server that has become silent is left. One that answers may take as long for an acknowledgement as the attempt
// has time.
func TestAServerThatHasBecomeSilentIsLeft(t *testing.T) {
	t.Parallel()
	client := egress.NewClient(egress.Options{})
	send := func(server *stranger, quiet time.Duration) egress.Result {
		o := patient(client)
		o.Quiet = quiet
		s := New(o)
		defer s.Close()
		target, err := s.Row().Target(egress.ToConsumers, "nats://"+server.serve(t)+"/a", "")
		require.NoError(t, err)
		return target.Send(t.Context(), push.Attempt{Message: &durable.Message{}, Consumer: &durable.Consumer{},
			Policy: &policy.Policy{}}, time.Now().Add(5*time.Minute))
	}
	res := send(&stranger{first: aServer, welcome: "PONG\r\n", mute: true}, 100*time.Millisecond)
	require.Equal(t, egress.Result{Err: errSilent, RetryAfter: -1, Sent: true, Took: res.Took}, res)
	// On a machine that is busy an answer may take seconds.
	require.Equal(t, 200, send(&stranger{first: aServer, welcome: "PONG\r\n", late: 2}, 10*time.Second).Status)
	client.Close()
}

// Credentials do not go to a server without TLS where the callback asks for TLS, and no words of the server that
// came before TLS count.
func TestATLSCallbackSendsNothingInPlainText(t *testing.T) {
	plainText := &stranger{first: aServer, welcome: "PONG\r\n"}
	res := attempt(t, "tls://"+plainText.serve(t)+"/a", "basic ann:secret", 2*time.Minute)
	require.Equal(t, errNoTLS, res.Err)
	injecting := &stranger{first: `INFO {"headers":true,"max_payload":9,"tls_required":true}` + "\r\nPONG\r\n"}
	res = attempt(t, "nats://"+injecting.serve(t)+"/a", "basic ann:secret", 2*time.Minute)
	require.Equal(t, errNotNATS, res.Err)
	for _, s := range []*stranger{plainText, injecting} {
		for len(s.got) > 0 {
			require.NotContains(t, <-s.got, "secret")
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("MSG a 1 2\r\nhi\r\nHMSG a 1 b 3 4\r\nhahi\r\nPING\r\n-ERR 'x'\r\n"))
	f.Add([]byte("HMSG a 1 99999999999999999999 4\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		frames := &frames{r: bufio.NewReaderSize(strings.NewReader(string(said)), readBuffer)}
		for {
			f, err := frames.next()
			if err != nil {
				return
			}
			_, _ = answerOf(f)
			_, _ = deniedPublish(f.text)
		}
	})
}
