package pull

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A wipedQueue has lost everything, and notes what is restored. For a while it fails.
type wipedQueue struct {
	Queue
	fails    int
	restored map[ident.ID]time.Duration
	acked    []redisq.Lease
	later    map[ident.ID]time.Duration
	during   func() // a report that comes meanwhile
}

func (q *wipedQueue) RestoreLeases(_ context.Context, _ uint32, leases []redisq.Lease, lease time.Duration) ([]bool,
	error) {
	if q.fails--; q.fails >= 0 {
		return nil, errors.New("away")
	}
	mine := make([]bool, len(leases))
	for i, l := range leases {
		q.restored[l.ID], mine[i] = lease, true
	}
	q.during()
	return mine, nil
}

func (q *wipedQueue) AckLeases(_ context.Context, _ uint32, leases []redisq.Lease) ([]bool, error) {
	q.acked = append(q.acked, leases...)
	return make([]bool, len(leases)), nil
}

func (q *wipedQueue) Nack(_ context.Context, _ uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error) {
	for i, l := range leases {
		q.later[l.ID] = delays[i]
	}
	return make([]bool, len(leases)), nil
}

func (q *wipedQueue) GiveBack(ctx context.Context, no uint32, leases []redisq.Lease, delays []time.Duration) ([]bool,
	error) {
	return q.Nack(ctx, no, leases, delays)
}

type statesOnly struct {
	verify.Store
	states map[ident.ID]durable.JobState
}

func (s statesOnly) JobStates(context.Context, uint32, []ident.ID) (map[ident.ID]durable.JobState, error) {
	return s.states, nil
}

func wipedPuller() (*Puller, *wipedQueue, map[ident.ID]durable.JobState) {
	q := &wipedQueue{restored: map[ident.ID]time.Duration{}, later: map[ident.ID]time.Duration{}, during: func() {}}
	states := map[ident.ID]durable.JobState{}
	return &Puller{book: newLeaseBook(), queue: q, touched: func(uint32) {}, nowMs: func() int64 {
		return 2000
	}, verifier: &verify.Verifier{Store: statesOnly{states: states}}}, q, states
}

// bookedJob is a lease of the second attempt of job n, given at 1000.
func bookedJob(n int64, left time.Duration) bookedLease {
	return bookedLease{lease: redisq.Lease{ID: ident.AtMillis(n), Token: "t", Attempt: 2}, sinceMs: 1000,
		until: time.Now().Add(left)}
}

func TestLeasesThatRedisLostAreRestoredUntilTheirEnds(t *testing.T) {
	p, q, states := wipedPuller()
	for n, left := range []time.Duration{time.Hour, time.Minute, -time.Second, time.Hour, time.Hour, time.Hour, time.Hour,
		time.Hour} {
		p.book.add(7, bookedJob(int64(n), left))
	}
	states[ident.AtMillis(3)] = durable.JobState{Status: durable.Delivered}
	states[ident.AtMillis(4)] = durable.JobState{Status: durable.Open, Attempts: 2, ChangedMs: 900}
	states[ident.AtMillis(5)] = durable.JobState{Status: durable.Open, Attempts: 1, ChangedMs: 1001, NextMs: 5000,
		GivenBack: 1}
	states[ident.AtMillis(6)] = durable.JobState{Status: durable.Open, Attempts: 0, ChangedMs: 2000, RedrivenMs: 2000}
	states[ident.AtMillis(7)] = durable.JobState{Status: durable.Open, Attempts: 1, ChangedMs: 999, GivenBack: 3}
	require.NoError(t, p.restore(t.Context(), 7))
	require.Len(t, q.restored, 7)
	require.NotContains(t, q.restored, ident.AtMillis(2), "it has ended")
	require.Equal(t, []redisq.Lease{bookedJob(3, 0).lease}, q.acked, "it is over")
	require.Equal(t, map[ident.ID]time.Duration{ident.AtMillis(4): 0, ident.AtMillis(5): 3 * time.Second,
		ident.AtMillis(6): 0}, q.later, "charged, given back and redriven since")
	require.InDelta(t, 3600, q.restored[ident.AtMillis(0)].Seconds(), 2)
	require.InDelta(t, 60, q.restored[ident.AtMillis(1)].Seconds(), 2)
	require.Len(t, p.book.live(7, time.Now()), 3)
}

func TestAReportDuringTheRestorationOfItsLeaseCounts(t *testing.T) {
	p, q, states := wipedPuller()
	p.book.add(7, bookedJob(1, time.Hour))
	q.during = func() {
		p.book.remove(7, ident.AtMillis(1), "t")
		states[ident.AtMillis(1)] = durable.JobState{Status: durable.Delivered}
	}
	require.NoError(t, p.restore(t.Context(), 7))
	require.Len(t, q.acked, 1)
}

func TestARestorationThatFailsIsTriedAgain(t *testing.T) {
	p, q, _ := wipedPuller()
	p.book.add(7, bookedJob(1, time.Hour))
	q.fails = 1
	require.Error(t, p.restore(t.Context(), 7))
	require.NoError(t, p.restore(t.Context(), 7))
	require.Len(t, q.restored, 1)
}

func TestTheLeasesThatAreRememberedAreBounded(t *testing.T) {
	b := newLeaseBook()
	for n := range int64(bookLeases + 10) {
		b.add(uint32(n%3), bookedJob(n, -time.Second))
	}
	require.Equal(t, bookLeases, b.n)
	b.add(0, bookedJob(0, time.Hour)) // another lease of the same job
	require.Equal(t, bookLeases, b.n)
	b.sweep(time.Now())
	require.Equal(t, 1, b.n)
	b.miss(0, true)
	no, ok := b.missed()
	require.True(t, ok)
	require.Zero(t, no)
	b.extend(0, ident.AtMillis(0), "another", time.Now())
	require.Len(t, b.live(0, time.Now()), 1)
	b.remove(0, ident.AtMillis(0), "")
	b.miss(0, false)
	_, ok = b.missed()
	require.False(t, ok)
	require.Empty(t, b.leases)
}

// Each broker estimates the clock of the store: what came before a claim may be stored with a later time.
func TestWhatWasStoredBeforeAClaimEndsNoLease(t *testing.T) {
	for name, c := range map[string]struct {
		job   claimedJob
		state durable.JobState
	}{
		"given back": {claimedJob{counts: jobCounts{givenBack: 1}}, durable.JobState{Attempts: 1, GivenBack: 1}},
		"redriven":   {claimedJob{redrivenMs: 1001}, durable.JobState{Attempts: 1, RedrivenMs: 1001}},
	} {
		t.Run(name, func(t *testing.T) {
			p, q, states := wipedPuller()
			c.job.lease = bookedJob(1, 0).lease // attempt 2
			p.book.addJobs(7, []claimedJob{c.job}, 1000, time.Now().Add(time.Hour))
			c.state.Status, c.state.ChangedMs = durable.Open, 1001
			states[ident.AtMillis(1)] = c.state
			require.NoError(t, p.restore(t.Context(), 7))
			require.Empty(t, q.later)
			require.Len(t, p.book.live(7, time.Now()), 1)
		})
	}
}

func TestTheEndOfALeaseForgetsNoLaterOne(t *testing.T) {
	b := newLeaseBook()
	b.add(7, bookedJob(1, time.Hour))
	b.remove(7, ident.AtMillis(1), "earlier")
	require.Len(t, b.live(7, time.Now()), 1)
	b.remove(7, ident.AtMillis(1), "t")
	require.Empty(t, b.live(7, time.Now()))
}
