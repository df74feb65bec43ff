package queuetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

func brokersSharePlaces(t *testing.T, s Server) {
	ctx := context.Background()
	rate := []redisq.PublishRate{{Name: "c1", N: 100, Per: 10 * time.Second}}
	a, b := s.Queue(100), s.Queue(100)
	var taken atomic.Int64
	var all sync.WaitGroup
	for i, q := range []*redisq.Queue{a, b} {
		all.Go(func() {
			for range 50 {
				got, err := q.TakePlaces(ctx, i+2, rate)
				require.NoError(t, err)
				taken.Add(int64(got.N))
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 100, taken.Load(), "of 250 that were wanted")
	got, err := b.TakePlaces(ctx, 3, rate)
	require.NoError(t, err)
	require.Zero(t, got.N)
	require.Zero(t, got.By)
	require.Greater(t, got.Wait, time.Duration(0))
	require.LessOrEqual(t, got.Wait, 10*time.Second+time.Second, "a window and a bucket")
	other, err := a.TakePlaces(ctx, 3, []redisq.PublishRate{{Name: "c2", N: 5, Per: time.Second}})
	require.NoError(t, err)
	require.Equal(t, redisq.Places{N: 3, By: -1}, other, "another name")

	s.Advance(got.Wait + 10*time.Millisecond)
	got, err = a.TakePlaces(ctx, 1, rate)
	require.NoError(t, err)
	require.Equal(t, 1, got.N)
	s.Flush()
	got, err = a.TakePlaces(ctx, 100, rate)
	require.NoError(t, err)
	require.Equal(t, 100, got.N, "what Redis has lost does not count")
}

func placesInAllRates(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	wide := redisq.PublishRate{Name: "p1", N: 10, Per: time.Hour}
	narrow := redisq.PublishRate{Name: "g1", N: 4, Per: time.Hour}
	got, err := q.TakePlaces(ctx, 6, []redisq.PublishRate{wide, narrow})
	require.NoError(t, err)
	require.Equal(t, 4, got.N)
	require.Equal(t, 1, got.By)
	require.Greater(t, got.Wait, 58*time.Minute)
	got, err = q.TakePlaces(ctx, 1, []redisq.PublishRate{wide, narrow})
	require.NoError(t, err)
	require.Zero(t, got.N)
	got, err = q.TakePlaces(ctx, 10, []redisq.PublishRate{wide})
	require.NoError(t, err)
	require.Equal(t, 6, got.N, "a refused message takes no place anywhere")
	require.Zero(t, got.By)
	wide.N = 3 // a rate that was lowered below what is counted
	got, err = q.TakePlaces(ctx, 1, []redisq.PublishRate{wide})
	require.NoError(t, err)
	require.Zero(t, got.N)
}
