package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

func claimWithin(t *testing.T, q *redisq.Queue, n int, limits redisq.Limits) redisq.Claim {
	t.Helper()
	c, err := q.Claim(context.Background(), consumer, n, never, limits)
	require.NoError(t, err)
	return c
}

// rateHoldsInEveryWindow claims as often as it can, and checks each window of the times before and
// after the calls: a lease was granted between the two.
func rateHoldsInEveryWindow(t *testing.T, s Server) {
	const n, windows = 3, 4
	per := 200 * time.Millisecond
	q := s.Queue(1000)
	put(t, q, jobs(1, 100, 0), redisq.Fresh)
	limits := redisq.Limits{Rate: redisq.Rate{N: n, Per: per}}
	now := func() int64 {
		at, err := s.Client.Time(context.Background()).Result()
		require.NoError(t, err)
		return at.UnixMilli()
	}
	type grant struct{ after, before int64 }
	var granted []grant
	for len(granted) < n*windows {
		g := grant{after: now()}
		c := claimWithin(t, q, 2, limits)
		g.before = now()
		for range c.Leases {
			granted = append(granted, g)
		}
		if len(c.Leases) < 2 {
			require.Equal(t, redisq.RateLimit, c.Limited)
			require.Positive(t, c.NextDue)
			require.LessOrEqual(t, c.NextDue, per+per/32)
			s.Advance(max(c.NextDue/3, time.Millisecond))
		} else {
			require.Equal(t, redisq.NoLimit, c.Limited)
		}
	}
	for i := range granted[n:] {
		require.GreaterOrEqual(t, granted[i+n].before-granted[i].after, per.Milliseconds(), "grants %d and %d", i, i+n)
	}
	require.Less(t, granted[len(granted)-1].after-granted[0].before, 3*windows*per.Milliseconds(), "the rate is used")
	check(t, s, q)
}

func rateIsShared(t *testing.T, s Server) {
	ctx := context.Background()
	one, two := s.Queue(1000), s.Queue(1000)
	limits := redisq.Limits{Rate: redisq.Rate{N: 5, Per: never}, Pace: redisq.Rate{N: 6, Per: never}}
	out, errs := one.EnqueueMany(ctx, []redisq.Batch{{Consumer: consumer, Jobs: jobs(1, 2, 0), Lease: never,
		Limits: limits}})
	require.NoError(t, errs[0])
	require.Len(t, out[0].Leases, 2)
	put(t, two, jobs(11, 8, 0), redisq.Fresh)
	require.Len(t, claimWithin(t, two, 1, limits).Leases, 1)
	var wishes []redisq.Wish
	for n := 12; n < 16; n++ {
		wishes = append(wishes, redisq.Wish{Job: redisq.Job{ID: at(n)}, Lease: never, Limits: limits})
	}
	grants, err := one.ClaimEach(ctx, consumer, wishes)
	require.NoError(t, err)
	for i, g := range grants {
		require.Equal(t, i >= 2, g.Limited, i)
		require.Equal(t, i < 2, g.Lease.Token != "", i)
		if g.Limited {
			require.Positive(t, g.Wait)
			require.Equal(t, redisq.Ready, g.Before.State)
			require.Equal(t, redisq.Ready, standing(t, one, at(12+i)).State, "a refused job stays where it is")
		}
	}
	c := claimWithin(t, two, 5, limits)
	require.Empty(t, c.Leases)
	require.Equal(t, redisq.RateLimit, c.Limited)
	require.Equal(t, 5, c.Ready)
	_, err = one.Ack(ctx, consumer, idsOf(out[0].Leases)) // the end of an attempt frees nothing
	require.NoError(t, err)
	out, errs = one.EnqueueMany(ctx, []redisq.Batch{{Consumer: 77, Jobs: jobs(1, 6, 0), Lease: never, Limits: limits}})
	require.NoError(t, errs[0])
	require.Empty(t, out[0].Leases, "an offer leases all or none")
	require.Equal(t, 6, out[0].Added)
	require.Empty(t, claimWithin(t, one, 5, limits).Leases)
	require.Len(t, claimWithin(t, one, 5, redisq.Limits{}).Leases, 5, "without a limit nothing is held back")
	check(t, s, one)
}

