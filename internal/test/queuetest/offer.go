package queuetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// offer is EnqueueMany of one batch that may be leased at once.
func offer(t *testing.T, q *redisq.Queue, js []redisq.Job, lease time.Duration) redisq.Enqueued {
	t.Helper()
	out, errs := q.EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: js, Lease: lease}})
	require.NoError(t, errs[0])
	return out[0]
}

// An offer leases the jobs that a claim right after it would lease. It does not overtake
// waiting jobs.
func offeredIsLeasedAtOnce(t *testing.T, s Server) {
	ctx := context.Background()
	const window = 4
	for name, c := range map[string]struct {
		before func(t *testing.T, q *redisq.Queue)
		jobs   []redisq.Job
		lease  time.Duration
		leased int
	}{
		"nothing waits":    {nil, jobs(101, 3, 7), never, 3},
		"a whole window":   {nil, jobs(101, window, 0), never, window},
		"mixed priorities": {nil, append(jobs(101, 2, 1), jobs(103, 2, 9)...), never, 4},
		"others are leased": {func(t *testing.T, q *redisq.Queue) {
			put(t, q, jobs(1, 2, 9), redisq.Fresh)
			claim(t, q, 2, never)
		}, jobs(101, 2, 0), never, 2},
		"others are due later": {func(t *testing.T, q *redisq.Queue) { put(t, q, later(1, 2, never), redisq.Fresh) },
			jobs(101, 2, 0), never, 2},
		"no lease is wanted": {nil, jobs(101, 3, 7), 0, 0},
		"one waits, less urgent": {func(t *testing.T, q *redisq.Queue) { put(t, q, jobs(1, 1, 0), redisq.Fresh) },
			jobs(101, 2, 7), never, 0},
		"one is due": {func(t *testing.T, q *redisq.Queue) {
			put(t, q, later(1, 1, time.Millisecond), redisq.Fresh)
			s.Advance(5 * time.Millisecond)
		}, jobs(101, 2, 7), never, 0},
		"four windows wait for a time": {func(t *testing.T, q *redisq.Queue) {
			put(t, q, later(1, 4*window, never), redisq.Fresh)
		}, jobs(101, 2, 0), never, 0},
		"more than a window": {nil, jobs(101, window+1, 0), never, 0},
		"the window has spilled": {func(t *testing.T, q *redisq.Queue) { require.NoError(t, q.SetSpilled(ctx, consumer, 0)) },
			jobs(101, 2, 7), never, 0},
		"they may have come another way": {func(t *testing.T, q *redisq.Queue) {
			put(t, q, jobs(150, 1, 0), redisq.Repeated)
			claim(t, q, 1, never)
		}, jobs(101, 2, 0), never, 0},
		"with attempts":      {nil, []redisq.Job{{ID: at(101), Attempts: 1}}, never, 0},
		"with a delay":       {nil, []redisq.Job{{ID: at(101), Delay: never}}, never, 0},
		"one is named twice": {nil, append(jobs(101, 2, 0), jobs(101, 1, 0)...), never, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s.Flush()
			q := s.Queue(window)
			if c.before != nil {
				c.before(t, q)
			}
			out := offer(t, q, c.jobs, c.lease)
			require.Len(t, out.Leases, c.leased)
			tokens := map[string]bool{}
			for i, l := range out.Leases {
				require.Equal(t, redisq.Lease{ID: c.jobs[i].ID, Priority: c.jobs[i].Priority, Attempt: 1, Token: l.Token}, l)
				require.Equal(t, l.Token, standing(t, q, l.ID).Token)
				require.False(t, tokens[l.Token])
				tokens[l.Token] = true
			}
			check(t, s, q)
			if c.leased == 0 {
				for _, j := range c.jobs {
					require.NotEqual(t, redisq.Leased, standing(t, q, j.ID).State)
				}
				return
			}
			require.Empty(t, claim(t, q, 100, never).Leases, "no other claim gets them")
			ok, err := q.Release(ctx, consumer, out.Leases[:1])
			require.NoError(t, err)
			require.Equal(t, each(1, true), ok)
			require.Equal(t, redisq.Standing{State: redisq.Ready, Priority: c.jobs[0].Priority}, standing(t, q, c.jobs[0].ID),
				"uncharged")
			n, err := q.Ack(ctx, consumer, idsOf(out.Leases))
			require.NoError(t, err)
			require.Equal(t, c.leased, n)
			check(t, s, q)
		})
	}
}

// later returns jobs with a delay.
func later(from, n int, delay time.Duration) []redisq.Job {
	js := jobs(from, n, 0)
	for i := range js {
		js[i].Delay = delay
	}
	return js
}

func racingOffersAndClaims(t *testing.T, s Server) {
	const rounds, size = 40, 5
	var mu sync.Mutex
	holders := map[ident.ID]int{}
	got := func(leases []redisq.Lease) {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range leases {
			holders[l.ID]++
		}
	}
	var offers, claims sync.WaitGroup
	done := make(chan struct{})
	for k := range 4 {
		q := s.Queue(10_000)
		offers.Go(func() {
			for i := range rounds {
				js := jobs(1+(k*rounds+i)*size, size, i%3)
				out, errs := q.EnqueueMany(context.Background(), []redisq.Batch{{Consumer: consumer, Jobs: js, Lease: never}})
				if errs[0] != nil {
					t.Error(errs[0])
					return
				}
				got(out[0].Leases)
			}
		})
		claims.Go(func() {
			for {
				c, err := q.Claim(context.Background(), consumer, 3, never, redisq.Limits{})
				if err != nil {
					t.Error(err)
					return
				}
				got(c.Leases)
				select {
				case <-done:
					if len(c.Leases) == 0 {
						return
					}
				default:
				}
			}
		})
	}
	offers.Wait()
	close(done)
	claims.Wait()
	require.Len(t, holders, 4*rounds*size)
	for id, n := range holders {
		require.Equal(t, 1, n, "job %s", id)
	}
	check(t, s, s.Queue(10_000))
}
