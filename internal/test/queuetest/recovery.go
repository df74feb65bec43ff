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

// losses counts what a queue reports to OnLost.
type losses struct {
	mu   sync.Mutex
	seen []uint32
}

func watch(q *redisq.Queue) *losses {
	l := &losses{}
	q.OnLost(func(consumer uint32) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen = append(l.seen, consumer)
	})
	return l
}

// take returns the reports since the last take.
func (l *losses) take() []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.seen
	l.seen = nil
	return out
}

func firstContactIsAdoption(t *testing.T, s Server) {
	q := s.Queue(100)
	l := watch(q)
	require.Zero(t, q.Incarnation())
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	require.Equal(t, []uint32{consumer}, l.take())
	require.EqualValues(t, 1, q.Incarnation())
	claim(t, q, 1, never)
	require.Empty(t, l.take())
	require.EqualValues(t, 1, q.Incarnation())
}

func secondBrokerAdopts(t *testing.T, s Server) {
	a, b := s.Queue(100), s.Queue(100)
	put(t, a, jobs(1, 2, 0), redisq.Fresh)
	la, lb := watch(a), watch(b)
	require.Len(t, claim(t, b, 1, never).Leases, 1)
	require.Equal(t, []uint32{consumer}, lb.take())
	require.Len(t, claim(t, a, 1, never).Leases, 1)
	require.Empty(t, la.take())
	check(t, s, a)
}

func everyVerbNoticesFlush(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	lost := watch(q)
	one := []redisq.Lease{{ID: at(1), Token: "a.1"}}
	for name, verb := range map[string]func() error{
		"enqueue": func() error { _, err := q.Enqueue(ctx, consumer, jobs(1, 1, 0), redisq.Fresh); return err },
		"enqueue many": func() error {
			_, errs := q.EnqueueMany(ctx, []redisq.Batch{{Consumer: consumer, Jobs: jobs(1, 1, 0)}})
			return errs[0]
		},
		"claim":      func() error { _, err := q.Claim(ctx, consumer, 1, never, redisq.Limits{}); return err },
		"claim one":  func() error { _, _, err := q.ClaimOne(ctx, consumer, redisq.Job{}, never, false); return err },
		"extend":     func() error { _, err := q.Extend(ctx, consumer, one, never); return err },
		"ack":        func() error { _, err := q.Ack(ctx, consumer, span(1, 1)); return err },
		"ack leases": func() error { _, err := q.AckLeases(ctx, consumer, one); return err },
		"ack many": func() error {
			_, errs := q.AckMany(ctx, []redisq.Done{{Consumer: consumer, IDs: span(1, 1)}})
			return errs[0]
		},
		"restore leases": func() error {
			_, err := q.RestoreLeases(ctx, consumer, []redisq.Lease{{ID: at(1), Token: "a.1", Attempt: 1}}, never)
			return err
		},
		"nack":      func() error { _, err := q.Nack(ctx, consumer, one, each(1, never)); return err },
		"give back": func() error { _, err := q.GiveBack(ctx, consumer, one, each(1, never)); return err },
		"release":   func() error { _, err := q.Release(ctx, consumer, one); return err },
		"reclaim":   func() error { _, err := q.Reclaim(ctx, consumer, 1, 1); return err },
		"peek":      func() error { _, err := q.Peek(ctx, consumer, nil, 1); return err },
		"probe":     func() error { _, err := q.Probe(ctx, consumer, span(1, 1)); return err },
		"stats":     func() error { _, err := q.Stats(ctx, consumer); return err },
		"spilled":   func() error { return q.SetSpilled(ctx, consumer, -1) },
		"spill":     func() error { _, err := q.ReplaceSpilled(ctx, consumer, -1, 0); return err },
		"renew":     func() error { return q.Renew(ctx, consumer) },
	} {
		require.NoError(t, q.SetSpilled(ctx, consumer, -1))
		lost.take()
		incarnation := q.Incarnation()
		s.Flush()
		require.NoError(t, verb(), name)
		require.Equal(t, []uint32{consumer}, lost.take(), name)
		require.Equal(t, incarnation+1, q.Incarnation(), name)
		check(t, s, q)
	}
}

