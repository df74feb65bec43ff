package push

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A deaf takes each request at once.
type deaf struct{}

func (deaf) Post(*fasthttp.Request, time.Duration) egress.Result { return egress.Result{Status: 204} }

// direct is a delivery to a target, without a dispatcher that runs.
func direct(target Target) (*delivery, *policy.Policy) {
	d := &Dispatcher{client: fixed{target}, catalogue: catalogue.New(nil, slog.New(slog.DiscardHandler)),
		settings: Settings{Policies: policy.NewBook(policy.Policy{Timeout: time.Minute}), TokenHeader: "T"}}
	v := &delivery{d: d, lane: &lane{}, consumer: &durable.Consumer{ID: "k"}, at: time.Now(),
		msg: &durable.Message{Payload: []byte("body"), ContentType: "text/plain"}}
	return v, d.policy(v.consumer)
}

type fixed struct{ to Target }

func (f fixed) Target(egress.Rule, string, string) (Target, error) { return f.to, nil }

// The table of senders costs an attempt over http nothing: what it allocates is what the request itself does.
func TestASenderCostsAPostNoAllocation(t *testing.T) {
	target := Posting(deaf{})
	v, p := direct(target)
	deadline := time.Now().Add(time.Hour)
	require.Equal(t, 204, v.send(t.Context(), p, deadline).Status)
	ctx := t.Context()
	least := func(f func()) float64 { // of many, because with the race detector pools forget at random
		n := testing.AllocsPerRun(1, f)
		for range 300 {
			n = min(n, testing.AllocsPerRun(1, f))
		}
		return n
	}
	alone := least(func() { v.post(ctx, target.(*posting), deadline) })
	through := least(func() { v.send(ctx, p, deadline) })
	require.Equal(t, alone, through)
}

func BenchmarkThrough(b *testing.B) {
	v, p := direct(Posting(deaf{}))
	deadline := time.Now().Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		v.send(b.Context(), p, deadline)
	}
}

// A postcard is a sender of another protocol.
type postcard struct {
	got []Attempt
	res egress.Result
}

func (c *postcard) Send(_ context.Context, a Attempt, _ time.Time) egress.Result {
	c.got = append(c.got, a)
	return c.res
}

func TestTheSchemeOfACallbackChoosesItsSender(t *testing.T) {
	card := &postcard{}
	client := egress.NewClient(egress.Options{})
	defer client.Close()
	s := NewSenders(Web(client, egress.Policy{}), Sender{Schemes: []string{"card"}, Kind: policy.ByMail,
		Check:  func(string) error { return nil },
		Target: func(egress.Rule, string, string) (Target, error) { return card, nil },
		Fits: func(p *policy.Policy) error {
			if p.Ordered {
				return &policy.FieldError{Field: "ordered", Problem: "is not for cards"}
			}
			return nil
		}}, Absent("the build for pigeons", "pigeon", "dove"))
	for _, absent := range []string{"pigeon:x", "DOVE://x"} {
		require.Zero(t, s.Kind(absent))
		require.ErrorContains(t, s.Check(absent), "the build for pigeons has it")
		_, err := s.Target(egress.ToConsumers, absent, "")
		require.ErrorContains(t, err, "pigeon, dove")
		require.NoError(t, s.Fits(absent, &policy.Policy{Ordered: true}))
	}
	require.NoError(t, s.Fits("card:x", &policy.Policy{}))
	require.ErrorContains(t, s.Fits("card:x", &policy.Policy{Ordered: true}), "not for cards")
	require.NoError(t, s.Fits("http://x/", &policy.Policy{Ordered: true}))
	require.NoError(t, s.Check("CARD:somewhere"))
	require.NoError(t, s.Check("https://example.com/"))
	require.ErrorIs(t, s.Check("http://169.254.169.254/"), egress.ErrForbidden)
	require.Equal(t, policy.ByHTTP, s.Kind("http://x/"))
	require.Equal(t, policy.ByMail, s.Kind("card:x"))
	for _, other := range []string{"nats://x/", "nats:", "", "x", "cards:x", " card:x"} {
		require.Zero(t, s.Kind(other))
		_, err := s.Target(egress.ToConsumers, other, "")
		for _, err := range []error{err, s.Check(other)} {
			var p *problem.Problem
			require.ErrorAs(t, err, &p)
			require.Equal(t, 400, p.Status)
			require.Contains(t, p.Detail, "card, http, https")
		}
	}
	target, err := s.Target(egress.ToConsumers, "card:x", "")
	require.NoError(t, err)
	require.Same(t, card, target)
	target, err = s.Target(egress.ToConsumers, "http://169.254.169.254/", "")
	require.ErrorIs(t, err, egress.ErrForbidden)
	require.Nil(t, target)
}

