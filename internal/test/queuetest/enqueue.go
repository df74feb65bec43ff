package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func enqueuedJobIsClaimedOnce(t *testing.T, s Server) {
	q := s.Queue(100)
	got := put(t, q, jobs(1, 3, 5), redisq.Fresh)
	require.Equal(t, redisq.Enqueued{Added: 3, SpilledPriority: -1, FirstSpilled: -1}, got)
	c := claim(t, q, 2, never)
	require.Equal(t, span(1, 2), idsOf(c.Leases))
	require.Equal(t, 1, c.Ready)
	require.False(t, c.Spilled)
	for _, l := range c.Leases {
		require.Equal(t, 5, l.Priority)
		require.Equal(t, 1, l.Attempt)
		require.Zero(t, l.Flags)
		require.NotEmpty(t, l.Token)
	}
	require.NotEqual(t, c.Leases[0].Token, c.Leases[1].Token)
	require.Equal(t, c.Leases[0].Token, standing(t, q, at(1)).Token, "the token is the stored one")
	require.Equal(t, span(3, 3), idsOf(claim(t, q, 10, never).Leases))
	require.Empty(t, claim(t, q, 10, never).Leases)
	check(t, s, q)
}

func higherPriorityGoesFirst(t *testing.T, s Server) {
	q := s.Queue(100)
	for i, priority := range []int{0, 512, 1, 1023, 1022, 2} {
		put(t, q, jobs(i, 1, priority), redisq.Fresh)
		s.Advance(2 * time.Millisecond)
	}
	c := claim(t, q, 10, never)
	var got []int
	for _, l := range c.Leases {
		got = append(got, l.Priority)
	}
	require.Equal(t, []int{1023, 1022, 512, 2, 1, 0}, got)
	check(t, s, q)
}

func oldestGoesFirst(t *testing.T, s Server) {
	q := s.Queue(100)
	// The ID decides, not the order in the call or of the calls.
	put(t, q, []redisq.Job{{ID: at(9)}, {ID: at(7)}, {ID: at(8)}}, redisq.Fresh)
	s.Advance(2 * time.Millisecond)
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	require.Equal(t, append(span(1, 3), span(7, 9)...), idsOf(claim(t, q, 10, never).Leases))
}

func delayedJobBecomesReady(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, []redisq.Job{
		{ID: at(1), Priority: 3, Delay: 10 * time.Millisecond},
		{ID: at(2), Priority: 3, Delay: never, Attempts: 2},
		{ID: at(3), Priority: 1023, Delay: 11 * time.Millisecond},
	}, redisq.Fresh)
	require.Equal(t, redisq.Delayed, standing(t, q, at(2)).State)
	require.Equal(t, 2, standing(t, q, at(2)).Attempts)
	check(t, s, q)
	s.Advance(15 * time.Millisecond)
	c := claim(t, q, 10, never)
	require.Equal(t, span(3, 3), idsOf(c.Leases)[:1], "priority decides between due jobs")
	require.Equal(t, span(1, 1), idsOf(c.Leases)[1:])
	require.Equal(t, 1, c.Leases[1].Attempt)
	require.InDelta(t, never.Seconds(), c.NextDue.Seconds(), 60)
	check(t, s, q)
}

func freshJobsOfferedTwice(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	got := put(t, q, jobs(2, 3, 0), redisq.Fresh)
	require.Equal(t, 1, got.Added)
	require.Equal(t, 2, got.Known)
	twice := []redisq.Job{{ID: at(9)}, {ID: at(9)}}
	got = put(t, q, twice, redisq.Fresh)
	require.Equal(t, 1, got.Added)
	delayed := []redisq.Job{{ID: at(20), Delay: never}, {ID: at(20), Delay: never}}
	require.Equal(t, 1, put(t, q, delayed, redisq.Fresh).Added)
	require.Equal(t, 2, put(t, q, delayed, redisq.Fresh).Known)
	require.Len(t, claim(t, q, 100, never).Leases, 5)
	check(t, s, q)
}

