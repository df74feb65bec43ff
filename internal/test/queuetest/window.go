package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func jobsPastTheWindowAreSpilled(t *testing.T, s Server) {
	q := s.Queue(5)
	got := put(t, q, jobs(1, 8, 3), redisq.Fresh)
	require.Equal(t, redisq.Enqueued{Added: 5, Spilled: 3, SpilledPriority: 3, FirstSpilled: 5}, got)
	require.Equal(t, redisq.Missing, standing(t, q, at(6)).State)
	require.Equal(t, 3, stats(t, q).SpilledPriority)
	c := claim(t, q, 100, never)
	require.Equal(t, span(1, 5), idsOf(c.Leases), "older jobs of the spilled priority go first")
	require.True(t, c.Spilled)
	check(t, s, q)
}

func betterJobEntersFullWindow(t *testing.T, s Server) {
	q := s.Queue(5)
	put(t, q, jobs(1, 5, 3), redisq.Fresh)
	got := put(t, q, jobs(10, 8, 4), redisq.Fresh)
	require.Equal(t, 5, got.Added)
	require.Equal(t, 3, got.Spilled)
	require.Equal(t, 4, got.SpilledPriority)
	require.Equal(t, 10, stats(t, q).Ready)
	require.Equal(t, 1, put(t, q, jobs(20, 1, 1023), redisq.Fresh).Spilled, "ready never exceeds two windows")
	got = put(t, q, jobs(21, 8, 1023), redisq.Recovered)
	require.Equal(t, 5, got.Added, "up to a window of urgent jobs enters, however many less urgent ones wait")
	require.Equal(t, 3, got.Spilled)
	check(t, s, q)
}

func freshJobsDoNotOvertake(t *testing.T, s Server) {
	q := s.Queue(5)
	put(t, q, jobs(1, 6, 3), redisq.Fresh)
	claim(t, q, 4, never) // there is room again
	for _, src := range []redisq.Source{redisq.Fresh, redisq.Repeated} {
		require.Equal(t, 1, put(t, q, jobs(10, 1, 3), src).Spilled)
		require.Equal(t, 1, put(t, q, jobs(11, 1, 2), src).Spilled)
	}
	require.Equal(t, 3, stats(t, q).SpilledPriority, "a lower one does not lower it")
	require.Equal(t, 1, put(t, q, jobs(12, 1, 4), redisq.Fresh).Added)
	require.Equal(t, 1, put(t, q, jobs(6, 1, 3), redisq.Recovered).Added, "the scan loads the spilled ones")
	check(t, s, q)
}

// Jobs of one fan-out that need several calls do not overtake each other where the window ends.
func oneFanOutKeepsItsOrder(t *testing.T, s Server) {
	q := s.Queue(600)
	put(t, q, jobs(0, 590, 3), redisq.Fresh)
	got, errs := q.EnqueueMany(context.Background(),
		[]redisq.Batch{{Consumer: consumer, Jobs: jobs(590, redisq.MaxBatch+3, 3)}})
	require.NoError(t, errs[0])
	require.Equal(t, 10, got[0].Added)
	require.Equal(t, 10, got[0].FirstSpilled)
	ids := idsOf(claim(t, q, 500, never).Leases)
	require.Equal(t, span(0, 599), append(ids, idsOf(claim(t, q, 500, never).Leases)...))
	check(t, s, q)
}

func nothingBelowSpilled(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(3)
	put(t, q, jobs(1, 3, 1), redisq.Fresh)
	put(t, q, jobs(10, 5, 7), redisq.Fresh) // 3 enter, 2 are spilled
	c := claim(t, q, 100, never)
	require.Equal(t, span(10, 12), idsOf(c.Leases))
	require.Equal(t, 3, c.Ready)
	require.True(t, c.Spilled)
	require.Empty(t, claim(t, q, 100, never).Leases, "the store has more urgent ones")
	waiting, err := q.Peek(ctx, consumer, nil, 10)
	require.NoError(t, err)
	require.Empty(t, waiting)
	require.NoError(t, q.SetSpilled(ctx, consumer, 1))
	require.Len(t, claim(t, q, 2, never).Leases, 2)
	require.NoError(t, q.SetSpilled(ctx, consumer, -1))
	c = claim(t, q, 100, never)
	require.Len(t, c.Leases, 1)
	require.False(t, c.Spilled)
	check(t, s, q)
}

// A job that had an attempt waits for more urgent ones outside the window, unless retries have a share
// of their own, or the first attempts wait for the delayed jobs.
func noRetryBelowSpilled(t *testing.T, s Server) {
	ctx := context.Background()
	strict := redisq.Limits{RetryShare: 100}
	q := s.Queue(3)
	put(t, q, []redisq.Job{{ID: at(1), Priority: 1, Attempts: 1}, {ID: at(2), Priority: 7, Attempts: 1}}, redisq.Recovered)
	put(t, q, jobs(10, 4, 7), redisq.Fresh) // 3 enter
	peeked := func() []ident.ID {
		waiting, err := q.Peek(ctx, consumer, nil, 10)
		require.NoError(t, err)
		ids := make([]ident.ID, len(waiting))
		for i, w := range waiting {
			ids[i] = w.ID
		}
		return ids
	}
	require.Equal(t, append(span(2, 2), span(10, 12)...), peeked())
	require.Equal(t, append(span(2, 2), span(10, 12)...), idsOf(claimWithin(t, q, 100, strict).Leases))
	require.Empty(t, peeked(), "the store has a more urgent one")
	c := claimWithin(t, q, 100, strict)
	require.Empty(t, c.Leases)
	require.Equal(t, 1, c.Ready)
	for i := range 11 {
		put(t, q, []redisq.Job{{ID: at(20 + i), Priority: 1, Delay: time.Hour}}, redisq.Fresh)
	}
	require.Equal(t, span(1, 1), peeked(), "the first attempts outside wait for the delayed ones, and not this one for "+
		"them")
	require.Equal(t, span(1, 1), idsOf(claimWithin(t, q, 1, strict).Leases))
	put(t, q, []redisq.Job{{ID: at(3), Priority: 1, Attempts: 1}}, redisq.Recovered)
	for i := range 2 {
		_, err := q.Ack(ctx, consumer, span(20+i, 20+i))
		require.NoError(t, err)
	}
	require.Empty(t, claimWithin(t, q, 100, strict).Leases)
	require.Equal(t, span(3, 3), idsOf(claim(t, q, 100, never).Leases), "retries with a share of their own go on")
	check(t, s, q)
}

