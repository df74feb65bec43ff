package natsserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/nats"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/certs"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A rig is a sender with its table.
type rig struct {
	t      testing.TB
	table  *push.Senders
	sender *nats.Sender
	ids    *ident.Generator
}

func newRig(t testing.TB, idle time.Duration, options ...egress.Options) *rig {
	t.Helper()
	var o egress.Options
	for _, given := range options {
		o = given
	}
	client := egress.NewClient(o)
	s := nats.New(nats.Options{Client: client, Idle: idle, Greeting: 5 * time.Minute, Quiet: 5 * time.Minute})
	t.Cleanup(func() { client.Close(); s.Close() })
	return &rig{t: t, table: push.NewSenders(s.Row()), sender: s,
		ids: ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })}
}

// message is a new message with that payload.
func (r *rig) message(payload string) *durable.Message {
	return &durable.Message{ID: r.ids.Next(), Key: "m-1", ContentType: "application/json",
		Headers: []byte("X-Kind:order\n"), Payload: []byte(payload)}
}

// send makes an attempt for a consumer with those fields.
func (r *rig) send(ctx context.Context, url string, fields map[string]string, m *durable.Message,
	within time.Duration) egress.Result {
	target, err := r.table.Target(egress.ToConsumers, url, "")
	require.NoError(r.t, err)
	book := policy.NewBook(policy.Policy{})
	record, err := book.Merge("", fields, time.Now())
	require.NoError(r.t, err)
	return target.Send(ctx, push.Attempt{Message: m, Consumer: &durable.Consumer{No: 7, ID: "k"},
		Policy: book.Of(record), No: 1}, time.Now().Add(within))
}

// try is send without special fields and with much time.
func (r *rig) try(url string, m *durable.Message) egress.Result {
	return r.send(r.t.Context(), url, nil, m, 2*time.Minute)
}

func (r *rig) connections() int64 { return r.sender.Bounds()[0].Taken() }

func delivered(t *testing.T, res egress.Result) {
	t.Helper()
	require.Equal(t, 200, res.Status, "%+v", res)
	require.NoError(t, res.Err)
	require.Equal(t, egress.ByStatus, res.Reply)
}

// deferred requires that an attempt is repeated, for that reason.
func deferred(t *testing.T, res egress.Result, status int, words string) {
	t.Helper()
	require.Equal(t, []any{status, egress.Deferred}, []any{res.Status, res.Reply}, "%+v", res)
	require.Contains(t, res.Words, words)
}

func TestAJobIsAMessageThatAStreamHas(t *testing.T) {
	s := startServer(t)
	js := s.connect()
	stream(t, js, natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	r := newRig(t, 0)
	m := r.message(`{"id":17}`)
	res := r.try(s.url("orders.new"), m)
	delivered(t, res)
	require.JSONEq(t, `{"stream":"ORDERS","seq":1}`, string(res.Answer))
	got := stored(t, js, "ORDERS")
	require.Len(t, got, 1)
	require.Equal(t, "orders.new", got[0].Subject)
	require.Equal(t, `{"id":17}`, string(got[0].Data))
	require.Equal(t, natsgo.Header{"Nats-Msg-Id": {m.ID.Job(0).String()}, "X-Kind": {"order"},
		"Content-Type": {"application/json"}}, got[0].Header)

	// The same job again is in the window of the stream. Another job is not, and has no payload.
	res = r.try(s.url("orders.new"), m)
	delivered(t, res)
	require.JSONEq(t, `{"stream":"ORDERS","seq":1,"duplicate":true}`, string(res.Answer))
	delivered(t, r.try(s.url("orders.new"), r.message("")))
	require.Len(t, stored(t, js, "ORDERS"), 2)
	require.EqualValues(t, 1, r.connections())
}

// Two consumers of a channel that send to one stream do not hide each other's messages.
func TestTheMessageOfAnotherConsumerIsNoRepetition(t *testing.T) {
	s := startServer(t)
	js := s.connect()
	stream(t, js, natsgo.StreamConfig{Name: "ALL", Subjects: []string{"a", "b"}})
	r := newRig(t, 0)
	m := r.message("x")
	for pos, subject := range []string{"a", "b"} {
		target, err := r.table.Target(egress.ToConsumers, s.url(subject), "")
		require.NoError(t, err)
		delivered(t, target.Send(t.Context(), push.Attempt{Message: m, Policy: &policy.Policy{}, No: 1,
			Consumer: &durable.Consumer{No: uint32(pos + 1), ID: subject, Position: pos}}, time.Now().Add(2*time.Minute)))
	}
	require.Len(t, stored(t, js, "ALL"), 2)
}

func TestWithoutAStreamNothingIsDelivered(t *testing.T) {
	s := startServer(t)
	js := s.connect()
	r := newRig(t, 0)
	m := r.message("x")
	deferred(t, r.try(s.url("orders.new"), m), 503, "no stream has the subject (no responders)")

	// A program that listens is no stream: neither its silence nor its answer is an acknowledgement.
	nc, err := natsgo.Connect("nats://" + s.addr)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Subscribe("orders.new", func(*natsgo.Msg) {})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	res := r.send(t.Context(), s.url("orders.new"), nil, m, time.Second)
	require.ErrorContains(t, res.Err, "no stream acknowledged")
	require.True(t, res.Sent)
	_, err = nc.Subscribe("orders.new", func(m *natsgo.Msg) { _ = m.Respond([]byte(`{"ok":true}`)) })
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	res = r.send(t.Context(), s.url("orders.new"), nil, m, time.Second)
	require.ErrorContains(t, res.Err, "a program that is no stream answered")

	stream(t, js, natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	delivered(t, r.try(s.url("orders.new"), m)) // the answers of the programs do not stand for that of the stream
	require.EqualValues(t, 1, r.connections())
}

func TestWhatNoRepetitionMakesSmallerIsRefused(t *testing.T) {
	s := startServer(t, "max_payload: 4096")
	js := s.connect()
	stream(t, js, natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, MaxMsgSize: 1024})
	r := newRig(t, 0)
	res := r.try(s.url("orders.new"), r.message(strings.Repeat("x", 4096)))
	require.Equal(t, []any{413, egress.Refused, false}, []any{res.Status, res.Reply, res.Sent})
	require.Contains(t, res.Words, "takes 4096 (max_payload)")
	res = r.try(s.url("orders.new"), r.message(strings.Repeat("x", 2048)))
	require.Equal(t, []any{400, egress.Refused}, []any{res.Status, res.Reply})
	require.Contains(t, res.Words, "message size exceeds maximum allowed")
	delivered(t, r.try(s.url("orders.new"), r.message("small"))) // over the same connection
	require.EqualValues(t, 1, r.connections())
}

func TestAFullStreamIsTriedAgain(t *testing.T) {
	s := startServer(t)
	js := s.connect()
	stream(t, js, natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, MaxMsgs: 1,
		Discard: natsgo.DiscardNew})
	r := newRig(t, 0)
	delivered(t, r.try(s.url("orders.new"), r.message("x")))
	m := r.message("y")
	deferred(t, r.try(s.url("orders.new"), m), 503, "maximum messages exceeded")
	require.NoError(t, js.PurgeStream("ORDERS"))
	delivered(t, r.try(s.url("orders.new"), m))
}