func repeatedJobsAreKnown(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 4), redisq.Fresh)
	put(t, q, []redisq.Job{{ID: at(3), Priority: 4, Delay: never}}, redisq.Fresh)
	leased := claim(t, q, 1, never).Leases[0]
	var before []redisq.Standing
	for _, id := range span(1, 3) {
		before = append(before, standing(t, q, id))
	}
	for _, src := range []redisq.Source{redisq.Repeated, redisq.Recovered} {
		got := put(t, q, jobs(1, 3, 9), src)
		require.Equal(t, redisq.Enqueued{Known: 3, SpilledPriority: -1, FirstSpilled: -1}, got)
	}
	for i, id := range span(1, 3) {
		require.Equal(t, before[i], standing(t, q, id))
	}
	require.Equal(t, leased.Token, before[0].Token)
	check(t, s, q)
}

func offeredAgainIsFlagged(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 0), redisq.Repeated)
	put(t, q, []redisq.Job{{ID: at(2), Priority: 1, Attempts: 3}}, redisq.Recovered)
	c := claim(t, q, 2, never)
	require.Equal(t, redisq.FlagVerify, c.Leases[0].Flags)
	require.Equal(t, 1, c.Leases[0].Attempt)
	require.Equal(t, redisq.FlagVerify|redisq.FlagRecovered, c.Leases[1].Flags)
	require.Equal(t, 4, c.Leases[1].Attempt)
	check(t, s, q)
}

// A fresh offer is delayed until other calls have added its jobs. It changes none of those
// jobs, and it flags the jobs that Redis does not know, so that the store is asked.
func lateFreshJobsAreVerified(t *testing.T, s Server) {
	ctx := context.Background()
	ways := map[string]func(t *testing.T, q *redisq.Queue, js []redisq.Job){
		"repeated":  func(t *testing.T, q *redisq.Queue, js []redisq.Job) { put(t, q, js, redisq.Repeated) },
		"recovered": func(t *testing.T, q *redisq.Queue, js []redisq.Job) { put(t, q, js, redisq.Recovered) },
		"named by a worker": func(t *testing.T, q *redisq.Queue, js []redisq.Job) {
			for _, j := range js {
				l, _, err := q.ClaimOne(ctx, consumer, j, never, true)
				require.NoError(t, err)
				lost, err := q.Release(ctx, consumer, []redisq.Lease{l})
				require.NoError(t, err)
				require.Equal(t, each(1, true), lost)
			}
		},
		"held": func(t *testing.T, q *redisq.Queue, js []redisq.Job) {
			var leases []redisq.Lease
			for _, j := range js {
				leases = append(leases, redisq.Lease{ID: j.ID, Priority: j.Priority, Attempt: 1, Token: "t" + j.ID.String()})
			}
			ok, err := q.RestoreLeases(ctx, consumer, leases, never)
			require.NoError(t, err)
			require.Equal(t, each(len(js), true), ok)
			_, err = q.Release(ctx, consumer, leases)
			require.NoError(t, err)
		},
	}
	for name, bring := range ways {
		t.Run(name, func(t *testing.T) {
			s.Flush()
			q := s.Queue(100)
			bring(t, q, jobs(1, 4, 0))
			leases := claim(t, q, 3, never).Leases
			require.Len(t, leases, 3)
			_, err := q.Nack(ctx, consumer, leases[1:2], each(1, never)) // 1 is leased, 2 delayed, 3 over, 4 ready
			require.NoError(t, err)
			_, err = q.Ack(ctx, consumer, []ident.ID{leases[2].ID})
			require.NoError(t, err)
			var before []redisq.Standing
			for _, id := range []int{1, 2, 4} {
				before = append(before, standing(t, q, at(id)))
			}

			out, errs := q.EnqueueMany(ctx, []redisq.Batch{{Consumer: consumer, Jobs: jobs(1, 5, 0)}}) // 5 is newer

			require.NoError(t, errs[0])
			require.Equal(t, 2, out[0].Added)
			require.Equal(t, 3, out[0].Known)
			for i, id := range []int{1, 2, 4} {
				require.Equal(t, before[i], standing(t, q, at(id)))
			}
			require.Equal(t, redisq.FlagVerify, standing(t, q, at(3)).Flags, "it may be over")
			require.Zero(t, standing(t, q, at(5)).Flags)
			check(t, s, q)
		})
	}
}

