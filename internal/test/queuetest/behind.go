package queuetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

// behindItsPast is a consumer that gets messages of the past: what is offered as fresh waits until the
// scan of the store is through, also after Redis has lost its memory.
func behindItsPast(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	q.Behind(consumer)
	for range 2 {
		got, err := q.Enqueue(ctx, consumer, jobs(101, 2, redisq.MaxPriority), redisq.Fresh)
		require.NoError(t, err)
		require.Equal(t, 2, got.Spilled)
		spills := stats(t, q).Spills
		put(t, q, jobs(1, 2, 0), redisq.Recovered)
		require.Empty(t, claim(t, q, 5, never).Leases, "the scan is not through")
		settled, err := q.ReplaceSpilled(ctx, consumer, -1, spills)
		require.NoError(t, err)
		require.True(t, settled)
		require.Equal(t, span(1, 2), idsOf(claim(t, q, 5, never).Leases))
		put(t, q, jobs(201, 1, 0), redisq.Fresh)
		require.Equal(t, span(201, 201), idsOf(claim(t, q, 5, never).Leases), "as of any consumer")
		check(t, s, q)
		s.Flush()
	}
}
