package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func park(t *testing.T, q *redisq.Queue, leases []redisq.Lease, delay time.Duration) []bool {
	t.Helper()
	delays := make([]time.Duration, len(leases))
	for i := range delays {
		delays[i] = delay
	}
	ok, err := q.Park(context.Background(), consumer, leases, delays)
	require.NoError(t, err)
	return ok
}

func unpark(t *testing.T, q *redisq.Queue, ids ...ident.ID) int {
	t.Helper()
	list := make([]redisq.Job, len(ids))
	for i, id := range ids {
		list[i].ID = id
	}
	n, err := q.Unpark(context.Background(), consumer, list)
	require.NoError(t, err)
	return n
}

func parkedJobKeepsItsPlace(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	l := claim(t, q, 2, never).Leases
	require.Equal(t, []bool{true, true}, park(t, q, l, never))
	check(t, s, q)
	require.Equal(t, []bool{false, false}, park(t, q, l, never), "the leases are over")
	require.Equal(t, 1, unpark(t, q, at(1)))
	require.Equal(t, 0, unpark(t, q, at(1), at(3)), "ready jobs stay as they are")
	check(t, s, q)
	got := claim(t, q, 3, never).Leases
	require.Equal(t, []ident.ID{at(1), at(3)}, []ident.ID{got[0].ID, got[1].ID}, "at its old place, before a later job")
	require.Equal(t, 1, got[0].Attempt, "nothing was charged")
}

func parkedJobIsDueInTheEnd(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 0), redisq.Fresh)
	park(t, q, claim(t, q, 1, never).Leases, never)
	park(t, q, claim(t, q, 1, never).Leases, 5*time.Millisecond)
	s.Advance(8 * time.Millisecond)
	require.Equal(t, span(2, 2), idsOf(claim(t, q, 2, never).Leases))
	check(t, s, q)
}

func unparkedBeforeParked(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	l := claim(t, q, 1, never).Leases
	require.Equal(t, 0, unpark(t, q, at(1)), "it is leased")
	check(t, s, q)
	require.Equal(t, []bool{true}, park(t, q, l, never))
	check(t, s, q)
	require.Len(t, claim(t, q, 1, never).Leases, 1, "ready at once")
}

func unparkLeavesRetriesAlone(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	_, err := q.Nack(context.Background(), consumer, claim(t, q, 1, never).Leases, []time.Duration{never})
	require.NoError(t, err)
	require.Equal(t, 0, unpark(t, q, at(1)))
	require.Empty(t, claim(t, q, 1, never).Leases, "its backoff is not over")
	check(t, s, q)
}

// Parked jobs are bounded, and never keep other jobs from being leased.
func parkedJobsAreBounded(t *testing.T, s Server) {
	q := s.Queue(10)
	for i := range 6 {
		put(t, q, jobs(1+10*i, 10, 0), redisq.Fresh)
		park(t, q, claim(t, q, 10, never).Leases, never)
		check(t, s, q)
	}
	stats, err := q.Stats(context.Background(), consumer)
	require.NoError(t, err)
	require.Equal(t, 30, stats.Delayed, "three windows")
	put(t, q, jobs(100, 1, 0), redisq.Fresh)
	require.Len(t, claim(t, q, 1, never).Leases, 1)
	require.Equal(t, 1, unpark(t, q, at(60)), "a removed one is added again")
	check(t, s, q)
	got := claim(t, q, 1, never).Leases
	require.Equal(t, at(60), got[0].ID)
	require.Equal(t, redisq.FlagVerify, got[0].Flags)
}

// The hook runs before the jobs are removed, and its failure keeps them.
func ackAsksItsHookFirst(t *testing.T, s Server) {
	q := s.Queue(100)
	var hook error
	q.BeforeAck(func(_ context.Context, k uint32, ids []ident.ID) error {
		require.Equal(t, uint32(consumer), k)
		require.Equal(t, []ident.ID{at(1)}, ids)
		return hook
	})
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	hook = context.DeadlineExceeded
	_, err := q.Ack(context.Background(), consumer, []ident.ID{at(1)})
	require.ErrorIs(t, err, hook)
	_, errs := q.AckMany(context.Background(), []redisq.Done{{Consumer: consumer, IDs: []ident.ID{at(1)}}})
	require.ErrorIs(t, errs[0], hook)
	hook = nil
	n, err := q.Ack(context.Background(), consumer, []ident.ID{at(1)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