// Jobs of one priority come in the order of their messages, whether they were offered at once, late or by
// the scan.
func orderOfMessages(t *testing.T, s Server) {
	q := s.Queue(100)
	offer := func(js ...redisq.Job) {
		_, errs := q.EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: js}})
		require.NoError(t, errs[0])
	}
	offer(jobs(30, 3, 3)...)
	offer(redisq.Job{ID: at(41), Priority: 5}, redisq.Job{ID: at(33), Priority: 3})
	put(t, q, jobs(20, 5, 3), redisq.Recovered)
	offer(jobs(25, 5, 3)...)
	offer(redisq.Job{ID: at(40), Priority: 5}, redisq.Job{ID: at(10), Priority: 3})
	want := append(span(40, 41), at(10))
	require.Equal(t, append(want, span(20, 33)...), idsOf(claim(t, q, 100, never).Leases))
	check(t, s, q)
}

func refillBringsBack(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(10)
	const n = 55
	put(t, q, jobs(0, n, 2), redisq.Fresh)
	next := 0 // position of the refill in the store
	var order []redisq.Lease
	for len(order) < n {
		seen := stats(t, q)
		if seen.SpilledPriority >= 0 && seen.Ready == 0 {
			js := jobs(next, min(20, n-next), 2)
			got := put(t, q, js, redisq.Recovered)
			if got.FirstSpilled >= 0 {
				next += got.FirstSpilled
			} else if next += len(js); next == n {
				ok, err := q.ReplaceSpilled(ctx, consumer, -1, seen.Spills)
				require.NoError(t, err)
				require.True(t, ok)
			}
		}
		c := claim(t, q, 7, never)
		order = append(order, c.Leases...)
		check(t, s, q)
	}
	require.Equal(t, span(0, n-1), idsOf(order))
	require.Equal(t, -1, stats(t, q).SpilledPriority)
}

func refillSeesOthersSpill(t *testing.T, s Server) {
	ctx := context.Background()
	q, other := s.Queue(2), s.Queue(2)
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	seen := stats(t, q)
	require.Equal(t, 1, put(t, other, jobs(9, 1, 0), redisq.Fresh).Spilled)
	ok, err := q.ReplaceSpilled(ctx, consumer, -1, seen.Spills)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, 0, stats(t, q).SpilledPriority)
	put(t, q, jobs(3, 1, 0), redisq.Recovered) // spills of recovered jobs do not count
	ok, err = q.ReplaceSpilled(ctx, consumer, -1, stats(t, q).Spills)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, -1, stats(t, q).SpilledPriority)
}

// A claim says whether jobs may be outside: always, before a scan of the store has ended on this
// state, and while there are spilled ones.
func wholeAfterAScan(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(2)
	whole := func() bool {
		t.Helper()
		c, err := q.Claim(ctx, consumer, 0, never, redisq.Limits{})
		require.NoError(t, err)
		require.Equal(t, c.Whole, stats(t, q).Whole)
		return c.Whole
	}
	complete := func() { require.NoError(t, q.Complete(ctx, consumer, q.Epoch(consumer))) }
	require.False(t, whole(), "nothing is known of a new state")
	complete()
	require.True(t, whole())
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	require.False(t, whole(), "one is spilled")
	require.NoError(t, q.SetSpilled(ctx, consumer, -1))
	require.True(t, whole())
	before := q.Epoch(consumer)
	require.NoError(t, q.Renew(ctx, consumer))
	require.False(t, whole())
	require.ErrorIs(t, q.Complete(ctx, consumer, before), redisq.ErrLost, "a scan of the state before says nothing")
	require.False(t, whole())
	complete()
	require.True(t, whole())
	s.Flush()
	require.False(t, whole())
}

func knownJobsAreNeverSpilled(t *testing.T, s Server) {
	q := s.Queue(3)
	put(t, q, jobs(1, 5, 0), redisq.Fresh)
	claim(t, q, 1, never)
	for _, src := range []redisq.Source{redisq.Repeated, redisq.Recovered} {
		got := put(t, q, jobs(1, 3, 0), src)
		require.Equal(t, 3, got.Known)
		require.Zero(t, got.Spilled)
	}
	require.Equal(t, 2, put(t, q, jobs(2, 2, 0), redisq.Fresh).Known)
}

func nothingWhileDelayedIsFull(t *testing.T, s Server) {
	q := s.Queue(2)
	var js []redisq.Job
	for i := range 8 {
		js = append(js, redisq.Job{ID: at(i), Delay: 2 * time.Second})
	}
	js = append(js, jobs(20, 1, 0)...)
	require.Equal(t, 9, put(t, q, js, redisq.Fresh).Added, "delayed jobs do not fill the window")
	require.Empty(t, claim(t, q, 10, never).Leases)
	s.Advance(2100 * time.Millisecond)
	require.Len(t, claim(t, q, 10, never).Leases, 9)
	check(t, s, q)
}
