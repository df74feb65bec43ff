package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/redisq"
)

func leaseNamesItsWorker(t *testing.T, s Server) {
	ctx := context.Background()
	q := s.Queue(100)
	put(t, q, jobs(1, 4, 8), redisq.Fresh)
	const a, b = "a;1.8.2", "b;"
	c, err := q.Claim(ctx, consumer, 1, 5*time.Millisecond, redisq.Limits{Worker: a, RetryShare: 100})
	require.NoError(t, err)
	require.Equal(t, a, c.Leases[0].Worker)
	grants, err := q.ClaimEach(ctx, consumer, []redisq.Wish{
		{Job: redisq.Job{ID: at(2)}, Lease: 5 * time.Millisecond, Worker: b},
		{Job: redisq.Job{ID: at(3)}, Lease: never},
		{Job: redisq.Job{ID: at(9)}, Lease: never, Insert: true, Worker: a},
	})
	require.NoError(t, err)
	for i, want := range []string{b, "", a} {
		require.Equal(t, want, grants[i].Lease.Worker)
		require.Equal(t, want, standing(t, q, grants[i].Lease.ID).Worker)
	}
	ok, err := q.Extend(ctx, consumer, []redisq.Lease{grants[2].Lease}, never)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	require.Equal(t, a, standing(t, q, at(9)).Worker, "an extended lease keeps it")
	leases, _, err := q.Leases(ctx, consumer, 10)
	require.NoError(t, err)
	require.Len(t, leases, 4)
	for _, l := range leases {
		require.Equal(t, standing(t, q, l.ID).Worker, l.Worker)
	}

	s.Advance(10 * time.Millisecond)
	got := reclaim(t, q, 1) // each of them has had its last attempt
	require.Empty(t, got.Returned)
	require.Len(t, got.Exhausted, 2)
	for _, l := range got.Exhausted {
		require.Equal(t, map[bool]string{true: a, false: b}[l.ID == at(1)], l.Worker)
		require.Equal(t, l.Worker, standing(t, q, l.ID).Worker, "until its death is stored")
	}
	ok, err = q.Nack(ctx, consumer, got.Exhausted, []time.Duration{0, 0})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true}, ok)
	require.Empty(t, standing(t, q, at(1)).Worker, "a job that waits has none")
	check(t, s, q)

	lease := claim(t, q, 1, 5*time.Millisecond).Leases[0]
	require.Empty(t, lease.Worker)
	lease.Worker = a
	s.Flush()
	ok, err = q.RestoreLeases(ctx, consumer, []redisq.Lease{lease}, 5*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	require.Equal(t, a, standing(t, q, lease.ID).Worker, "a restored lease has it")
	s.Advance(10 * time.Millisecond)
	back := reclaim(t, q, 10).Returned
	require.Len(t, back, 1)
	require.Equal(t, a, back[0].Worker, "the caller learns who had the lease")
	check(t, s, q)
}

func presenceIsShared(t *testing.T, s Server) {
	ctx := context.Background()
	a, b := s.Queue(100), s.Queue(100)
	none, err := b.Presences(ctx, consumer)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, a.KeepPresence(ctx, "a", []redisq.Presence{{Consumer: consumer, View: "one"},
		{Consumer: consumer + 1, View: "other"}}))
	require.NoError(t, b.KeepPresence(ctx, "b", []redisq.Presence{{Consumer: consumer, View: "two"}}))
	require.NoError(t, a.KeepPresence(ctx, "a", []redisq.Presence{{Consumer: consumer, View: "three"}}))
	got, err := b.Presences(ctx, consumer)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "three", "b": "two"}, got)
	require.NoError(t, a.DropPresence(ctx, consumer, []string{"b", "nobody"}))
	got, err = b.Presences(ctx, consumer)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "three"}, got)
	require.NoError(t, a.Forget(ctx, consumer))
	got, err = b.Presences(ctx, consumer)
	require.NoError(t, err)
	require.Empty(t, got, "a deleted consumer leaves nothing")
	got, err = b.Presences(ctx, consumer+1)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func notesOfBrokersAreShared(t *testing.T, s Server) {
	ctx := context.Background()
	a, b := s.Queue(100), s.Queue(100)
	none, err := b.BrokerNotes(ctx)
	require.NoError(t, err)
	require.Empty(t, none)
	for broker, note := range map[string]string{"a": "old", "b": "two"} {
		require.NoError(t, a.KeepBrokerNote(ctx, broker, note))
	}
	require.NoError(t, a.KeepBrokerNote(ctx, "a", "one"))
	got, err := b.BrokerNotes(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "one", "b": "two"}, got)
	require.NoError(t, b.DropBrokerNotes(ctx, []string{"a", "nobody"}))
	got, err = a.BrokerNotes(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "two"}, got)
	s.Flush()
	got, err = a.BrokerNotes(ctx)
	require.NoError(t, err)
	require.Empty(t, got)
}