func recoveredJobKeepsItsPlace(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(5, 2, 0), redisq.Fresh)
	put(t, q, jobs(1, 2, 0), redisq.Recovered)
	future := ident.AtMillis(4_000_000_000_000) // ID from a broker with a wrong clock
	put(t, q, []redisq.Job{{ID: future}}, redisq.Recovered)
	s.Advance(2 * time.Millisecond)
	put(t, q, jobs(9, 1, 0), redisq.Fresh)
	want := append(append(span(1, 2), span(5, 6)...), at(9), future)
	require.Equal(t, want, idsOf(claim(t, q, 100, never).Leases))
}

func largeCallsAreSplit(t *testing.T, s Server) {
	const n = 2*redisq.MaxBatch + 100
	ctx := context.Background()
	q := s.Queue(n - 50)
	js := jobs(0, n, 0)
	got := put(t, q, js, redisq.Fresh)
	require.Equal(t, redisq.Enqueued{Added: n - 50, Spilled: 50, SpilledPriority: 0, FirstSpilled: n - 50}, got)
	ids := make([]ident.ID, n)
	for i, j := range js {
		ids[i] = j.ID
	}
	where, err := q.Probe(ctx, consumer, ids)
	require.NoError(t, err)
	require.Len(t, where, n)
	require.Equal(t, redisq.Ready, where[n-51].State)
	require.Equal(t, redisq.Missing, where[n-50].State)

	var leases []redisq.Lease
	for len(leases) < n-50 {
		c := claim(t, q, 10_000, never)
		require.NotEmpty(t, c.Leases)
		require.LessOrEqual(t, len(c.Leases), redisq.MaxBatch)
		leases = append(leases, c.Leases...)
	}
	ok, err := q.Extend(ctx, consumer, leases, never)
	require.NoError(t, err)
	require.Equal(t, each(n-50, true), ok)
	half := len(leases) / 2
	ok, err = q.Nack(ctx, consumer, leases[:half], each(half, never))
	require.NoError(t, err)
	require.Equal(t, each(half, true), ok)
	ok, err = q.Release(ctx, consumer, leases[half:])
	require.NoError(t, err)
	require.Equal(t, each(n-50-half, true), ok)
	check(t, s, q)
	removed, err := q.Ack(ctx, consumer, ids)
	require.NoError(t, err)
	require.Equal(t, n-50, removed)
	check(t, s, q)
}

func fanOutReachesEveryConsumer(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	const consumers = 300
	var batches []redisq.Batch
	for c := range uint32(consumers) {
		batches = append(batches, redisq.Batch{Consumer: c, Jobs: jobs(1, 1+int(c%3), 0)})
	}
	batches = append(batches, redisq.Batch{Consumer: 5000}, redisq.Batch{Consumer: 5001, Jobs: jobs(1, 700, 0)})
	for round := range 2 {
		out, errs := q.EnqueueMany(ctx, batches)
		require.Len(t, out, len(batches))
		for i, b := range batches {
			require.NoError(t, errs[i])
			if round == 0 {
				require.Equal(t, len(b.Jobs), out[i].Added)
			} else {
				require.Equal(t, len(b.Jobs), out[i].Known)
			}
			require.Equal(t, -1, out[i].FirstSpilled)
		}
	}
	numbers := make([]uint32, len(batches))
	for i, b := range batches {
		numbers[i] = b.Consumer
	}
	all, errs := q.StatsMany(ctx, numbers)
	for i, b := range batches {
		require.NoError(t, errs[i])
		require.Equal(t, len(b.Jobs), all[i].Ready)
		CheckInvariants(t, s.Client, q, b.Consumer)
	}
}

// In a fan-out with several priorities, retries and more jobs than the window holds, each job
// is admitted or spilled on its own, and the result names the first spilled one.
func fanOutOfMixedJobsSpillsWhatHasNoRoom(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(3)
	batch := []redisq.Job{
		{ID: at(1)}, {ID: at(2), Priority: 9}, {ID: at(3), Attempts: 2}, {ID: at(4)}, {ID: at(5)}, {ID: at(7)},
		{ID: at(6), Delay: never},
	}
	out, errs := q.EnqueueMany(ctx, []redisq.Batch{{Consumer: consumer, Jobs: batch}, {Consumer: 77, Jobs: jobs(1, 1, 0)}})
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Equal(t, 1, out[1].Added)
	sum := out[0]
	require.Equal(t, len(batch), sum.Added+sum.Spilled)
	require.Positive(t, sum.Spilled)
	require.Zero(t, sum.SpilledPriority)
	ids := make([]ident.ID, len(batch))
	for i, j := range batch {
		ids[i] = j.ID
	}
	standings, err := q.Probe(ctx, consumer, ids)
	require.NoError(t, err)
	first := -1
	for i, st := range standings {
		if st.State == redisq.Missing && first < 0 {
			first = i
		}
	}
	require.Equal(t, first, sum.FirstSpilled)
	check(t, s, q)
}

