package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

func hasten(t *testing.T, q *redisq.Queue, ids ...ident.ID) (ready int, unknown []ident.ID) {
	t.Helper()
	ready, unknown, err := q.Hasten(context.Background(), consumer, ids)
	require.NoError(t, err)
	return ready, unknown
}

func hastenedJobIsReadyNow(t *testing.T, s Server) {
	q := s.Queue(100)
	put(t, q, jobs(1, 4, 0), redisq.Fresh)
	l := claim(t, q, 3, never).Leases
	_, err := q.Nack(context.Background(), consumer, l[:1], []time.Duration{never})
	require.NoError(t, err)
	park(t, q, l[1:2], never)
	put(t, q, []redisq.Job{{ID: at(9), Delay: never}}, redisq.Repeated)

	ready, unknown := hasten(t, q, at(1), at(2), at(3), at(4), at(7), at(9), at(1))
	require.Equal(t, 2, ready)
	require.Equal(t, []ident.ID{at(7)}, unknown)
	check(t, s, q)
	ready, _ = hasten(t, q, at(1), at(9))
	require.Zero(t, ready, "they are ready")
	var got []ident.ID
	attempts := map[ident.ID]int{}
	for _, lease := range claim(t, q, 10, never).Leases {
		got = append(got, lease.ID)
		attempts[lease.ID] = lease.Attempt
	}
	require.ElementsMatch(t, []ident.ID{at(1), at(4), at(9)}, got, "a parked job waits for another one, and one is leased")
	require.Equal(t, 2, attempts[at(1)], "its attempt stays charged")
	check(t, s, q)
}

// Two steps of a call, each of a batch.
func manyHastened(t *testing.T, s Server) {
	q := s.Queue(100)
	list := jobs(1, redisq.MaxBatch+50, 0)
	for i := range list {
		list[i].Delay = never
	}
	put(t, q, list, redisq.Repeated)
	ready, unknown := hasten(t, q, append([]ident.ID{at(5000)}, idsOfJobs(list)...)...)
	require.Equal(t, len(list), ready)
	require.Equal(t, []ident.ID{at(5000)}, unknown)
	ready, unknown = hasten(t, q)
	require.Zero(t, ready)
	require.Empty(t, unknown)
	check(t, s, q)
}

func idsOfJobs(list []redisq.Job) []ident.ID {
	out := make([]ident.ID, len(list))
	for i, j := range list {
		out[i] = j.ID
	}
	return out
}

func (w *walker) hasten(rt *rapid.T) {
	var ids []ident.ID
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		ids = append(ids, w.known(rt))
	}
	ready, unknown, err := w.begin(rt).Hasten(context.Background(), consumer, ids)
	require.NoError(rt, err)
	wantReady, wantUnknown := w.m.Hasten(w.now, ids)
	require.Equal(rt, wantReady, ready)
	require.Equal(rt, wantUnknown, unknown)
	w.end()
}
