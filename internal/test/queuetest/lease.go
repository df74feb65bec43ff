package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func leaseIsFenced(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	old := claim(t, q, 1, time.Millisecond).Leases
	s.Advance(5 * time.Millisecond)
	require.Len(t, reclaim(t, q, 0).Returned, 1)
	current := claim(t, q, 1, never).Leases
	require.NotEqual(t, old[0].Token, current[0].Token)
	before := standing(t, q, at(1))
	for _, token := range []string{old[0].Token, "", "x|y"} {
		stale := []redisq.Lease{{ID: at(1), Token: token}, {ID: at(77), Token: token}}
		ok, err := q.Extend(ctx, consumer, stale, 2*never)
		require.NoError(t, err)
		require.Equal(t, []bool{false, false}, ok)
		ok, err = q.Nack(ctx, consumer, stale, []time.Duration{never, 0})
		require.NoError(t, err)
		require.Equal(t, []bool{false, false}, ok)
		ok, err = q.Release(ctx, consumer, stale)
		require.NoError(t, err)
		require.Equal(t, []bool{false, false}, ok)
		ok, err = q.AckLeases(ctx, consumer, stale)
		require.NoError(t, err)
		require.Equal(t, []bool{false, false}, ok)
	}
	require.Equal(t, before, standing(t, q, at(1)))
	ok, err := q.Extend(ctx, consumer, []redisq.Lease{old[0], current[0]}, never)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, ok)
	check(t, s, q)
	ok, err = q.AckLeases(ctx, consumer, []redisq.Lease{old[0], current[0], current[0]})
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, false}, ok)
	require.Equal(t, redisq.Missing, standing(t, q, at(1)).State)
	check(t, s, q)

	put(t, q, jobs(2, 1, 7), redisq.Fresh)
	ok, err = q.AckLeases(ctx, consumer, []redisq.Lease{{ID: at(2), Token: old[0].Token}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, ok)
	check(t, s, q)
	again := claim(t, q, 1, never).Leases
	require.Equal(t, redisq.FlagVerify, again[0].Flags, "its next claim asks the store")
	require.Equal(t, 7, again[0].Priority)
}

func ackNeedsNoLease(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 0), redisq.Fresh)
	put(t, q, jobs(3, 1, 0), redisq.Recovered)
	put(t, q, []redisq.Job{{ID: at(4), Delay: never}}, redisq.Fresh)
	claim(t, q, 2, never)
	for _, want := range []int{4, 0} {
		n, err := q.Ack(ctx, consumer, span(1, 5))
		require.NoError(t, err)
		require.Equal(t, want, n)
		check(t, s, q)
	}
	require.Zero(t, stats(t, q).Ready+stats(t, q).Delayed+stats(t, q).Leased)
}

func acksForMany(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	var batches []redisq.Batch
	var done []redisq.Done
	for c := range uint32(20) {
		batches = append(batches, redisq.Batch{Consumer: c, Jobs: jobs(0, 10, 0)})
		done = append(done, redisq.Done{Consumer: c, IDs: span(0, int(c))})
	}
	q.EnqueueMany(ctx, batches)
	removed, errs := q.AckMany(ctx, done)
	for c := range 20 {
		require.NoError(t, errs[c])
		require.Equal(t, min(c+1, 10), removed[c])
	}
}

func nackWaitsOutItsDelay(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 6), redisq.Fresh)
	leases := claim(t, q, 2, never).Leases
	ok, err := q.Nack(ctx, consumer, leases, []time.Duration{200 * time.Millisecond, never})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, ok)
	got := standing(t, q, at(2))
	require.Equal(t, redisq.Standing{State: redisq.Delayed, Priority: 6, Attempts: 1, At: got.At}, got)
	check(t, s, q)
	s.Advance(210 * time.Millisecond)
	c := claim(t, q, 10, never)
	require.Equal(t, span(1, 1), idsOf(c.Leases))
	require.Equal(t, 2, c.Leases[0].Attempt)
	require.Equal(t, 6, c.Leases[0].Priority)
	require.Zero(t, c.Leases[0].Flags)
}

func nackWithoutDelay(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 0), redisq.Fresh)
	first := claim(t, q, 1, never).Leases
	s.Advance(2 * time.Millisecond)
	ok, err := q.Nack(context.Background(), consumer, first, []time.Duration{-1})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	check(t, s, q)
	c := claim(t, q, 10, never)
	require.Equal(t, span(2, 1), idsOf(c.Leases), "it joins at the end")
	require.Equal(t, 2, c.Leases[1].Attempt)
}

