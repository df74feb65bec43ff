package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

func endedLeaseIsReadyAgain(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 8), redisq.Fresh)
	put(t, q, jobs(2, 1, 8), redisq.Fresh)
	claim(t, q, 1, 5*time.Millisecond)
	s.Advance(10 * time.Millisecond)
	require.Empty(t, claim(t, q, 0, never).Leases, "claiming does not reclaim")
	require.Equal(t, redisq.Leased, standing(t, q, at(1)).State)
	got := reclaim(t, q, 3)
	require.Equal(t, []redisq.Job{{ID: at(1), Priority: 8, Attempts: 1}}, got.Returned)
	require.Empty(t, got.Exhausted)
	require.False(t, got.Empty)
	require.Equal(t, redisq.Standing{State: redisq.Ready, Priority: 8, Attempts: 1, Flags: redisq.FlagVerify},
		standing(t, q, at(1)))
	check(t, s, q)
	c := claim(t, q, 10, never)
	require.Equal(t, span(2, 1), idsOf(c.Leases), "it goes after the jobs that are ready")
	require.Equal(t, 2, c.Leases[1].Attempt, "the lost attempt counts")
	require.Empty(t, reclaim(t, q, 3).Returned)
}

func exhaustedStaysWithReclaimer(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, []redisq.Job{{ID: at(1), Priority: 4, Attempts: 2}, {ID: at(2), Priority: 3}}, redisq.Fresh)
	old := claim(t, q, 2, time.Millisecond).Leases
	s.Advance(3 * time.Millisecond)
	got := reclaim(t, q, 3)
	require.Equal(t, span(2, 2), returned(got))
	require.Len(t, got.Exhausted, 1)
	l := got.Exhausted[0]
	require.Equal(t, redisq.Lease{ID: at(1), Priority: 4, Attempt: 3, Flags: redisq.FlagVerify, Token: l.Token}, l)
	require.NotEqual(t, old[0].Token, l.Token)
	stands := standing(t, q, at(1))
	require.Equal(t, redisq.Leased, stands.State)
	require.Equal(t, l.Token, stands.Token)
	check(t, s, q)
	require.Empty(t, reclaim(t, q, 3).Exhausted, "no other caller gets it during the lease")
	ok, err := q.Extend(ctx, consumer, []redisq.Lease{l}, time.Millisecond) // the caller dies
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	s.Advance(3 * time.Millisecond)
	require.Len(t, reclaim(t, q, 3).Exhausted, 1, "another caller gets it after the lease")
	n, err := q.Ack(ctx, consumer, span(1, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	check(t, s, q)
}

func reclaimTellsEmpty(t *testing.T, s Server) {
	q := s.Queue(100)
	require.True(t, reclaim(t, q, 3).Empty)
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	require.False(t, reclaim(t, q, 3).Empty)
	claim(t, q, 1, never)
	require.False(t, reclaim(t, q, 3).Empty)
	_, err := q.Ack(context.Background(), consumer, span(1, 1))
	require.NoError(t, err)
	got := reclaim(t, q, 3)
	require.True(t, got.Empty)
	require.Zero(t, got.NextDue)
	put(t, q, []redisq.Job{{ID: at(2), Delay: never}}, redisq.Fresh)
	got = reclaim(t, q, 3)
	require.False(t, got.Empty)
	require.InDelta(t, never.Seconds(), got.NextDue.Seconds(), 60)
}

func reclaimLetsDueJobsIn(t *testing.T, s Server) {
	q := s.Queue(1000)
	js := jobs(1, 200, 0)
	for i := range js {
		js[i].Delay = time.Millisecond
	}
	put(t, q, js, redisq.Fresh)
	s.Advance(3 * time.Millisecond)
	require.Positive(t, reclaim(t, q, 0).NextDue)
	require.Equal(t, 128, stats(t, q).Ready, "a bounded number per call")
	require.Zero(t, reclaim(t, q, 0).NextDue)
	require.Equal(t, 200, stats(t, q).Ready)
	check(t, s, q)
}

func reclaimIsBounded(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	put(t, q, jobs(1, 10, 0), redisq.Fresh)
	claim(t, q, 10, time.Millisecond)
	s.Advance(3 * time.Millisecond)
	for _, want := range []int{4, 4, 2, 0} {
		got, err := q.Reclaim(ctx, consumer, 4, 0)
		require.NoError(t, err)
		require.Len(t, got.Returned, want)
		require.Equal(t, want == 4, got.NextDue > 0)
	}
	check(t, s, q)
}
