package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func outlook(t *testing.T, q *redisq.Queue, job ident.ID, limits redisq.Limits) redisq.Outlook {
	t.Helper()
	out, err := q.Outlook(context.Background(), consumer, job, limits)
	require.NoError(t, err)
	return out
}

func outlookSaysWhy(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	none := redisq.Limits{}
	empty := outlook(t, q, ident.ID{}, none)
	require.Zero(t, empty.Ready+empty.Delayed+empty.Leased)
	require.False(t, empty.Whole)
	require.True(t, empty.OldestReady.IsZero())
	put(t, q, jobs(1, 5, 0), redisq.Fresh)
	late := jobs(6, 2, 0)
	late[0].Delay, late[1].Delay, late[1].Attempts = time.Hour, 2*time.Hour, 3
	put(t, q, late, redisq.Repeated)

	limits := redisq.Limits{Rate: redisq.Rate{N: 1, Per: time.Hour}, Concurrency: 2}
	before := outlook(t, q, ident.ID{}, limits)
	require.Equal(t, 5, before.Ready)
	require.Equal(t, 2, before.Delayed)
	require.Equal(t, 1, before.Attempted)
	require.WithinDuration(t, before.Now.Add(time.Hour), before.FirstDue, time.Minute)
	require.Equal(t, redisq.RateLimit, before.Limited, "one of five may go")
	require.Zero(t, before.Wait)
	require.Len(t, claimWithin(t, q, 5, limits).Leases, 1)
	rated := outlook(t, q, ident.ID{}, limits)
	require.Equal(t, 1, rated.Leased)
	require.Equal(t, redisq.RateLimit, rated.Limited)
	require.Greater(t, rated.Wait, 55*time.Minute)
	require.False(t, rated.FirstLeaseEnd.IsZero())
	require.Equal(t, redisq.NoLimit, outlook(t, q, ident.ID{}, none).Limited)
	require.Equal(t, redisq.ConcurrencyLimit, outlook(t, q, ident.ID{}, redisq.Limits{Concurrency: 1}).Limited)
	require.Equal(t, redisq.NoLimit, outlook(t, q, ident.ID{}, redisq.Limits{Concurrency: 9}).Limited)

	require.NoError(t, q.Hold(ctx, consumer, time.Hour))
	held := outlook(t, q, ident.ID{}, none)
	require.WithinDuration(t, held.Now.Add(time.Hour), held.HeldUntil, time.Minute)
	require.Equal(t, redisq.NoLimit, held.Limited, "a hold is no limit")
	require.NoError(t, q.Hold(ctx, consumer, 0))
	require.Len(t, claim(t, q, 10, never).Leases, 4, "no question took a job, or a part of a rate")

	soon := jobs(8, 1, 0)
	soon[0].Delay = 10 * time.Millisecond
	put(t, q, soon, redisq.Repeated)
	s.Advance(20 * time.Millisecond)
	due := outlook(t, q, ident.ID{}, none)
	require.Equal(t, 1, due.Ready, "a job whose delay is over")
	require.Equal(t, 2, due.Delayed)
	require.False(t, due.OldestReady.IsZero())
	check(t, s, q)
}

func outlookKnowsPlaces(t *testing.T, s Server) {
	q := s.Queue(100)
	batch := append(jobs(1, 3, 0), jobs(4, 2, 9)...)
	put(t, q, batch, redisq.Fresh)
	last := outlook(t, q, batch[2].ID, redisq.Limits{}).Job
	require.Equal(t, redisq.Ready, last.State)
	require.Equal(t, 4, last.Ahead)
	require.Equal(t, 2, last.Above)
	require.False(t, last.Since.IsZero())
	first := outlook(t, q, batch[3].ID, redisq.Limits{}).Job
	require.Zero(t, first.Ahead+first.Above)
	require.Equal(t, redisq.Missing, outlook(t, q, jobs(99, 1, 0)[0].ID, redisq.Limits{}).Job.State)

	leases := claim(t, q, 2, never).Leases
	leased := outlook(t, q, leases[0].ID, redisq.Limits{}).Job
	require.Equal(t, redisq.Leased, leased.State)
	require.Equal(t, 1, leased.Attempts)
	require.Equal(t, []bool{true, true}, park(t, q, leases, never))
	parked := outlook(t, q, leases[1].ID, redisq.Limits{})
	require.Equal(t, 2, parked.Parked)
	require.Equal(t, leases[0].ID, parked.Blocked)
	require.Equal(t, redisq.Delayed, parked.Job.State)
	require.True(t, parked.Job.Parked)
	require.True(t, parked.FirstDue.IsZero())
	outs, errs := q.Outlooks(context.Background(), []uint32{consumer, consumer + 1}, batch[0].ID, make([]redisq.Limits, 2))
	require.Equal(t, []error{nil, nil}, errs)
	require.Equal(t, 3, outs[0].Ready)
	require.Zero(t, outs[1].Ready)
	check(t, s, q)
}
