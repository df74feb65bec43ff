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
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/redisq"
)

// A slowStart needs a while to name the target, and keeps how much time its posts get.
type slowStart struct {
	takes time.Duration
	given time.Duration
}

func (s *slowStart) Target(egress.Rule, string, string) (Target, error) {
	time.Sleep(s.takes)
	return Posting(s), nil
}

func (s *slowStart) Post(_ *fasthttp.Request, timeout time.Duration) egress.Result {
	s.given = timeout
	return egress.Result{Status: 204}
}

// What a process sleeps away between the look at the lease and the request is taken
// from the request's time: else it would be sent on a lease that is over.
func TestAPostThatBeginsLateHasOnlyTheRestOfItsTime(t *testing.T) {
	s := &slowStart{takes: 30 * time.Millisecond}
	d := &Dispatcher{client: s, catalogue: catalogue.New(nil, slog.New(slog.DiscardHandler)),
		settings: Settings{Policies: policy.NewBook(policy.Policy{Timeout: time.Minute}), TokenHeader: "T"}}
	v := &delivery{d: d, lane: &lane{}, consumer: &durable.Consumer{}, msg: &durable.Message{}}
	require.Equal(t, 204, v.send(t.Context(), d.policy(v.consumer), time.Now().Add(20*time.Millisecond)).Status)
	require.Negative(t, s.given)
}

// A count is a queue that counts each request in the rate of its consumer.
type count struct{ Queue }

func (count) Regrant(_ context.Context, _ uint32, l redisq.Lease, _ redisq.Limits) (redisq.Lease, time.Duration,
	error) {
	return l, 0, nil
}

// A consumer that had 95 ms of its four seconds took the message, and got it again: Redis had stood still for
// the rest while it counted the request.
func TestARequestThatIsCountedTooLateIsNotSent(t *testing.T) {
	for left, sent := range map[time.Duration]bool{90 * time.Second: true, 40 * time.Second: false} {
		s := &slowStart{}
		d := &Dispatcher{client: s, queue: count{}, catalogue: catalogue.New(nil, slog.New(slog.DiscardHandler)),
			settings: Settings{Policies: policy.NewBook(policy.Policy{Timeout: 100 * time.Second,
				RateLimit: policy.Rate{N: 1, Per: time.Hour}}), TokenHeader: "T"}}
		v := &delivery{d: d, lane: &lane{}, consumer: &durable.Consumer{}, msg: &durable.Message{},
			at: time.Now().Add(-time.Hour)}
		res := v.send(t.Context(), d.policy(v.consumer), time.Now().Add(left))
		if sent {
			require.Equal(t, 204, res.Status)
			continue
		}
		require.ErrorIs(t, res.Err, errLate)
		require.True(t, res.Local, "its job goes back, and no attempt counts")
		require.Zero(t, s.given)
	}
}
