package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

// replayNo is the number of a replay of the consumer.
const replayNo = uint32(43)

// joined returns a queue that knows of the replay, with jobs 1..n of it.
func joined(t *testing.T, s Server, n int) *redisq.Queue {
	t.Helper()
	q := s.Queue(100)
	q.Join(replayNo, consumer)
	_, err := q.Enqueue(context.Background(), replayNo, jobs(1, n, 0), redisq.Recovered)
	require.NoError(t, err)
	return q
}

func claimReplay(t *testing.T, q *redisq.Queue, n int, limits redisq.Limits) redisq.Claim {
	t.Helper()
	c, err := q.Claim(context.Background(), replayNo, n, never, limits)
	require.NoError(t, err)
	return c
}

func replayIsBehindItsConsumer(t *testing.T, s Server) {
	ctx := context.Background()
	q := joined(t, s, 4)
	put(t, q, jobs(1, 1, 0), redisq.Fresh) // the same message, and another job
	c := claimReplay(t, q, 2, redisq.Limits{})
	require.Empty(t, c.Leases, "a live job is ready")
	require.Positive(t, c.NextDue)
	live := claim(t, q, 5, never)
	require.Equal(t, span(1, 1), idsOf(live.Leases), "the live job alone")
	require.Equal(t, span(1, 2), idsOf(claimReplay(t, q, 2, redisq.Limits{}).Leases))

	put(t, q, jobs(9, 1, 0), redisq.Fresh)
	grants, err := q.ClaimEach(ctx, replayNo, []redisq.Wish{{Job: redisq.Job{ID: at(3)}, Lease: never}})
	require.NoError(t, err)
	require.NotEmpty(t, grants[0].Lease.Token, "a worker that names a job gets it")
	_, err = q.Ack(ctx, replayNo, span(1, 3))
	require.NoError(t, err)
	require.Equal(t, redisq.Leased, standing(t, q, at(1)).State, "the live job of the same message is in flight")
	q.Part(replayNo)
	require.NoError(t, q.Forget(ctx, replayNo))
	require.Equal(t, redisq.Leased, standing(t, q, at(1)).State)
	check(t, s, q)
}

func replaySharesTheLimits(t *testing.T, s Server) {
	ctx := context.Background()
	q := joined(t, s, 9)
	three := redisq.Limits{Concurrency: 3}
	require.Len(t, claimReplay(t, q, 2, three).Leases, 2)
	put(t, q, jobs(20, 5, 0), redisq.Fresh)
	c := claimWithin(t, q, 5, three)
	require.Len(t, c.Leases, 1, "two of three are of the replay")
	_, err := q.Ack(ctx, consumer, span(20, 24))
	require.NoError(t, err)
	require.Len(t, claimReplay(t, q, 9, three).Leases, 1)
	require.Equal(t, redisq.ConcurrencyLimit, claimReplay(t, q, 9, three).Limited)
	_, err = q.Ack(ctx, replayNo, span(1, 3))
	require.NoError(t, err)

	rate := redisq.Limits{Rate: redisq.Rate{N: 4, Per: never}}
	first := claimReplay(t, q, 3, rate)
	require.Len(t, first.Leases, 3)
	put(t, q, jobs(30, 5, 0), redisq.Fresh)
	require.Len(t, claimWithin(t, q, 5, rate).Leases, 1, "the rate counts both")
	_, err = q.Release(ctx, replayNo, first.Leases[:1])
	require.NoError(t, err)
	require.Len(t, claimWithin(t, q, 5, rate).Leases, 1, "what was not used is not counted")
	_, err = q.Ack(ctx, consumer, span(30, 34))
	require.NoError(t, err)

	require.NoError(t, q.Hold(ctx, consumer, never))
	require.Empty(t, claimReplay(t, q, 1, redisq.Limits{}).Leases, "the consumer asked to be held")
	require.NoError(t, q.Hold(ctx, consumer, 0))
	require.Len(t, claimReplay(t, q, 1, redisq.Limits{}).Leases, 1)
	check(t, s, q)
}

func replayHasARateOfItsOwn(t *testing.T, s Server) {
	q := joined(t, s, 9)
	limits := redisq.Limits{Rate: redisq.Rate{N: 6, Per: never}, Own: redisq.Rate{N: 2, Per: 200 * time.Millisecond}}
	c := claimReplay(t, q, 5, limits)
	require.Len(t, c.Leases, 2)
	c = claimReplay(t, q, 5, limits)
	require.Empty(t, c.Leases)
	require.Positive(t, c.NextDue)
	require.LessOrEqual(t, c.NextDue, limits.Own.Per+limits.Own.Per/32)
	s.Advance(2 * limits.Own.Per)
	require.Len(t, claimReplay(t, q, 5, limits).Leases, 2)
	put(t, q, jobs(20, 5, 0), redisq.Fresh)
	require.Len(t, claimWithin(t, q, 5, redisq.Limits{Rate: limits.Rate}).Leases, 2, "four of six are of the replay")
	check(t, s, q)
}
