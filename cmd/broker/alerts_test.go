package main

import (
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A mailServer is an SMTP server that keeps what it takes.
type mailServer struct {
	t    testing.TB
	addr string

	mu    sync.Mutex
	says  error    // to each mail; nil: it takes them
	mails []string // text of each
	ids   []string // Message-ID of each

	refused int
}

// newMailServer returns a server on loopback with one user.
func newMailServer(t testing.TB) *mailServer {
	m := &mailServer{t: t}
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{m: m}, nil }))
	s.AllowInsecureAuth = true // on loopback
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m.addr = l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return m
}

// about returns the mails that contain a text.
func (m *mailServer) about(text string) (mails, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, mail := range m.mails {
		if strings.Contains(mail, text) {
			mails, ids = append(mails, mail), append(ids, m.ids[i])
		}
	}
	return mails, ids
}

type mailSession struct {
	m      *mailServer
	authed bool
	to     []string
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "penstock" || password != "p@ss" {
			return smtp.ErrAuthFailed
		}
		s.authed = true
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if !s.authed {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = append(s.to, to)
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	msg, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	if err != nil {
		return err
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.says != nil {
		s.m.refused++
		return s.m.says
	}
	s.m.mails = append(s.m.mails, strings.Join(s.to, ",")+"\n"+msg.Header.Get("Subject")+"\n"+string(body))
	s.m.ids = append(s.m.ids, msg.Header.Get("Message-ID"))
	return nil
}

func (s *mailSession) Reset()        { s.to = nil }
func (s *mailSession) Logout() error { return nil }

// alertsAt are the alerts about a channel that a sink got, with their requests.
func alertsAt(t testing.TB, s *sink, channel string) (alerts []apitype.Alert, requests []received) {
	t.Helper()
	for _, r := range s.all() {
		var a apitype.Alert
		require.NoError(t, json.Unmarshal([]byte(r.body), &a), r.body)
		if a.ChannelID == channel {
			strictjson.Decode(t, []byte(r.body), &a)
			alerts, requests = append(alerts, a), append(requests, r)
		}
	}
	return alerts, requests
}

// events are the names of alerts, in their order.
func events(alerts []apitype.Alert) (names []string) {
	for _, a := range alerts {
		names = append(names, a.Event)
	}
	return names
}

// attach adds a push consumer of the alerts.
func (p *process) attach(id string, s *sink) {
	p.t.Helper()
	require.Equal(p.t, 201, p.put("/channel/~alerts/consumer/"+id, "token", id+"-token", "callbackUrl", s.URL).status)
}

const alertSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// One alert about each transition comes to a consumer of ~alerts, by mail and to the webhook.
func TestEachTransitionIsAlertedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		mails, hook, ops := newMailServer(t), newSink(t, nil), newSink(t, nil)
		p := w.start("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s", "BROKER_RETRY_BACKOFF=100ms",
			"BROKER_PUBLIC_URL=https://broker.example/x/",
			"BROKER_ALERT_SMTP_URL=smtp://penstock:p%40ss@"+mails.addr+"?tls=none",
			"BROKER_ALERT_FROM=Penstock <broker@example.com>", "BROKER_ALERT_TO=ops@example.com,boss@example.com",
			"BROKER_ALERT_WEBHOOK_URL="+hook.URL+"/in?key=s3cret", "BROKER_ALERT_WEBHOOK_SECRET="+alertSecret)
		p.attach("ops", ops)
		p.put("/channel/~alerts/consumer/desk", "token", "desk-token", "type", "pull")
		status := atomic.Int32{}
		status.Store(500)
		target := newSink(t, func(int, received) int { return int(status.Load()) })
		s := p.stage(t, "k="+target.URL)
		s.put(s.path("/consumer/k"), "tombstoneAfter", "2", "maxRetries", "1000", "backoff", "constant:100ms")
		at := s.publish("body")
		dead := s.awaitState("k", "DEAD")
		await := func(want ...string) (got []apitype.Alert) {
			t.Helper()
			eventually(t, "the alerts "+fmt.Sprint(want), func() bool {
				got, _ = alertsAt(t, ops, s.channel)
				return len(got) >= len(want)
			})
			require.Equal(t, want, events(got))
			return got
		}
		first := await("consumer.dead")[0]
		link := first.ReviveURL
		require.Equal(t, apitype.Alert{Event: "consumer.dead", ChannelID: s.channel, ConsumerID: "k", At: dead.StateChangedAt,
			Reason: dead.StateReason, ReviveURL: link}, first)

		// The link of the alert revives, once; the failure of the probe is another death, with
		// another link.
		path, ok := strings.CutPrefix(link, "https://broker.example/x")
		require.True(t, ok, link)
		require.Equal(t, 200, s.do("GET", path, "").status)
		require.Equal(t, 200, s.do("POST", path, "").status)
		second := await("consumer.dead", "consumer.dead")[1]
		require.Contains(t, second.Reason, "the probe")
		require.NotEqual(t, link, second.ReviveURL)
		require.Equal(t, 410, s.do("POST", path, "").status)
		status.Store(204)
		s.change("k", "revive")
		s.awaitStatus(at, "DELIVERED")
		revived := await("consumer.dead", "consumer.dead", "consumer.revived")[2]
		require.Equal(t, s.consumer("k").StateChangedAt, revived.At)
		require.NotEmpty(t, revived.Reason)
		require.Empty(t, revived.ReviveURL)

		s.change("k", "pause") // no alert
		s.change("k", "resume")
		status.Store(410)
		at = s.publish("another")
		s.awaitState("k", "GONE")
		status.Store(204)
		require.Contains(t, await("consumer.dead", "consumer.dead", "consumer.revived", "consumer.gone")[3].ReviveURL,
			"/channel/"+s.channel+"/consumer/k/revive/")
		s.change("k", "revive")
		s.awaitStatus(at, "DELIVERED")
		all := []string{"consumer.dead", "consumer.dead", "consumer.revived", "consumer.gone", "consumer.revived"}
		published := await(all...)

		posted(t, s, hook, published)
		mailed(t, s, mails, published)
		time.Sleep(time.Second)
		await(all...)
		list := s.do("GET", "/channel/~alerts/messages", "").body
		require.Equal(t, 5, strings.Count(list, "/message/alert-"))
		_, location, _ := strings.Cut(list, `"/channel/~alerts/message/`)
		location, _, _ = strings.Cut(location, `"`)
		require.Contains(t, s.message("/channel/~alerts/message/"+location).Payload, `"Event":"consumer.`)
		require.Contains(t, s.do("GET", "/metrics", "").body, `penstock_alerts_total{event="consumer.revived"} 2`)
		for _, secret := range []string{"p%40ss", "p@ss", "s3cret", "MfKQ9r8G"} {
			require.NotContains(t, p.log.String(), secret)
		}
		reservedChannel(t, s)
	})
}

