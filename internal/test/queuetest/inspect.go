package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// page lists all ready jobs in pages.
func page(t *testing.T, q *redisq.Queue, size int) []ident.ID {
	t.Helper()
	var out []ident.ID
	var after *redisq.Cursor
	for {
		got, err := q.Peek(context.Background(), consumer, after, size)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), size)
		if len(got) == 0 {
			return out
		}
		for _, w := range got {
			out = append(out, w.ID)
			after = &redisq.Cursor{Score: w.Score, ID: w.ID}
		}
	}
}

func historyIsRemembered(t *testing.T, s Server) {
	q := s.Queue(1000)
	history, beat, err := q.RememberedHistory(context.Background())
	require.NoError(t, err)
	require.Zero(t, history|beat)
	require.NoError(t, q.RememberHistory(context.Background(), 1<<62, 1))
	require.NoError(t, q.RememberHistory(context.Background(), 1<<62+7, 9))
	history, beat, err = q.RememberedHistory(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 1<<62+7, history)
	require.EqualValues(t, 9, beat)
}

func peekListsOrder(t *testing.T, s Server) {
	q := s.Queue(1000)
	require.Empty(t, page(t, q, 10))
	put(t, q, jobs(1, 20, 2), redisq.Fresh)
	put(t, q, jobs(30, 5, 7), redisq.Repeated)
	put(t, q, []redisq.Job{{ID: at(60), Priority: 9, Delay: time.Millisecond, Attempts: 3}, {ID: at(50), Priority: 9,
		Delay: time.Millisecond}}, redisq.Fresh)
	s.Advance(3 * time.Millisecond)
	got, err := q.Peek(context.Background(), consumer, nil, 100)
	require.NoError(t, err)
	require.Len(t, got, 27)
	require.Equal(t, redisq.Waiting{ID: at(50), Priority: 9, Score: got[0].Score}, got[0])
	require.Equal(t, redisq.Waiting{ID: at(60), Priority: 9, Attempts: 3, Score: got[1].Score}, got[1])
	require.Equal(t, redisq.Waiting{ID: at(30), Priority: 7, Flags: redisq.FlagVerify, Score: got[2].Score}, got[2])
	for _, size := range []int{1, 3, 500} {
		require.Equal(t, append(append(append(span(50, 50), at(60)), span(30, 34)...), span(1, 20)...), page(t, q, size))
	}
	require.Equal(t, page(t, q, 10), idsOf(claimWithin(t, q, 100, redisq.Limits{RetryShare: 100}).Leases))
	check(t, s, q)
}

func peekGoesOnBehindGone(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(1000)
	put(t, q, jobs(1, 9, 0), redisq.Fresh)
	got, err := q.Peek(ctx, consumer, nil, 4)
	require.NoError(t, err)
	after := &redisq.Cursor{Score: got[3].Score, ID: got[3].ID}
	_, err = q.Ack(ctx, consumer, span(3, 5))
	require.NoError(t, err)
	got, err = q.Peek(ctx, consumer, after, 1)
	require.NoError(t, err)
	require.Equal(t, at(6), got[0].ID)
	_, err = q.Ack(ctx, consumer, span(1, 9))
	require.NoError(t, err)
	got, err = q.Peek(ctx, consumer, after, 1)
	require.NoError(t, err)
	require.Empty(t, got)
}

func peekPagesThroughMillisecond(t *testing.T, s Server) {
	q := s.Queue(1000)
	// Bytes above 127 must not be ordered by a locale.
	var js []redisq.Job
	var want []ident.ID
	for i := range 256 {
		id := ident.ID{0: 1, 7: byte(i), 9: byte(255 - i)}
		want = append(want, id)
		js = append(js, redisq.Job{ID: id})
	}
	put(t, q, js, redisq.Fresh)
	require.Equal(t, want, page(t, q, 7))
}

func probeTellsEveryState(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, []redisq.Job{{ID: at(2), Priority: 1023}}, redisq.Fresh)
	l := claim(t, q, 1, never).Leases[0]
	put(t, q, jobs(1, 1, 6), redisq.Fresh)
	put(t, q, []redisq.Job{{ID: at(3), Priority: 5, Attempts: 7, Delay: never}}, redisq.Repeated)
	got, err := q.Probe(ctx, consumer, span(1, 4))
	require.NoError(t, err)
	require.Equal(t, redisq.Standing{State: redisq.Ready, Priority: 6}, got[0])
	require.Equal(t, redisq.Standing{State: redisq.Leased, Priority: 1023, Attempts: 1, Token: l.Token, At: got[1].At},
		got[1])
	require.Equal(t, redisq.Standing{State: redisq.Delayed, Priority: 5, Attempts: 7, Flags: redisq.FlagVerify,
		At: got[2].At}, got[2])
	require.Equal(t, redisq.Standing{State: redisq.Missing}, got[3])
	require.WithinDuration(t, time.Now().Add(never), got[1].At, time.Minute)
	require.WithinDuration(t, time.Now().Add(never), got[2].At, time.Minute)
	none, err := q.Probe(ctx, consumer, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func statsCount(t *testing.T, s Server) {
	q := s.Queue(100)
	require.Equal(t, redisq.Stats{SpilledPriority: -1}, stats(t, q))
	put(t, q, jobs(1, 3, 0), redisq.Fresh)
	put(t, q, []redisq.Job{{ID: at(9), Delay: never}}, redisq.Fresh)
	s.Advance(30 * time.Millisecond)
	claim(t, q, 1, never/2)
	got := stats(t, q)
	require.InDelta(t, time.Since(at(2).Time()).Seconds(), got.Oldest.Seconds(), 60, "since its message")
	require.InDelta(t, (never / 2).Seconds(), got.NextDue.Seconds(), 60)
	got.Oldest, got.NextDue = 0, 0
	require.Equal(t, redisq.Stats{Ready: 2, Delayed: 1, Leased: 1, SpilledPriority: -1}, got)
}

func claimsTellWhenToAsk(t *testing.T, s Server) {
	q := s.Queue(100)
	require.Zero(t, claim(t, q, 1, never).NextDue)
	put(t, q, []redisq.Job{{ID: at(1), Delay: never}}, redisq.Fresh)
	require.InDelta(t, never.Seconds(), claim(t, q, 1, never).NextDue.Seconds(), 60)
	put(t, q, jobs(2, 1, 0), redisq.Fresh)
	due := claim(t, q, 1, 2*time.Second).NextDue
	require.Positive(t, due)
	require.LessOrEqual(t, due, 2*time.Second, "an ended lease is a reason too")
	s.Advance(2100 * time.Millisecond)
	require.Equal(t, time.Millisecond, claim(t, q, 1, never).NextDue, "overdue: at once")
}