// A scheme of the broker itself is unknown to clients: it is refused in the words of one that no sender has.
func TestASchemeOfTheBrokerIsUnknownToClients(t *testing.T) {
	card := &postcard{}
	s := NewSenders(Sender{Schemes: []string{"card"}, Kind: policy.ByMail, Check: func(string) error { return nil }},
		Sender{Schemes: []string{"own"}, Kind: policy.ByMail, Own: true,
			Target: func(egress.Rule, string, string) (Target, error) { return card, nil }})
	target, err := s.Target(egress.ToConsumers, "own:SETTING", "")
	require.NoError(t, err)
	require.Same(t, card, target)
	for _, url := range []string{"own:SETTING", "OWN:SETTING"} {
		require.Equal(t, s.Check("other:x"), s.Check(url))
		require.Zero(t, s.Kind(url))
		require.NoError(t, s.Fits(url, &policy.Policy{}))
	}
	require.NotContains(t, s.Check("own:x").Error(), "own")
}

func TestASenderGetsTheMessageWithItsConsumerAndPolicy(t *testing.T) {
	card := &postcard{res: egress.Result{Status: 250}}
	v, p := direct(card)
	v.lease.Attempt = 3
	require.Equal(t, 250, v.send(t.Context(), p, time.Now().Add(time.Hour)).Status)
	require.Equal(t, []Attempt{{Message: v.msg, Consumer: v.consumer, Policy: p, No: 3, delivery: v}}, card.got)
}

// Readers of a stream get neither the token of the consumer nor its credentials with a message.
func TestTheHeadersOfAnAttemptHaveNoSecrets(t *testing.T) {
	v, _ := direct(&postcard{})
	v.consumer.Token, v.msg.Key = "secret-token", "m-1"
	v.msg.Headers = []byte("X-Kind:order\nNats-Rollup:all\n")
	fields := map[string]string{"authorization": "basic ann:secret", "headers": "Nats-TTL: 1h"}
	headers := func() map[string]string {
		record, err := v.d.settings.Policies.Merge("", fields, time.Now())
		require.NoError(t, err)
		v.consumer.Policy = record
		got := map[string]string{}
		a := Attempt{Message: v.msg, Consumer: v.consumer, No: 3, Test: true, delivery: v}
		a.Headers(func(name, value string) { got[name] = value })
		return got
	}
	got := headers()
	for name, value := range got {
		require.NotContains(t, value, "secret", name)
	}
	for name, value := range map[string]string{"X-Kind": "order", "Content-Type": "text/plain", "X-Broker-Test": "true",
		"X-Broker-Message-ID": "m-1", "X-Broker-Consumer-ID": "k", "Nats-TTL": "1h",
		"X-Request-ID": v.job() + "-0"} {
		require.Equal(t, value, got[name], name)
	}
	for _, name := range []string{"Authorization", "T", "User-Agent", "Content-Length", "Host", "Nats-Rollup"} {
		require.NotContains(t, got, name)
	}
	fields["identity"] = "minimal"
	got = headers()
	require.Equal(t, "m-1", got["webhook-id"])
	require.NotContains(t, got, "X-Broker-Message-ID")
}

// What a sender of another protocol says decides, not what its status would be in HTTP.
func TestTheReplyOfASenderDecides(t *testing.T) {
	p := &policy.Policy{MaxRetries: 1}
	require.NoError(t, policy.Set(p, "retryOn", "503"))
	for _, tc := range []struct {
		res     egress.Result
		attempt int
		want    policy.Meaning
		strains bool
	}{
		{egress.Result{Status: 250}, 1, policy.Delivered, false},
		{egress.Result{Status: 410, Reply: egress.Deferred}, 1, policy.Retry, true},
		{egress.Result{Status: 450, Reply: egress.Deferred}, 1, policy.Retry, true},
		{egress.Result{Status: 450, Reply: egress.Deferred}, 2, policy.Exhausted, true},
		{egress.Result{Status: 503, Reply: egress.Refused}, 1, policy.Rejected, false},
		{egress.Result{Status: 550, Reply: egress.Refused}, 1, policy.Rejected, false},
	} {
		got := p.Judge(answerOf(&tc.res), tc.attempt)
		require.Equal(t, tc.want, got.Meaning, "%+v", tc.res)
		require.Equal(t, tc.strains, got.Strains, "%+v", tc.res)
	}
	require.Equal(t, "the server said: no", describeFailure(egress.Result{Status: 550, Words: "the server said: no"}))
	require.Equal(t, "said", describeFailure(egress.Result{Err: egress.ErrTimeout, Words: "said"}))
}