func badBatchDoesNotHarm(t *testing.T, s Server) {
	q := s.Queue(100)
	// A key of another type is a broken consumer.
	require.NoError(t, s.Client.Set(context.Background(), q.Keys(2)[0], "x", 0).Err())
	out, errs := q.EnqueueMany(context.Background(), []redisq.Batch{
		{Consumer: 1, Jobs: jobs(1, 1, 0)},
		{Consumer: 2, Jobs: jobs(1, 1, 0)},
		{Consumer: 3, Jobs: jobs(1, 1, 4096)},
		{Consumer: 4, Jobs: jobs(1, 1, 0)},
	})
	require.NoError(t, errs[0])
	require.Error(t, errs[1])
	require.Error(t, errs[2])
	require.NoError(t, errs[3])
	require.Equal(t, 1, out[0].Added)
	require.Equal(t, 1, out[3].Added)
}

func badArgumentsChangeNothing(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 2, 0), redisq.Fresh)
	leases := claim(t, q, 1, never).Leases
	before := stats(t, q)
	for _, j := range []redisq.Job{{ID: at(5), Priority: -1}, {ID: at(5), Priority: 1024}, {ID: at(5), Attempts: -1}} {
		_, err := q.Enqueue(ctx, consumer, []redisq.Job{{ID: at(4)}, j}, redisq.Fresh)
		require.Error(t, err)
		_, _, err = q.ClaimOne(ctx, consumer, j, never, true)
		require.Error(t, err)
	}
	_, err := q.Claim(ctx, consumer, 1, 0, redisq.Limits{})
	require.Error(t, err)
	_, err = q.Extend(ctx, consumer, leases, -time.Second)
	require.Error(t, err)
	_, err = q.Nack(ctx, consumer, leases, nil)
	require.Error(t, err)
	require.Error(t, q.SetSpilled(ctx, consumer, 1024))
	require.Error(t, q.SetSpilled(ctx, consumer, -2))
	after := stats(t, q)
	after.Oldest, after.NextDue = before.Oldest, before.NextDue
	require.Equal(t, before, after)

	none, err := q.Enqueue(ctx, consumer, nil, redisq.Fresh)
	require.NoError(t, err)
	require.Equal(t, redisq.Enqueued{SpilledPriority: -1, FirstSpilled: -1}, none)
	ok, err := q.Nack(ctx, consumer, nil, nil)
	require.NoError(t, err)
	require.Empty(t, ok)
	n, err := q.Ack(ctx, consumer, nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, claim(t, q, 0, never).Leases, "no jobs wanted")
	require.Empty(t, claim(t, q, -3, never).Leases)
}

func consumersDoNotSeeEachOther(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 1, 0), redisq.Fresh)
	c, err := q.Claim(ctx, consumer+1, 10, never, redisq.Limits{})
	require.NoError(t, err)
	require.Empty(t, c.Leases)
	n, err := q.Ack(ctx, consumer+1, span(1, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	require.Len(t, claim(t, q, 10, never).Leases, 1)
}

func extremesAreExact(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, []redisq.Job{{ID: ident.ID{5: 1}, Priority: 0}, {ID: ident.Max(), Priority: 1023}}, redisq.Recovered)
	put(t, q, []redisq.Job{{ID: at(1), Priority: 1, Delay: 1 << 62}}, redisq.Fresh)
	tenYears := time.Now().AddDate(9, 0, 0)
	require.True(t, standing(t, q, at(1)).At.After(tenYears), "a delay is clamped and does not overflow")
	check(t, s, q)
	waiting, err := q.Peek(context.Background(), consumer, nil, 10)
	require.NoError(t, err)
	require.Len(t, waiting, 2)
	require.Equal(t, ident.Max(), waiting[0].ID)
	require.Equal(t, 1023, waiting[0].Priority)
	require.Equal(t, 0, waiting[1].Priority)
	require.Equal(t, int64(1023)<<42+1, waiting[1].Score, "ready since the time in its ID")
}