// posted checks what the webhook got: each alert once, signed.
func posted(t *testing.T, s *stage, hook *sink, want []apitype.Alert) {
	var got []apitype.Alert
	var requests []received
	eventually(t, "the webhook", func() bool {
		got, requests = alertsAt(t, hook, s.channel)
		return len(got) >= len(want)
	})
	require.Equal(t, want, got)
	verifier, err := standardwebhooks.NewWebhook(alertSecret)
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, r := range requests {
		require.NoError(t, verifier.Verify([]byte(r.body), r.header))
		require.Equal(t, "application/json", r.header.Get("Content-Type"))
		ids[r.header.Get("webhook-id")] = true
	}
	require.Len(t, ids, len(want))
}

// mailed checks that each alert is in one mail.
func mailed(t *testing.T, s *stage, server *mailServer, want []apitype.Alert) {
	for _, a := range want {
		at, err := a.At.MarshalJSON()
		require.NoError(t, err)
		stamp := "At:       " + strings.Trim(string(at), `"`)
		var mails []string
		eventually(t, "the mail about "+a.Event, func() bool { mails, _ = server.about(stamp); return len(mails) > 0 })
		require.Len(t, mails, 1)
		require.Contains(t, mails[0], "ops@example.com,boss@example.com\n[Penstock] ")
		require.Contains(t, mails[0], "Channel:  "+s.channel)
		require.Contains(t, mails[0], a.Event)
		require.Contains(t, mails[0], a.ReviveURL)
	}
	_, ids := server.about(s.channel)
	distinct := map[string]bool{}
	for _, id := range ids {
		distinct[id] = true
	}
	require.Len(t, distinct, len(ids), "each mail has a Message-ID of its own")
}

// reservedChannel checks that nobody else publishes to ~alerts.
func reservedChannel(t *testing.T, s *stage) {
	r := s.do("GET", "/channel/~alerts", "")
	require.Equal(t, 200, r.status)
	token := r.json(t)["Token"].(string)
	r = s.do("GET", "/channel/~alerts/consumer/desk/queued-jobs?limit=100", "", "X-Broker-Channel-Token", token,
		"X-Broker-Consumer-Token", "desk-token")
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, 5, strings.Count(r.body, `"Event\":`), r.body)
	tokens := []string{"X-Broker-Channel-Token", token, "X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", "p-token"}
	requireProblem(t, s.do("POST", "/channel/~alerts/broadcast", "forged", tokens...), 403, "system_channel")
	requireProblem(t, s.do("POST", "/channel/~alerts/batch", `{"Payload":"forged"}`, append(tokens, "Content-Type",
		"application/x-ndjson")...), 403, "system_channel")
	requireProblem(t, s.do("PUT", "/channel/~alerts", "name=mine", "Content-Type", "application/x-www-form-urlencoded"),
		400, "reserved_name")
	require.Contains(t, s.do("GET", "/channels", "").body, "/channel/~alerts")
}