// A scan of the store puts jobs back only into the state with the epoch that it has read,
// whether this broker or another one notices the loss first.
func recoverOnlyInto(t *testing.T, s Server) {
	ctx := context.Background()
	walker, other := s.Queue(100), s.Queue(100)
	lost := watch(walker)
	for name, meet := range map[string]func(){
		"unnoticed":              func() {},
		"noticed by another":     func() { put(t, other, jobs(9, 1, 0), redisq.Fresh) },
		"noticed by this broker": func() { put(t, walker, jobs(9, 1, 0), redisq.Fresh) },
	} {
		stats, err := walker.Stats(ctx, consumer)
		require.NoError(t, err, name)
		lost.take()
		s.Flush()
		meet()
		_, err = walker.Recover(ctx, consumer, stats.Epoch, jobs(0, 3, 0))
		require.ErrorIs(t, err, redisq.ErrLost, name)
		require.Equal(t, []uint32{consumer}, lost.take(), name)
		standings, err := walker.Probe(ctx, consumer, span(0, 3))
		require.NoError(t, err, name)
		for _, st := range standings {
			require.Equal(t, redisq.Missing, st.State, name)
		}
		stats, err = walker.Stats(ctx, consumer)
		require.NoError(t, err, name)
		e, err := walker.Recover(ctx, consumer, stats.Epoch, jobs(0, 3, 0))
		require.NoError(t, err, name)
		require.Equal(t, 3, e.Added, name)
		check(t, s, walker)
	}
}

// Repeated jobs are offered only to the state of their first offer, since their leases were
// lost with that state. Jobs without a first offer are left to the scan of the store.
func offerAgainOnlyThere(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	lost := watch(q)
	batch := redisq.Batch{Consumer: consumer, Jobs: jobs(0, 3, 0)}
	again := func(q *redisq.Queue) error { return q.EnqueueAgain(ctx, []redisq.Batch{batch})[0] }
	states := func() (out []redisq.State) {
		standings, err := s.Queue(100).Probe(ctx, consumer, span(0, 2))
		require.NoError(t, err)
		for _, st := range standings {
			out = append(out, st.State)
		}
		return out
	}
	require.ErrorIs(t, again(q), redisq.ErrLost)
	require.Equal(t, []redisq.State{redisq.Missing, redisq.Missing, redisq.Missing}, states())
	out, errs := q.EnqueueMany(ctx, []redisq.Batch{batch})
	require.NoError(t, errs[0])
	require.Equal(t, q.Epoch(consumer), out[0].Epoch)
	batch.Epoch = out[0].Epoch
	claim(t, q, 1, never)
	require.NoError(t, again(q))
	require.Equal(t, []redisq.State{redisq.Leased, redisq.Ready, redisq.Ready}, states(), "known jobs stay unchanged")

	lost.take()
	s.Flush()
	require.ErrorIs(t, again(q), redisq.ErrLost)
	require.Equal(t, []uint32{consumer}, lost.take())
	require.Equal(t, []redisq.State{redisq.Missing, redisq.Missing, redisq.Missing}, states())
	require.ErrorIs(t, again(q), redisq.ErrLost, "also after the queue has noticed the loss")
	require.ErrorIs(t, again(s.Queue(100)), redisq.ErrLost)
	require.Empty(t, lost.take(), "a loss is reported once")
	require.Equal(t, []redisq.State{redisq.Missing, redisq.Missing, redisq.Missing}, states())
	check(t, s, q)
}

// A flush follows one step in the life of some jobs, for each step in turn. After the report
// of the loss, a store that knows which jobs are over offers the others again.
func flushAtAnyStep(t *testing.T, s Server) {
	ctx := context.Background()
	const n = 6
	for cut := range 9 {
		q := s.Queue(100)
		var lost []uint32
		q.OnLost(func(c uint32) { lost = append(lost, c) })
		over := map[ident.ID]bool{}
		var first, rest []redisq.Lease
		steps := []func(){
			func() { put(t, q, jobs(0, n, 0), redisq.Fresh) },
			func() { first = claim(t, q, 3, never).Leases },
			func() { _, err := q.Extend(ctx, consumer, first, never); require.NoError(t, err) },
			func() {
				if len(first) > 0 {
					_, err := q.Nack(ctx, consumer, first[:1], []time.Duration{time.Millisecond})
					require.NoError(t, err)
				}
			},
			func() {
				if len(first) > 1 {
					_, err := q.Release(ctx, consumer, first[1:2])
					require.NoError(t, err)
				}
			},
			func() {
				if len(first) > 2 {
					over[first[2].ID] = true // the store has it
					_, err := q.Ack(ctx, consumer, []ident.ID{first[2].ID})
					require.NoError(t, err)
				}
			},
			func() { rest = claim(t, q, n, time.Millisecond).Leases },
			func() { s.Advance(3 * time.Millisecond); reclaim(t, q, 0) },
			func() {
				for _, l := range rest[:len(rest)/2] {
					over[l.ID] = true
				}
				_, err := q.Ack(ctx, consumer, idsOf(rest[:len(rest)/2]))
				require.NoError(t, err)
			},
		}
		for i, step := range steps {
			step()
			check(t, s, q)
			if i == cut {
				lost = nil
				s.Flush()
			}
		}
		recoverLost := func() {
			if len(lost) == 0 {
				return
			}
			lost = nil
			var open []redisq.Job
			for i := range n {
				if !over[at(i)] {
					open = append(open, redisq.Job{ID: at(i)})
				}
			}
			put(t, q, open, redisq.Recovered)
		}
		for range 20 {
			recoverLost()
			s.Advance(3 * time.Millisecond)
			for _, l := range claim(t, q, n, never).Leases {
				over[l.ID] = true
				_, err := q.Ack(ctx, consumer, []ident.ID{l.ID})
				require.NoError(t, err)
			}
			check(t, s, q)
		}
		for i := range n {
			require.True(t, over[at(i)], "job %d, flushed after step %d", i, cut)
		}
		s.Flush()
	}
}