func givenBackIsNoAttempt(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 3, 6), redisq.Fresh)
	leases := claim(t, q, 2, never).Leases
	ok, err := q.GiveBack(ctx, consumer, append(leases, redisq.Lease{ID: at(3), Token: "none"}),
		[]time.Duration{0, never, 0})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, false}, ok)
	later := standing(t, q, at(2))
	require.Equal(t, redisq.Standing{State: redisq.Delayed, Priority: 6, Flags: redisq.FlagVerify, At: later.At}, later)
	require.Equal(t, redisq.Standing{State: redisq.Ready, Priority: 6, Flags: redisq.FlagVerify}, standing(t, q, at(1)))
	check(t, s, q)
	ok, err = q.GiveBack(ctx, consumer, leases, []time.Duration{never, never})
	require.NoError(t, err)
	require.Equal(t, []bool{false, false}, ok, "the leases have ended")
	again := claim(t, q, 10, never).Leases
	require.ElementsMatch(t, []ident.ID{at(1), at(3)}, idsOf(again))
	for _, l := range again {
		require.Equal(t, 1, l.Attempt)
		require.Equal(t, l.ID == at(1), l.Flags == redisq.FlagVerify, "the store is asked about it")
	}
}

func releaseTakesOldPlace(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 4, 3), redisq.Fresh)
	s.Advance(2 * time.Millisecond)
	leases := claim(t, q, 1, never).Leases
	ok, err := q.Release(ctx, consumer, leases)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	require.Equal(t, redisq.Standing{State: redisq.Ready, Priority: 3}, standing(t, q, at(1)))
	check(t, s, q)
	c := claim(t, q, 10, never)
	require.Equal(t, span(1, 4), idsOf(c.Leases))
	require.Equal(t, 1, c.Leases[0].Attempt)

	// A retried job goes back with the attempts it had before the claim.
	ok, err = q.Nack(ctx, consumer, c.Leases[:1], []time.Duration{0})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	again := claim(t, q, 1, never).Leases
	_, err = q.Release(ctx, consumer, again)
	require.NoError(t, err)
	require.Equal(t, 1, standing(t, q, at(1)).Attempts)
	check(t, s, q)
}

func extendedLeaseDoesNotEnd(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 0), redisq.Fresh)
	leases := claim(t, q, 2, 300*time.Millisecond).Leases
	ok, err := q.Extend(context.Background(), consumer, leases[:1], never)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	s.Advance(310 * time.Millisecond)
	require.Equal(t, span(2, 2), returned(reclaim(t, q, 0)))
	require.Equal(t, leases[0].Token, standing(t, q, at(1)).Token)
	check(t, s, q)
}

func extensionMayShorten(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	leases := claim(t, q, 1, never).Leases
	_, err := q.Extend(context.Background(), consumer, leases, time.Millisecond)
	require.NoError(t, err)
	s.Advance(3 * time.Millisecond)
	require.Len(t, reclaim(t, q, 0).Returned, 1)
}

func namedTwiceMovesOnce(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 0), redisq.Fresh)
	l := claim(t, q, 2, never).Leases
	ok, err := q.Extend(ctx, consumer, []redisq.Lease{l[0], l[0]}, never)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, ok)
	ok, err = q.Nack(ctx, consumer, []redisq.Lease{l[0], l[0]}, []time.Duration{never, 0})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, ok)
	check(t, s, q)
	ok, err = q.Release(ctx, consumer, []redisq.Lease{l[1], l[1]})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, ok)
	check(t, s, q)
	n, err := q.Ack(ctx, consumer, []ident.ID{at(1), at(1), at(2)})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	check(t, s, q)
}

// A caller repeats a step after a lost reply. The repetition must not move a job that has a
// new lease by then.
func replayChangesNothing(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	snapshot := func() []redisq.Standing {
		check(t, s, q)
		got, err := q.Probe(ctx, consumer, span(1, 6))
		require.NoError(t, err)
		return got
	}
	twice := func(step func()) {
		step()
		once := snapshot()
		step()
		require.Equal(t, once, snapshot())
	}
	twice(func() { put(t, q, jobs(1, 6, 0), redisq.Repeated) })
	l := claim(t, q, 5, never).Leases
	twice(func() { put(t, q, jobs(1, 6, 0), redisq.Recovered) })
	twice(func() {
		_, err := q.Nack(ctx, consumer, l[:1], []time.Duration{never})
		require.NoError(t, err)
	})
	twice(func() {
		_, err := q.Release(ctx, consumer, l[1:2])
		require.NoError(t, err)
	})
	twice(func() {
		_, err := q.Ack(ctx, consumer, []ident.ID{l[2].ID})
		require.NoError(t, err)
	})
	twice(func() {
		_, err := q.AckLeases(ctx, consumer, l[2:3])
		require.NoError(t, err)
	})
	twice(func() {
		_, _, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: l[0].ID}, never, false)
		require.NoError(t, err)
	})
	_, err := q.Extend(ctx, consumer, l[3:4], time.Millisecond)
	require.NoError(t, err)
	s.Advance(3 * time.Millisecond)
	twice(func() { reclaim(t, q, 0) })
	_, err = q.Extend(ctx, consumer, l[4:5], time.Millisecond)
	require.NoError(t, err)
	s.Advance(3 * time.Millisecond)
	twice(func() { reclaim(t, q, 1) })
}