func unusedLeaseIsNotCounted(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	limits := redisq.Limits{Rate: redisq.Rate{N: 2, Per: never}}
	put(t, q, jobs(1, 5, 0), redisq.Fresh)
	leases := claimWithin(t, q, 5, limits).Leases
	require.Len(t, leases, 2)
	ok, err := q.Release(ctx, consumer, leases[:1])
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	_, err = q.Release(ctx, consumer, leases[:1]) // a repeat gives nothing back
	require.NoError(t, err)
	again := claimWithin(t, q, 5, limits).Leases
	require.Len(t, again, 1)
	require.Equal(t, leases[0].ID, again[0].ID)
	require.Equal(t, []bool{true}, park(t, q, again, never))
	last := claimWithin(t, q, 5, limits).Leases
	require.Len(t, last, 1)

	moved, wait, err := q.Regrant(ctx, consumer, last[0], limits)
	require.NoError(t, err)
	require.Zero(t, wait, "its own place is free")
	require.NotEmpty(t, moved.Granted)
	require.Empty(t, claimWithin(t, q, 5, limits).Leases)
	another := last[0]
	another.Granted = ""
	refused, wait, err := q.Regrant(ctx, consumer, another, limits)
	require.NoError(t, err)
	require.Positive(t, wait)
	require.Empty(t, refused.Granted)
	check(t, s, q)
}

func concurrencyCountsLeases(t *testing.T, s Server) {
	ctx := context.Background()
	one, two := s.Queue(1000), s.Queue(1000)
	limits := redisq.Limits{Concurrency: 3}
	put(t, one, jobs(1, 10, 0), redisq.Fresh)
	first := claimWithin(t, one, 2, limits).Leases
	require.Len(t, first, 2)
	c := claimWithin(t, two, 5, limits)
	require.Len(t, c.Leases, 1)
	require.Equal(t, redisq.ConcurrencyLimit, c.Limited)
	require.Positive(t, c.NextDue)
	require.LessOrEqual(t, c.NextDue, 100*time.Millisecond)
	grants, err := two.ClaimEach(ctx, consumer, []redisq.Wish{{Job: redisq.Job{ID: at(9)}, Lease: never, Limits: limits},
		{Job: redisq.Job{ID: at(1)}, Lease: never, Limits: limits}})
	require.NoError(t, err)
	require.True(t, grants[0].Limited)
	require.Zero(t, grants[0].Wait)
	require.False(t, grants[1].Limited, "a leased job is leased")
	require.Equal(t, redisq.Leased, grants[1].Before.State)
	_, err = one.Ack(ctx, consumer, idsOf(first[:1]))
	require.NoError(t, err)
	require.Len(t, claimWithin(t, two, 5, limits).Leases, 1)
	require.Empty(t, claimWithin(t, one, 5, limits).Leases)
	check(t, s, one)
}

// retryJobs returns n due jobs with an attempt.
func retryJobs(from, n, priority int) []redisq.Job {
	out := jobs(from, n, priority)
	for i := range out {
		out[i].Attempts = 1
	}
	return out
}