func racingAfterFlush(t *testing.T, s Server) {
	ctx := context.Background()
	q, other := s.Queue(1000), s.Queue(1000)
	put(t, q, jobs(0, 10, 0), redisq.Fresh)
	claim(t, other, 1, never)
	mine, others := watch(q), watch(other)
	s.Flush()
	var wg sync.WaitGroup
	for i := range 40 {
		broker := q
		if i%2 == 1 {
			broker = other
		}
		wg.Go(func() {
			if _, err := broker.Enqueue(ctx, consumer, jobs(100+i, 1, 0), redisq.Fresh); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []uint32{consumer}, mine.take())
	require.Equal(t, []uint32{consumer}, others.take())
	require.Equal(t, 40, stats(t, q).Ready)
	check(t, s, q)
}

func manyAdoptedAtOnce(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	lost := watch(q)
	numbers := make([]uint32, 400)
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	for range 2 {
		_, errs := q.StatsMany(ctx, numbers)
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.ElementsMatch(t, numbers, lost.take())
		s.Flush()
	}
}

func renewIsNoticed(t *testing.T, s Server) {
	ctx := context.Background()
	a, b := s.Queue(100), s.Queue(100)
	put(t, a, jobs(1, 3, 0), redisq.Fresh)
	leases := claim(t, b, 2, never).Leases
	la, lb := watch(a), watch(b)
	require.NoError(t, a.Renew(ctx, consumer))
	require.Equal(t, []uint32{consumer}, la.take())
	require.NoError(t, b.Renew(ctx, consumer), "it knows the old epoch and only adopts the new one")
	require.Equal(t, []uint32{consumer}, lb.take())
	stats(t, a)
	require.Empty(t, la.take(), "one of several brokers that notice the change renews")

	require.Equal(t, redisq.Stats{Ready: 1, Leased: 2, SpilledPriority: -1}, func() redisq.Stats {
		got := stats(t, a)
		got.Oldest, got.NextDue = 0, 0
		return got
	}())
	ok, err := b.Extend(ctx, consumer, leases, never)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, ok, "leases survive")

	c := s.Queue(100)
	lc := watch(c)
	require.NoError(t, c.Renew(ctx, consumer), "a broker without an epoch only adopts")
	require.Equal(t, []uint32{consumer}, lc.take())
	stats(t, a)
	require.Empty(t, la.take())
	check(t, s, a)
}

func forgottenScripts(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	batches := []redisq.Batch{{Consumer: 1, Jobs: jobs(1, 2, 0)}, {Consumer: 2, Jobs: jobs(1, 2, 0)},
		{Consumer: 1, Jobs: jobs(3, 2, 0)}}
	q.EnqueueMany(ctx, batches)
	lost := watch(q)
	require.NoError(t, s.Client.ScriptFlush(ctx).Err())
	out, errs := q.EnqueueMany(ctx, []redisq.Batch{{Consumer: 1, Jobs: jobs(5, 1, 0)}, {Consumer: 2, Jobs: jobs(5, 1, 0)}})
	for i := range out {
		require.NoError(t, errs[i])
		require.Equal(t, 1, out[i].Added)
	}
	require.NoError(t, s.Client.ScriptFlush(ctx).Err())
	require.NoError(t, q.Renew(ctx, 1))
	require.Equal(t, []uint32{1}, lost.take())
	require.NoError(t, s.Client.ScriptFlush(ctx).Err())
	c, err := q.Claim(ctx, 1, 10, never, redisq.Limits{})
	require.NoError(t, err)
	require.Len(t, c.Leases, 5)
}

func tokensNeverRepeat(t *testing.T, s Server) {
	q := s.Queue(100)
	seen := map[string]bool{}
	for range 5 {
		put(t, q, jobs(1, 4, 0), redisq.Fresh)
		for _, l := range claim(t, q, 4, never).Leases {
			require.False(t, seen[l.Token])
			seen[l.Token] = true
		}
		s.Flush()
	}
	require.Len(t, seen, 20)
}

func lostLeasesComeBack(t *testing.T, s Server) {
	ctx := context.Background()
	q, reconciler := s.Queue(1000), s.Queue(1000)
	const n = 600 // more than a batch
	put(t, q, jobs(0, n, 5), redisq.Fresh)
	leases := append(claim(t, q, 500, never).Leases, claim(t, q, 100, never).Leases...)
	s.Flush()
	// One job is put back before its lease is restored, and one waits for a retry.
	put(t, reconciler, []redisq.Job{{ID: at(0), Priority: 5}, {ID: at(1), Priority: 5, Delay: never}}, redisq.Recovered)
	leases[0].Attempt = 3
	for _, span := range []time.Duration{50 * time.Millisecond, never} { // the second call changes nothing
		ok, err := q.RestoreLeases(ctx, consumer, leases, span)
		require.NoError(t, err)
		require.Equal(t, each(n, true), ok)
		check(t, s, q)
	}
	got := standing(t, q, at(0))
	require.Equal(t, redisq.Standing{State: redisq.Leased, Priority: 5, Attempts: 3,
		Flags: redisq.FlagVerify | redisq.FlagRecovered,
		Token: leases[0].Token, At: got.At}, got)
	ok, err := q.Extend(ctx, consumer, leases[1:2], never)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok, "the old token is valid")
	require.Empty(t, claim(t, q, 10, never).Leases)
	s.Advance(60 * time.Millisecond)
	require.Contains(t, returned(reclaim(t, q, 0)), at(0), "a restored lease ends as any lease does")
}