// However many brokers there are, each death is alerted once: exactly while all of them live. When
// one of them dies in the middle of it, the webhook may get an alert again, under the same ID.
func TestSeveralBrokersAlertOnce(t *testing.T) {
	parallel(t)
	const deaths = 20
	hook, ops := newSink(t, nil), newSink(t, nil)
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=5s",
		"BROKER_ALERT_WEBHOOK_URL="+hook.URL)
	a, b := w.start(), w.start()
	a.attach("ops", ops)
	target := newSink(t, func(int, received) int { return 500 })
	var consumers []string
	for i := range deaths {
		consumers = append(consumers, fmt.Sprintf("k%d=%s", i, target.URL))
	}
	die := func() *stage { // of failures at both brokers
		s := a.stage(t, consumers...)
		for i := range deaths {
			s.put(s.path(fmt.Sprint("/consumer/k", i)), "tombstoneAfter", "3", "maxRetries", "1000", "backoff", "constant:100ms")
		}
		for i := range 10 {
			s.publish(fmt.Sprint("a ", i))
			s.on(b).publish(fmt.Sprint("b ", i))
		}
		return s
	}
	alerted := func(s *stage, published int) {
		for _, sink := range []*sink{ops, hook} {
			about, ids := map[string]bool{}, map[string]bool{}
			eventually(t, "all alerts", func() bool {
				got, requests := alertsAt(t, sink, s.channel)
				for i, a := range got {
					about[a.ConsumerID] = true
					ids[requests[i].header.Get("webhook-id")] = true
				}
				return len(about) == deaths
			})
			if sink == hook {
				require.Len(t, ids, deaths)
			}
		}
		time.Sleep(3 * time.Second) // the other broker looks after two
		require.Equal(t, published, strings.Count(s.do("GET", "/channel/~alerts/messages?size=100", "").body,
			"/message/alert-dead-"))
	}

	alerted(die(), deaths)
	require.Equal(t, deaths, hook.count())

	s := die()
	eventually(t, "the first alert", func() bool { got, _ := alertsAt(t, ops, s.channel); return len(got) > 0 })
	b.kill()
	alerted(s, 2*deaths)
}

// A broker that dies between the message on the channel and the end of its row leaves one
// message, and the webhook gets the alert all the same.
func TestFaultAnAlertIsPublishedOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		hook, target := newSink(t, nil), newSink(t, func(int, received) int { return 410 })
		w.with(quick...).with("BROKER_ALERT_WEBHOOK_URL=" + hook.URL)
		p := w.start(envKill + "=" + failpoint.AfterAlert + ":1")
		s := p.stage(t, "k="+target.URL)
		s.publish("body")
		p.awaitEnd()
		s = s.on(w.start())
		eventually(t, "the webhook", func() bool { return hook.count() == 1 })
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, hook.count())
		require.Equal(t, 1, strings.Count(s.do("GET", "/channel/~alerts/messages", "").body, "/message/alert-gone-"))
	})
}

// Dead letters that grow are alerted once until they have stopped, which is alerted, too.
func TestGrowingDeadLettersAreAlerted(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		ops, target := newSink(t, nil), newSink(t, func(int, received) int { return 500 })
		p := w.with(quick...).with("BROKER_MAX_RETRIES=0").start("BROKER_ALERT_DLQ_GROWTH=5", "BROKER_ALERT_DLQ_WINDOW=4s")
		p.attach("ops", ops)
		s := p.stage(t, "k="+target.URL, "few="+target.URL)
		s.put(s.path("/consumer/few"), "maxRetries", "1000", "backoff", "constant:1h")
		for round := range 2 {
			for i := range 8 {
				s.publish(fmt.Sprint(round, " ", i))
			}
			eventually(t, "the alert", func() bool { return ops.count() == 2*round+1 })
			for i := range 6 { // it goes on growing
				s.publish(fmt.Sprint(round, " more ", i))
				time.Sleep(500 * time.Millisecond)
			}
			require.Equal(t, 2*round+1, ops.count())
			eventually(t, "the end", func() bool { return ops.count() == 2*round+2 })
		}
		got, _ := alertsAt(t, ops, s.channel)
		require.Equal(t, []string{"dlq.growing", "dlq.growing.over", "dlq.growing", "dlq.growing.over"}, events(got))
		require.Equal(t, "k", got[0].ConsumerID)
		require.Contains(t, got[0].Reason, "jobs became dead letters within 4s; that of the newest message: "+
			"attempts_exhausted: attempt 1 of 1 failed: status 500")
	})
}
