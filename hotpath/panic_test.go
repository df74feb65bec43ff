package hotpath

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/problem"
	"github.com/penstock-broker/penstock/redisq"
)

func TestAPanicOfACombinedCallFailsThoseInIt(t *testing.T) {
	calls := 0
	c := combiner[int, int]{call: func(context.Context, uint32, []int) ([]int, error) {
		if calls++; calls == 1 {
			panic("boom")
		}
		return []int{7}, nil
	}}
	before := panics(t, "combined call")
	_, err := c.Ask(t.Context(), 1, 1)
	require.Equal(t, 500, problem.From(err).Status)
	require.Equal(t, 1.0, panics(t, "combined call")-before)
	got, err := c.Ask(t.Context(), 1, 1)
	require.NoError(t, err)
	require.Equal(t, 7, got)
}

func TestAPanicOfAnInsertMakesItsMessagesUnknown(t *testing.T) {
	f := &fakeStore{insert: func(call int, batch []*durable.Message) []error {
		if call == 0 {
			panic("boom")
		}
		return make([]error, len(batch))
	}}
	c, committed, stop := startCommitter(t, f, time.Second)
	require.ErrorIs(t, c.Add(textWrite("a")), durable.ErrOutcomeUnknown)
	require.NoError(t, c.Add(textWrite("b")))
	stop()
	require.Equal(t, 1, committed())
}

// What is stored is acknowledged, whether or not it came to the queue: the
// reconciler finds it.
func TestAPanicBehindTheCommitLeavesTheAnswer(t *testing.T) {
	c, _, _ := startCommitter(t, &fakeStore{}, time.Second)
	c.committed = func([]*durable.Message) { panic("boom") }
	require.NoError(t, c.Add(textWrite("a")))
	require.NoError(t, c.Add(textWrite("b")))
}

// panicQueue is a Redis whose first answer cannot be read.
type panicQueue struct {
	slowQueue
	again []string
}

func (*panicQueue) EnqueueMany(context.Context, []redisq.Batch) ([]redisq.Enqueued, []error) {
	panic("boom")
}

func (q *panicQueue) EnqueueAgain(_ context.Context, batches []redisq.Batch) []error {
	for _, b := range batches {
		q.again = append(q.again, b.Epoch)
	}
	return make([]error, len(batches))
}

func TestAPanicOfAnOfferRepeatsItWithCare(t *testing.T) {
	q := &panicQueue{}
	f, msg := oneToFanOut(t, q)
	require.False(t, f.flush(t.Context()))
	_, generation := f.payloads.Get(msg.ID)
	require.Zero(t, generation, "it may be known to Redis: not fresh")
	require.True(t, f.flush(t.Context()))
	require.Equal(t, []string{"now"}, q.again)
}

// panicTarget cannot be posted to.
type panicTarget struct{}

func (panicTarget) Target(string, string) (Target, error) { return panicTarget{}, nil }

func (panicTarget) Post(*fasthttp.Request, time.Duration) egress.Result { panic("boom") }

// The attempt failed, with a reason; the next one comes after its wait, and the last
// one leaves a dead letter. The slot is free.
func TestAPanicOfADeliveryIsAFailedAttempt(t *testing.T) {
	r := newLossRig(t)
	r.client = panicTarget{}
	r.Learn(pushConsumer())
	f, msg := oneToPush(t, r.redisq, r.dispatcher, func(uint32) {})
	r.looked()
	require.True(t, f.flush(t.Context()))
	r.eventually(func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.recorded) == 1
	})
	require.Equal(t, durable.OutcomeRetry, r.recorded[0].Kind)
	require.Equal(t, errDelivery.Error(), r.recorded[0].Error)
	r.eventually(func() bool { return r.holding() == 0 && r.standings([]ident.ID{msg.ID})[0].State != redisq.Leased })
	r.eventually(func() bool {
		r.dispatcher.mu.Lock()
		defer r.dispatcher.mu.Unlock()
		return r.slots == r.options.Concurrency
	})
}

// panicClaims is a Redis whose first answer to a claim cannot be read.
type panicClaims struct {
	Claimer
	left int // touched by one lane
}

func (q *panicClaims) Claim(ctx context.Context, consumer uint32, n int, lease time.Duration) (redisq.Claim, error) {
	if q.left--; q.left >= 0 {
		panic("boom")
	}
	return q.Claimer.Claim(ctx, consumer, n, lease)
}

func TestAPanicOfAClaimKeepsNoSlot(t *testing.T) {
	r := newLossRig(t)
	d := newDispatcher(&dispatcher{queue: &panicClaims{Claimer: r.redisq, left: 1}, verifier: verifierOf(nil, 1), outcomes: r.outcomes, admission: r.admission, options: r.options,
		touched: func(uint32) {}, refill: func(uint32) {}, log: r.log, metrics: r.metrics})
	l := &lane{no: 1, limit: 2}
	l.consumer.Store(pushConsumer())
	room := l.room()
	require.False(t, d.claim(t.Context(), l))
	require.Equal(t, d.options.Concurrency, d.slots)
	require.Equal(t, room, l.room())
	l.stopTimer()
	d.claim(t.Context(), l)
	require.Equal(t, d.options.Concurrency, d.slots)
}

// panics is how many panics of a part were counted.
func panics(t *testing.T, where string) (n float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(guard.Panics)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == where {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}