func retriesGetTheirShare(t *testing.T, s Server) {
	q := s.Queue(1000)
	put(t, q, retryJobs(1, 200, 9), redisq.Fresh)
	put(t, q, jobs(501, 90, 0), redisq.Fresh)
	counts := func(c redisq.Claim) (first, again int) {
		for _, l := range c.Leases {
			if l.Attempt == 1 {
				first++
			} else {
				again++
			}
		}
		return first, again
	}
	first, again := 0, 0
	for range 40 { // one by one they get a quarter, too
		f, a := counts(claimWithin(t, q, 1, redisq.Limits{}))
		first, again = first+f, again+a
	}
	require.Equal(t, []int{30, 10}, []int{first, again})
	first, again = counts(claimWithin(t, q, 20, redisq.Limits{RetryShare: 10}))
	require.Equal(t, []int{18, 2}, []int{first, again})
	first, again = counts(claimWithin(t, q, 8, redisq.Limits{RetryShare: 100}))
	require.Equal(t, []int{0, 8}, []int{first, again}, "the order alone decides")
	first, again = counts(claimWithin(t, q, 20, redisq.Limits{Slots: 8, Retrying: 1}))
	require.Equal(t, []int{19, 1}, []int{first, again}, "a quarter of 8 slots, of which one is taken")
	first, again = counts(claimWithin(t, q, 40, redisq.Limits{Slots: 100}))
	require.Equal(t, []int{23, 17}, []int{first, again}, "no first attempt is left behind")
	c := claimWithin(t, q, 40, redisq.Limits{Slots: 8, Retrying: 4})
	first, again = counts(c)
	require.Equal(t, []int{0, 2}, []int{first, again}, "three quarters of the slots")
	require.Equal(t, c.Ready, c.Retries)

	out, errs := q.EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: jobs(701, 2, 0),
		Lease: never}})
	require.NoError(t, errs[0])
	require.Len(t, out[0].Leases, 2, "an offer does not wait for retries")
	check(t, s, q)
}

func retriesTakeNoRoom(t *testing.T, s Server) {
	ctx := context.Background()
	const window = 5
	q := s.Queue(window)
	put(t, q, retryJobs(1, window, 9), redisq.Fresh)
	require.Equal(t, window, put(t, q, jobs(101, window, 0), redisq.Fresh).Added)
	got := put(t, q, jobs(201, 1, 0), redisq.Fresh)
	require.Equal(t, 1, got.Spilled, "first attempts have one window")
	require.NoError(t, q.SetSpilled(ctx, consumer, 5))
	var listed int
	for _, w := range peek(t, q, 100) {
		require.Positive(t, w.Attempts, "first attempts wait for the refill")
		listed++
	}
	require.Equal(t, window, listed)
	for _, l := range claimWithin(t, q, 3, redisq.Limits{}).Leases {
		require.Equal(t, 2, l.Attempt)
	}
	check(t, s, q)
}

func peek(t *testing.T, q *redisq.Queue, limit int) []redisq.Waiting {
	t.Helper()
	got, err := q.Peek(context.Background(), consumer, nil, limit)
	require.NoError(t, err)
	return got
}

func heldGetsNothing(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	require.NoError(t, q.Hold(ctx, consumer, never))
	require.NoError(t, q.Hold(ctx, consumer, time.Millisecond), "a longer hold stays")
	out, errs := q.EnqueueMany(ctx, []redisq.Batch{{Consumer: consumer, Jobs: jobs(1, 2, 0), Lease: never}})
	require.NoError(t, errs[0])
	require.Empty(t, out[0].Leases)
	require.Equal(t, 2, out[0].Added)
	s.Advance(3 * time.Millisecond)
	c := claim(t, q, 5, never)
	require.Empty(t, c.Leases)
	require.Equal(t, redisq.RateLimit, c.Limited)
	require.Greater(t, c.NextDue, never-time.Minute)
	grants, err := q.ClaimEach(ctx, consumer, []redisq.Wish{{Job: redisq.Job{ID: at(1)}, Lease: never}})
	require.NoError(t, err)
	require.NotEmpty(t, grants[0].Lease.Token, "a worker or the reaper gets its job")
	require.NoError(t, q.Hold(ctx, consumer, 0))
	require.Len(t, claim(t, q, 5, never).Leases, 1)
	require.NoError(t, q.Hold(ctx, consumer, 2*time.Millisecond))
	put(t, q, jobs(11, 1, 0), redisq.Fresh)
	s.Advance(5 * time.Millisecond)
	require.Len(t, claim(t, q, 5, never).Leases, 1, "a hold ends")
	check(t, s, q)
}
