package push

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/fanout"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// pushConsumer is consumer 1 of a lossRig.
func pushConsumer() *durable.Consumer {
	return &durable.Consumer{No: 1, ChannelNo: 1, ID: "k", Type: durable.Push, Version: 1}
}

// A job that nothing waits before is leased while it is offered, and goes out: no
// claim, no question to the store, and nobody else is told of it.
func TestAFreshJobGoesOutWithoutAClaim(t *testing.T) {
	r := newLossRig(t)
	r.Learn(pushConsumer())
	var woken atomic.Int64
	f, msg := oneToPush(t, r.redisq, r.Dispatcher, func(uint32) { woken.Add(1) })
	r.looked()

	require.True(t, f.Flush(t.Context()))
	r.eventually(func() bool { return r.posts() == 1 })
	require.Equal(t, redisq.Leased, r.standings([]ident.ID{msg.ID})[0].State)
	require.Zero(t, woken.Load())
	require.Zero(t, r.asked.Load())

	r.answer <- 204
	r.eventually(func() bool { return r.standings([]ident.ID{msg.ID})[0].State == redisq.Missing })
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.recorded, 1)
	require.Equal(t, durable.OutcomeDelivered, r.recorded[0].Kind)
}

// What Redis leased in a state that this broker has not seen before is delivered
// only after the store was asked.
func TestAReservedJobOfAnotherStateIsVerified(t *testing.T) {
	r := newLossRig(t)
	r.Learn(pushConsumer())
	f, _ := oneToPush(t, r.redisq, r.Dispatcher, func(uint32) {})
	r.looked()
	r.server.FlushAll()

	require.True(t, f.Flush(t.Context()))
	r.eventually(func() bool { return r.posts() == 1 })
	require.EqualValues(t, 1, r.asked.Load())
	r.answer <- 204
}

// Redis loses its memory between the lease and the delivery, which another call
// notices. The lease is held as those of the deliveries under way are, also when the
// store takes its time to tell about the job.
func TestAReservedLeaseThatIsLostOnItsWayIsRestored(t *testing.T) {
	r := newLossRig(t)
	r.tells = make(chan struct{})
	b, lease := r.reserved()
	r.server.FlushAll()
	r.SuspectLoss(1)
	b.Start(t.Context(), []redisq.Lease{lease})
	r.eventually(func() bool { return r.asked.Load() == 1 && r.settled() })
	require.Equal(t, redisq.Missing, r.standings([]ident.ID{lease.ID})[0].State)
	close(r.tells)

	r.eventually(func() bool { return r.posts() == 1 })
	r.eventually(func() bool { return r.standings([]ident.ID{lease.ID})[0].Token == lease.Token })
	r.answer <- 204
}

// Redis loses its memory while the store is asked, and another broker gets the job: this broker does
// not send it, whether the other one still has it or has delivered it.
func TestAJobThatAnotherBrokerGotWhileTheStoreWasAskedIsNotSent(t *testing.T) {
	for _, delivered := range []bool{false, true} {
		r := newLossRig(t)
		r.tells = make(chan struct{})
		b, lease := r.reserved()
		ids := []ident.ID{lease.ID}
		r.known = map[ident.ID]durable.JobState{lease.ID: {}}
		if delivered {
			r.known[lease.ID] = durable.JobState{Status: durable.Delivered}
		}
		r.server.FlushAll()
		b.Start(t.Context(), []redisq.Lease{lease})
		r.eventually(func() bool { return r.asked.Load() == 1 })
		_, err := r.other.Enqueue(t.Context(), 1, []redisq.Job{{ID: lease.ID}}, redisq.Recovered)
		require.NoError(t, err)
		c, err := r.other.Claim(t.Context(), 1, 1, time.Minute, redisq.Limits{})
		require.NoError(t, err)
		require.Len(t, c.Leases, 1)
		if delivered {
			_, err = r.other.Ack(t.Context(), 1, ids)
			require.NoError(t, err)
		}
		r.SuspectLoss(1)
		close(r.tells)
		r.eventually(func() bool { return r.asked.Load() == 2 && r.settled() })
		if delivered {
			r.eventually(func() bool { return r.standings(ids)[0].State == redisq.Missing })
		} else {
			require.Equal(t, c.Leases[0].Token, r.standings(ids)[0].Token)
		}
		require.Zero(t, r.posts())
		require.Zero(t, r.holding())
	}
}

// Room is reserved only where a claim would take all of the jobs at once.
func TestWhatIsNotReserved(t *testing.T) {
	for name, c := range map[string]struct {
		before   func(r *lossRig)
		jobs     int
		reserved bool
	}{
		"as many as there is room for":  {func(*lossRig) {}, 3, true},
		"one more":                      {func(*lossRig) {}, 4, false},
		"room that is reserved already": {func(r *lossRig) { r.Reserve(1, 2) }, 2, false},
		"something waits":               {func(r *lossRig) { r.lanes[1].leftMore(true, true) }, 1, false},
		"half of the process is busy":   {func(r *lossRig) { r.slots = 5 }, 3, false},
		"outcomes wait for the store":   {func(r *lossRig) { r.outcomes = fullOutcomes{} }, 1, false},
		"the dispatcher has stopped":    {func(r *lossRig) { r.stopped = true }, 1, false},
		"a pull consumer now": {func(r *lossRig) {
			r.Learn(&durable.Consumer{No: 1, ChannelNo: 1, ID: "k", Type: durable.Pull, Version: 2})
		}, 1, false},
		"a deleted consumer": {func(r *lossRig) {
			r.Learn(&durable.Consumer{No: 1, ChannelNo: 1, ID: "k", State: durable.StateDeleted, Version: 2})
			r.Learn(&durable.Consumer{No: 3, ChannelNo: 1, ID: "k", State: durable.StateDeleted, Version: 2}) // never known
			if len(r.lanes) != 0 {
				panic("a lane is left")
			}
		}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := idleRig()
			r.Learn(pushConsumer())
			c.before(r)
			b := r.Reserve(1, c.jobs)
			require.Equal(t, c.reserved, b != nil)
			require.Nil(t, r.Reserve(2, 1), "nobody knows that consumer")
		})
	}
}

