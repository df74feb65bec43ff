package push

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/redisq"
)

// usedUp returns a rig that does not run, with the lane of a consumer whose concurrency keeps a job
// back.
func usedUp(t *testing.T) (*lossRig, *lane) {
	r := idleRig()
	r.settings.Policies = policy.NewBook(policy.Policy{Timeout: 10 * time.Second, Concurrency: 1})
	r.Learn(pushConsumer())
	l := r.lanes[1]
	l.exact.Store(true)
	l.full.Store(true)
	r.asleep(l)
	return r, l
}

// asleep takes the lane out of the run queue, as its server does.
func (r *lossRig) asleep(lanes ...*lane) {
	for _, l := range lanes {
		l.queued = false
	}
	r.run = nil
}

// A claim before Redis has ended the lease would find the concurrency still used up, and no event
// would follow it.
func TestTheEndOfALeaseWakesTheLaneAfterRedisKnowsIt(t *testing.T) {
	r, l := usedUp(t)
	v := &delivery{d: r.Dispatcher, lane: l}
	r.inFlight.add(v)
	v.Ended(true)
	require.Empty(t, r.run)
	v.Done(nil)
	require.Equal(t, []*lane{l}, r.run)

	r.asleep(l)
	l.full.Store(false)
	v.Done(nil)
	require.Empty(t, r.run, "the concurrency keeps no job back")
}

// Redis counts the leases of a consumer and of its replay together.
func TestTheEndOfALeaseWakesTheReplayAndItsConsumer(t *testing.T) {
	r, l := usedUp(t)
	k := pushConsumer()
	k.No, k.Replay = 2, &durable.Replay{ConsumerNo: 1}
	r.Learn(k)
	replay := r.lanes[2]
	replay.exact.Store(true)
	for _, c := range []struct {
		full, ended *lane
	}{{replay, l}, {l, replay}} {
		l.full.Store(c.full == l)
		replay.full.Store(c.full == replay)
		r.asleep(l, replay)
		(&delivery{d: r.Dispatcher, lane: c.ended}).Done(nil)
		require.Equal(t, []*lane{c.full}, r.run)
	}
}

// A meanwhileQueue grants nothing, because the concurrency is used up, and lets something happen
// before its answer arrives.
type meanwhileQueue struct {
	Queue
	meanwhile func()
}

func (meanwhileQueue) Incarnation() uint64 { return 0 }

func (q meanwhileQueue) Claim(context.Context, uint32, int, time.Duration, redisq.Limits) (redisq.Claim, error) {
	q.meanwhile()
	return redisq.Claim{Ready: 1, Limited: redisq.ConcurrencyLimit}, nil
}

func TestALeaseThatEndsBeforeTheClaimIsAnsweredIsNotMissed(t *testing.T) {
	for _, ends := range []bool{true, false} {
		r, l := usedUp(t)
		l.full.Store(false) // nothing was kept back before this claim
		r.queue = meanwhileQueue{meanwhile: func() {
			if ends {
				(&delivery{d: r.Dispatcher, lane: l}).Done(nil)
			}
		}}
		require.Equal(t, ends, r.claim(t.Context(), l))
		require.True(t, l.full.Load())
	}
}

// addedOutcomes keep what is added.
type addedOutcomes struct{ added []outcome.Entry }

func (a *addedOutcomes) Add(r outcome.Entry) { a.added = append(a.added, r) }
func (*addedOutcomes) Room() int             { return claimMax }

// Of two jobs one has no time to live left. It ends without a request, and the other may then be
// claimed.
func TestTheEndOfAnExpiredJobWakesTheLane(t *testing.T) {
	r, l := usedUp(t)
	added := &addedOutcomes{}
	r.outcomes = added
	r.verifier = verifierOf(r, 1<<20)
	r.verifier.NowMs = func() int64 { return 10_000 }
	r.verifier.Policies = policy.NewBook(policy.Policy{TTL: time.Second})
	r.nowMs = r.verifier.NowMs
	l.reserve(1)
	r.verify(t.Context(), l, pushConsumer(), claimed{leases: []redisq.Lease{{ID: ident.AtMillis(1), Token: "t",
		Attempt: 1}}})
	require.Len(t, added.added, 1)
	require.Equal(t, outcome.Awaited, added.added[0].Urgency)
	added.added[0].Sink.Ended(true)
	require.Empty(t, r.run)
	added.added[0].Sink.Done(nil)
	require.Equal(t, []*lane{l}, r.run)
}

// An ackQueue takes acknowledgements.
type ackQueue struct {
	Queue
	acked func()
}

func (q ackQueue) AckLeases(_ context.Context, _ uint32, leases []redisq.Lease) ([]bool, error) {
	q.acked()
	return make([]bool, len(leases)), nil
}

// A claimed job turns out to be over in the store. Its lease ends, and another job may be claimed.
func TestTheEndOfAJobThatWasOverWakesTheLane(t *testing.T) {
	r, l := usedUp(t)
	asked := false
	r.queue = ackQueue{acked: func() {
		asked = true
		require.Empty(t, r.run, "Redis does not know it yet")
	}}
	r.verifier = verifierOf(r, 1<<20)
	r.known = map[ident.ID]durable.JobState{ident.AtMillis(1): {Status: durable.Delivered}}
	r.asked.Store(1) // known is what the store says from the second question on
	l.reserve(1)
	r.verify(t.Context(), l, pushConsumer(), claimed{leases: []redisq.Lease{{ID: ident.AtMillis(1), Token: "t",
		Attempt: 1}}})
	require.True(t, asked)
	require.Equal(t, []*lane{l}, r.run)
}

// An outcome lingers for others, unless a job of the consumer may wait for it.
func TestOutcomesThatJobsWaitForAreAwaited(t *testing.T) {
	keyed := durable.OrderingLine("key", nil)
	for name, c := range map[string]struct {
		policy  policy.Policy
		headers []byte
		full    bool
		want    outcome.Urgency
	}{
		"nothing waits":                       {policy.Policy{}, nil, false, outcome.Deferrable},
		"the concurrency is used up":          {policy.Policy{Concurrency: 1}, nil, true, outcome.Awaited},
		"a limit that keeps nothing back":     {policy.Policy{Concurrency: 9}, nil, false, outcome.Deferrable},
		"a key of an ordered consumer":        {policy.Policy{Ordered: true}, keyed, false, outcome.Awaited},
		"an ordered consumer without a key":   {policy.Policy{Ordered: true}, nil, false, outcome.Deferrable},
		"a key of one that is not ordered":    {policy.Policy{}, keyed, false, outcome.Deferrable},
		"a key, and a full lane of unordered": {policy.Policy{Concurrency: 1}, keyed, true, outcome.Awaited},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := usedUp(t)
			r.settings.Policies = policy.NewBook(c.policy)
			r.nowMs, r.pace, r.log = func() int64 { return 1 }, noPace{}, slog.New(slog.DiscardHandler)
			l.full.Store(c.full)
			v := &delivery{d: r.Dispatcher, lane: l, consumer: pushConsumer(), lease: redisq.Lease{Attempt: 1},
				msg: &durable.Message{ID: ident.AtMillis(1), ProducerNo: 1, Headers: c.headers}}
			for _, meaning := range []policy.Meaning{policy.Delivered, policy.Retry} {
				res := v.outcome(egress.Result{Status: 200}, policy.Verdict{Meaning: meaning})
				require.Equal(t, c.want, res.Urgency)
			}
		})
	}
}
