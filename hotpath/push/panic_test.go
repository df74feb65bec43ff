package push

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/redisq"
)

// panicTarget cannot be posted to.
type panicTarget struct{}

func (panicTarget) Target(egress.Rule, string, string) (Target, error) {
	return Posting(panicTarget{}), nil
}

func (panicTarget) Post(*fasthttp.Request, time.Duration) egress.Result { panic("boom") }

// The attempt failed, with a reason; the next one comes after its wait, and the last
// one leaves a dead letter. The slot is free.
func TestAPanicOfADeliveryIsAFailedAttempt(t *testing.T) {
	r := newLossRig(t)
	r.Dispatcher.client = panicTarget{}
	r.Learn(pushConsumer())
	f, msg := oneToPush(t, r.redisq, r.Dispatcher, func(uint32) {})
	r.looked()
	require.True(t, f.Flush(t.Context()))
	r.eventually(func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.recorded) == 1
	})
	require.Equal(t, durable.OutcomeRetry, r.recorded[0].Kind)
	require.Equal(t, errDelivery.Error(), r.recorded[0].Error)
	r.eventually(func() bool { return r.holding() == 0 && r.standings([]ident.ID{msg.ID})[0].State != redisq.Leased })
	r.eventually(func() bool {
		r.Dispatcher.mu.Lock()
		defer r.Dispatcher.mu.Unlock()
		return r.slots == r.settings.Concurrency
	})
}

// panicClaims is a Redis whose first answer to a claim cannot be read.
type panicClaims struct {
	Queue
	left int // touched by one lane
}

func (q *panicClaims) Claim(ctx context.Context, consumer uint32, n int, lease time.Duration,
	limits redisq.Limits) (redisq.Claim, error) {
	if q.left--; q.left >= 0 {
		panic("boom")
	}
	return q.Queue.Claim(ctx, consumer, n, lease, limits)
}

func TestAPanicOfAClaimKeepsNoSlot(t *testing.T) {
	r := newLossRig(t)
	d := New(Options{Queue: &panicClaims{Queue: r.redisq, left: 1}, Verifier: verifierOf(nil, 1), Outcomes: r.outcomes,
		Pace: r.pace, Settings: r.settings,
		Touched: func(uint32) {}, Refill: func(uint32) {}, Log: r.log, Metrics: r.metrics})
	l := &lane{no: 1, limit: 2}
	l.consumer.Store(pushConsumer())
	room := l.room()
	require.False(t, d.claim(t.Context(), l))
	require.Equal(t, d.settings.Concurrency, d.slots)
	require.Equal(t, room, l.room())
	l.stopTimer()
	d.claim(t.Context(), l)
	require.Equal(t, d.settings.Concurrency, d.slots)
}