func leasesOfOthersDoNotComeBack(t *testing.T, s Server) {
	ctx := context.Background()
	a, b := s.Queue(100), s.Queue(100)
	put(t, a, jobs(1, 4, 0), redisq.Fresh)
	held := claim(t, a, 4, never).Leases
	s.Flush()
	put(t, b, jobs(1, 1, 0), redisq.Recovered)
	other := claim(t, b, 1, never).Leases[0]
	put(t, b, []redisq.Job{{ID: at(2), Attempts: 1}, {ID: at(3), Attempts: 1, Delay: never}}, redisq.Recovered)
	ok, err := a.RestoreLeases(ctx, consumer, append(held, held[3]), never)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, true, false}, ok)
	require.Equal(t, other.Token, standing(t, a, at(1)).Token)
	require.Equal(t, redisq.Ready, standing(t, a, at(2)).State, "attempt 1 is over: the next one is due")
	require.Equal(t, redisq.Delayed, standing(t, a, at(3)).State)
	_, err = a.RestoreLeases(ctx, consumer, held, 0)
	require.Error(t, err)
	check(t, s, a)
}

func forgottenConsumer(t *testing.T, s Server) {
	ctx := context.Background()
	q, other := s.Queue(100), s.Queue(100)
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	put(t, q, []redisq.Job{{ID: at(9), Delay: never}}, redisq.Fresh)
	claim(t, other, 1, never)
	_, err := q.Enqueue(ctx, consumer+1, jobs(1, 1, 0), redisq.Fresh)
	require.NoError(t, err)
	require.NoError(t, q.Forget(ctx, consumer))
	for _, key := range q.Keys(consumer) {
		require.Zero(t, s.Client.Exists(ctx, key).Val(), key)
	}
	require.NoError(t, q.Forget(ctx, consumer), "nothing is left")
	stats, err := q.Stats(ctx, consumer+1)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Ready, "the others keep their jobs")

	// A broker that has not noticed harms nothing, and what it makes is removed again.
	require.Empty(t, claim(t, other, 10, never).Leases)
	require.NoError(t, q.Forget(ctx, consumer))
	require.Zero(t, s.Client.Exists(ctx, q.Keys(consumer)...).Val())
}