func TestCredentials(t *testing.T) {
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := pair.PublicKey()
	require.NoError(t, err)
	seed, err := pair.Seed()
	require.NoError(t, err)
	s := startServer(t, `authorization { users: [ {user: ann, password: "p@ss word"}, {nkey: `+public+`},`+
		` {user: bob, password: b, permissions: {publish: {deny: ["orders.secret"]}}},`+
		` {user: eve, password: e, permissions: {subscribe: {deny: ["_INBOX.>"]}}} ] }`)
	js := s.connect(natsgo.UserInfo("ann", "p@ss word"))
	stream(t, js, natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	r := newRig(t, 0)
	as := func(authorization, subject string) egress.Result {
		return r.send(t.Context(), s.url(subject), map[string]string{"authorization": authorization}, r.message("x"),
			2*time.Minute)
	}
	delivered(t, as("basic ann:p@ss word", "orders.new"))
	delivered(t, as("nkey "+string(seed), "orders.new"))
	deferred(t, r.try(s.url("orders.new"), r.message("x")), 401, "Authorization Violation")
	for _, wrong := range []string{"basic ann:wrong-secret", "bearer wrong-secret", "basic nobody:wrong-secret"} {
		res := as(wrong, "orders.new")
		deferred(t, res, 401, "refused the connection: Authorization Violation")
		require.NotContains(t, res.Words, "wrong-secret")
	}
	delivered(t, as("basic bob:b", "orders.new"))
	deferred(t, as("basic bob:b", "orders.secret"), 403, `Permissions Violation for Publish to "orders.secret"`)
	deferred(t, as("basic eve:e", "orders.new"), 401, "Permissions Violation for Subscription") // sends nothing
	require.Len(t, stored(t, js, "ORDERS"), 3)
}

// A server that is killed in the middle has each message that was acknowledged, and gets the others again.
func TestAKilledServerLosesNothing(t *testing.T) {
	s := startServer(t)
	stream(t, s.connect(), natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	r := newRig(t, 0)
	const senders, each = 8, 150
	var wg sync.WaitGroup
	var mu sync.Mutex
	failures, acknowledged := 0, make(chan struct{}, senders*each)
	want := map[string]bool{}
	for i := range senders {
		wg.Go(func() {
			for j := range each {
				payload := fmt.Sprint("order ", i, " ", j)
				mu.Lock()
				m := r.message(payload)
				want[payload] = true
				mu.Unlock()
				for {
					res := r.try(s.url("orders.new"), m)
					if res.Status == 200 {
						break
					}
					mu.Lock()
					failures++
					mu.Unlock()
					time.Sleep(20 * time.Millisecond) // the backoff of a consumer
				}
				acknowledged <- struct{}{}
			}
		})
	}
	for kills := range 3 {
		for range senders * each / 6 {
			<-acknowledged
		}
		s.kill()
		if kills == 1 {
			time.Sleep(200 * time.Millisecond)
		}
		s.start()
	}
	wg.Wait()
	for _, m := range stored(t, s.connect(), "ORDERS") {
		require.True(t, want[string(m.Data)], "%q is lost, or there twice", m.Data)
		delete(want, string(m.Data))
	}
	require.Empty(t, want)
	require.Positive(t, failures)
}

// A server that stands still delays no attempt beyond its deadline, whatever the others of the connection do.
func TestAServerThatStandsStillHoldsNoAttemptBeyondItsDeadline(t *testing.T) {
	s := startServer(t)
	stream(t, s.connect(), natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	r := newRig(t, 0)
	delivered(t, r.try(s.url("orders.new"), r.message("x")))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
	defer func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }()
	var wg sync.WaitGroup
	large := strings.Repeat("x", 1_000_000) // more than buffers hold, so that writes stall
	for i := range 24 {
		m := r.message(large)
		wg.Go(func() {
			within := time.Duration(200+20*i) * time.Millisecond
			res := r.send(t.Context(), s.url("orders.new"), nil, m, within)
			if res.Status != 0 || res.Err == nil || res.Local {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait() // a write without a deadline would wait for ever
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	for r.try(s.url("orders.new"), r.message("y")).Status != 200 {
		time.Sleep(50 * time.Millisecond)
	}
}

func TestConsumersShareAConnectionThatEndsUnused(t *testing.T) {
	s := startServer(t)
	stream(t, s.connect(), natsgo.StreamConfig{Name: "ALL", Subjects: []string{"a", "b"}})
	r := newRig(t, 300*time.Millisecond)
	var wg sync.WaitGroup
	for i := range 20 {
		m := r.message("x")
		wg.Go(func() {
			if res := r.try(s.url([]string{"a", "b"}[i%2]), m); res.Status != 200 {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, r.connections(), int64(1))
	for r.connections() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	delivered(t, r.try(s.url("a"), r.message("y"))) // over a new one
}

func TestTLS(t *testing.T) {
	authority, err := certs.NewAuthority()
	require.NoError(t, err)
	cert, err := authority.Issue(nil)
	require.NoError(t, err)
	chain, key, err := certs.PEM(cert)
	require.NoError(t, err)
	folder := t.TempDir()
	for name, text := range map[string][]byte{"cert.pem": chain, "key.pem": key} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	s := startServer(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q }", folder+"/cert.pem", folder+"/key.pem"))
	trusting := &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}
	js := s.connect(natsgo.Secure(trusting))
	stream(t, js, natsgo.StreamConfig{Name: "ALL", Subjects: []string{"a"}})
	r := newRig(t, 0, egress.Options{TLS: trusting})
	delivered(t, r.try("tls://"+s.addr+"/a", r.message("x")))
	delivered(t, r.try(s.url("a"), r.message("y"))) // the server asks for it
	require.Len(t, stored(t, js, "ALL"), 2)
	stranger := newRig(t, 0)
	for _, url := range []string{"tls://" + s.addr + "/a", s.url("a")} {
		res := stranger.try(url, stranger.message("x"))
		require.Contains(t, egress.Say(res.Err), "signed by an unknown authority")
		require.False(t, res.Sent)
	}
	without := startServer(t)
	res := r.try("tls://"+without.addr+"/a", r.message("x"))
	require.ErrorContains(t, res.Err, "has no TLS")
}

func TestTheRulesForAddressesHoldForServers(t *testing.T) {
	s := startServer(t)
	stream(t, s.connect(), natsgo.StreamConfig{Name: "ALL", Subjects: []string{"a"}})
	public, err := egress.ParsePolicy("public", nil)
	require.NoError(t, err)
	r := newRig(t, 0, egress.Options{Policy: public})
	res := r.try(s.url("a"), r.message("x"))
	require.ErrorIs(t, res.Err, egress.ErrForbidden)
	require.False(t, res.Sent)
	require.Zero(t, res.Status)
	require.Contains(t, egress.Say(res.Err), "a loopback address")
}

func BenchmarkAttempts(b *testing.B) {
	s := startServer(b)
	js := s.connect()
	if _, err := js.AddStream(&natsgo.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		b.Fatal(err)
	}
	r := newRig(b, 0)
	target, err := r.table.Target(egress.ToConsumers, s.url("orders.new"), "")
	if err != nil {
		b.Fatal(err)
	}
	p, k := &policy.Policy{}, &durable.Consumer{No: 7, ID: "k"}
	payload := strings.Repeat("x", 1024)
	var mu sync.Mutex
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			m := r.message(payload)
			mu.Unlock()
			if res := target.Send(b.Context(), push.Attempt{Message: m, Consumer: k, Policy: p, No: 1},
				time.Now().Add(time.Minute)); res.Status != 200 {
				b.Fatalf("%+v", res)
			}
		}
	})
}