// fullOutcomes have room for fewer outcomes than one claim may bring.
type fullOutcomes struct{}

func (fullOutcomes) Add(outcome.Entry) {}
func (fullOutcomes) Room() int         { return claimMax - 1 }

// idleRig is a lossRig whose dispatcher does not run.
func idleRig() *lossRig {
	r := &lossRig{}
	metrics := metrics.New(prometheus.NewRegistry())
	r.Dispatcher = New(Options{Queue: redisq.New(nil, redisq.Options{}), Metrics: metrics,
		Verifier: verifierOf(nil, 1<<20),
		Settings: Settings{Policies: policy.NewBook(policy.Policy{Timeout: 10 * time.Second}), Lease: time.Minute,
			Concurrency: 100, PerConsumer: 2}})
	r.outcomes = outcome.New(outcome.Options{Metrics: metrics})
	return r
}

// Room that was reserved for nothing is given back, whether Redis took the jobs or did
// not answer, and the lane looks again, once: a claim may have found no room.
func TestAReservationForNothingIsGivenBack(t *testing.T) {
	for name, queue := range map[string]fanout.Queue{"queued": answering{},
		"no answer": answering{err: errors.New("no answer")}} {
		t.Run(name, func(t *testing.T) {
			r := idleRig()
			r.Learn(pushConsumer())
			l := r.lanes[1]
			r.Reserve(1, 2).Start(t.Context(), nil)
			require.Equal(t, 3, l.room())
			require.Equal(t, 100, r.slots)

			woken := 0
			f, _ := oneToPush(t, queue, r.Dispatcher, func(uint32) { woken++ })
			f.Flush(t.Context())
			require.Equal(t, 3, l.room())
			require.Equal(t, 100, r.slots)
			require.Equal(t, 1, woken)
		})
	}
}

// An answering queue leases nothing of what it is offered.
type answering struct {
	fanout.Queue
	err error
}

func (answering) Incarnation() uint64 { return 7 }
func (answering) Epoch(uint32) string { return "now" }

func (q answering) EnqueueMany(_ context.Context, batches []redisq.Batch) ([]redisq.Enqueued, []error) {
	return make([]redisq.Enqueued, len(batches)), slices.Repeat([]error{q.err}, len(batches))
}

func (answering) Notify(context.Context, []uint32) error { return nil }

// A store that does not answer does not hold up a dispatcher that stops: the job is
// given back.
func TestAReservedJobThatTheStoreDoesNotTellOfIsGivenBack(t *testing.T) {
	r := newLossRig(t)
	r.tells = make(chan struct{})
	b, lease := r.reserved()
	b.Start(context.Background(), []redisq.Lease{lease})
	r.eventually(func() bool { return r.asked.Load() == 1 })
	r.stop()
	<-r.over
	require.Zero(t, r.posts())
	require.Equal(t, redisq.Standing{State: redisq.Ready}, r.standings([]ident.ID{lease.ID})[0])
}

// reserved reserves room for a job and has Redis lease it.
func (r *lossRig) reserved() (*Reservation, redisq.Lease) {
	r.t.Helper()
	r.Learn(pushConsumer())
	r.looked()
	b := r.Reserve(1, 1)
	require.NotNil(r.t, b)
	jobs := []redisq.Job{{ID: ident.AtMillis(1)}}
	out, errs := r.redisq.EnqueueMany(r.t.Context(), []redisq.Batch{{Consumer: 1, Jobs: jobs, Lease: time.Minute}})
	require.NoError(r.t, errs[0])
	require.Len(r.t, out[0].Leases, 1)
	return b, out[0].Leases[0]
}

// settled tells whether nobody waits for a look at its leases.
func (r *lossRig) settled() bool {
	r.suspects.mu.Lock()
	defer r.suspects.mu.Unlock()
	return len(r.suspects.things) == 0
}

// looked waits until the lane has seen that nothing waits.
func (r *lossRig) looked() {
	r.t.Helper()
	r.eventually(func() bool { return r.redisq.Epoch(1) != "" && !r.lanes[1].waitsFor() })
}

// waitsFor tells whether the lane knows of something to claim.
func (l *lane) waitsFor() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.more
}

// A dispatcher that stops while jobs are on their way waits for them, and gives them
// back unsent and uncharged.
func TestAReservedJobIsGivenBackByADispatcherThatStops(t *testing.T) {
	r := newLossRig(t)
	b, lease := r.reserved()
	r.stop()
	select {
	case <-r.over:
		t.Fatal("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	b.Start(t.Context(), []redisq.Lease{lease})
	<-r.over
	require.Zero(t, r.posts())
	require.Equal(t, redisq.Standing{State: redisq.Ready}, r.standings([]ident.ID{lease.ID})[0])
}
