package queuetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func claimedByName(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 9), redisq.Fresh)
	put(t, q, []redisq.Job{{ID: at(3), Priority: 8, Delay: never, Attempts: 4}}, redisq.Fresh)

	l, before, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: at(2), Priority: 1, Attempts: 50}, never, true)
	require.NoError(t, err)
	require.Equal(t, redisq.Standing{State: redisq.Ready, Priority: 9}, before)
	require.Equal(t, redisq.Lease{ID: at(2), Priority: 9, Attempt: 1, Token: l.Token}, l, "the priority in Redis counts")
	require.Equal(t, l.Token, standing(t, q, at(2)).Token)

	d, before, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: at(3)}, never, false)
	require.NoError(t, err)
	require.Equal(t, redisq.Delayed, before.State)
	require.Equal(t, 4, before.Attempts)
	require.Equal(t, redisq.Lease{ID: at(3), Priority: 8, Attempt: 5, Token: d.Token}, d)
	check(t, s, q)

	none, before, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: at(2)}, never, true)
	require.NoError(t, err)
	require.Zero(t, none)
	require.Equal(t, redisq.Leased, before.State)
	require.Equal(t, l.Token, before.Token)
	require.Equal(t, span(1, 1), idsOf(claim(t, q, 10, never).Leases))

	ok, err := q.Release(ctx, consumer, []redisq.Lease{l, d})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, ok)
	check(t, s, q)
}

func unknownJobOnDemand(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	none, before, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: at(1), Priority: 3}, never, false)
	require.NoError(t, err)
	require.Zero(t, none)
	require.Equal(t, redisq.Standing{State: redisq.Missing}, before)
	require.Equal(t, redisq.Missing, standing(t, q, at(1)).State)

	l, before, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: at(1), Priority: 3, Attempts: 2}, 50*time.Millisecond, true)
	require.NoError(t, err)
	require.Equal(t, redisq.Missing, before.State)
	require.Equal(t, redisq.Lease{ID: at(1), Priority: 3, Attempt: 3, Flags: redisq.FlagVerify, Token: l.Token}, l)
	check(t, s, q)
	s.Advance(60 * time.Millisecond)
	require.Equal(t, span(1, 1), returned(reclaim(t, q, 0)))
}

func racingClaimsOneWins(t *testing.T, s Server) {
	ctx := context.Background()
	put(t, s.Queue(100), jobs(1, 1, 0), redisq.Fresh)
	var won atomic.Int64
	var tokens sync.Map
	var wg sync.WaitGroup
	for range 50 {
		q := s.Queue(100)
		wg.Go(func() {
			l, before, err := q.ClaimOne(ctx, consumer, redisq.Job{ID: at(1)}, never, true)
			if err != nil {
				t.Error(err)
				return
			}
			if before.State != redisq.Leased {
				won.Add(1)
				tokens.Store("won", l.Token)
			} else {
				tokens.Store(before.Token, true)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	token, _ := tokens.LoadAndDelete("won")
	tokens.Range(func(k, _ any) bool {
		require.Equal(t, token, k)
		return true
	})
}

func reapersCountOnce(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	const n = 200
	put(t, q, jobs(0, n, 0), redisq.Fresh)
	claim(t, q, n, time.Millisecond)
	s.Advance(3 * time.Millisecond)
	var mu sync.Mutex
	counted := map[ident.ID]int{}
	var wg sync.WaitGroup
	for range 8 {
		reaper := s.Queue(1000)
		wg.Go(func() {
			for {
				got, err := reaper.Reclaim(ctx, consumer, 7, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if len(got.Returned) == 0 {
					return
				}
				mu.Lock()
				for _, id := range returned(got) {
					counted[id]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, counted, n)
	for id, times := range counted {
		require.Equal(t, 1, times, "job %s", id)
	}
	check(t, s, q)
}

func racingClaimsShare(t *testing.T, s Server) {
	ctx := context.Background()
	const n = 600
	put(t, s.Queue(1000), jobs(0, n, 0), redisq.Fresh)
	var mu sync.Mutex
	got := map[ident.ID]string{}
	var wg sync.WaitGroup
	for range 6 {
		q := s.Queue(1000)
		wg.Go(func() {
			for {
				c, err := q.Claim(ctx, consumer, 7, never, redisq.Limits{})
				if err != nil {
					t.Error(err)
					return
				}
				if len(c.Leases) == 0 {
					return
				}
				mu.Lock()
				for _, l := range c.Leases {
					if got[l.ID] != "" {
						t.Errorf("job %s was claimed twice", l.ID)
					}
					got[l.ID] = l.Token
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, got, n)
}

func reclaimAndAckRace(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	const n = 100
	put(t, q, jobs(0, n, 0), redisq.Fresh)
	claim(t, q, n, time.Millisecond)
	s.Advance(3 * time.Millisecond)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			if _, err := q.Ack(ctx, consumer, []ident.ID{at(i)}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range n {
			if _, err := q.Reclaim(ctx, consumer, 1, 2); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	check(t, s, q)
	require.True(t, reclaim(t, q, 2).Empty)
}
