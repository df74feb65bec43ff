package redisq_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuetest"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/redisq"
)

// ids returns n IDs as a broker makes them.
func ids(n int) []ident.ID {
	g := ident.NewGenerator(1, func() int64 { return time.Now().UnixMilli() })
	out := make([]ident.ID, n)
	for i := range out {
		out[i] = g.Next()
	}
	return out
}

func jobsOf(ids []ident.ID) []redisq.Job {
	out := make([]redisq.Job, len(ids))
	for i, id := range ids {
		out[i] = redisq.Job{ID: id, Priority: i % 3}
	}
	return out
}

func TestWaitingJobTakesLessThan200BytesOnRedis(t *testing.T) {
	ctx := context.Background()
	client := connect(t, servers.StartRedis(t).URL())
	q := redisq.New(client, redisq.Options{Window: 200_000})
	used := func() int {
		info, err := client.Info(ctx, "memory").Result()
		require.NoError(t, err)
		_, tail, ok := strings.Cut(info, "used_memory_dataset:")
		require.True(t, ok)
		n, err := strconv.Atoi(strings.Fields(tail)[0])
		require.NoError(t, err)
		return n
	}
	_, err := q.Stats(ctx, 1)
	require.NoError(t, err)
	before := used()
	const n = 100_000
	got, err := q.Enqueue(ctx, 1, jobsOf(ids(n)), redisq.Fresh)
	require.NoError(t, err)
	require.Equal(t, n, got.Added)
	perJob := float64(used()-before) / n
	t.Logf("%.0f bytes per waiting job", perJob)
	require.Less(t, perJob, 200.0)
}

func TestFullRedisRefusesNewJobsAndNothingElse(t *testing.T) {
	ctx := context.Background()
	client := connect(t, servers.StartRedis(t).URL())
	q := redisq.New(client, redisq.Options{})
	all := ids(20)
	_, err := q.Enqueue(ctx, 1, jobsOf(all[:10]), redisq.Fresh)
	require.NoError(t, err)
	c, err := q.Claim(ctx, 1, 4, time.Hour, redisq.Limits{})
	require.NoError(t, err)
	short, err := q.Claim(ctx, 1, 2, time.Millisecond, redisq.Limits{})
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())

	for _, src := range []redisq.Source{redisq.Fresh, redisq.Repeated, redisq.Recovered} {
		_, err = q.Enqueue(ctx, 1, jobsOf(all[10:]), src)
		require.ErrorContains(t, err, "OOM")
	}
	got, err := q.Probe(ctx, 1, all[10:])
	require.NoError(t, err)
	for _, s := range got {
		require.Equal(t, redisq.Missing, s.State)
	}
	ok, err := q.Extend(ctx, 1, c.Leases, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, true, true}, ok)
	ok, err = q.Nack(ctx, 1, c.Leases[:1], []time.Duration{time.Hour})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	ok, err = q.Release(ctx, 1, c.Leases[1:2])
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	n, err := q.Ack(ctx, 1, []ident.ID{c.Leases[2].ID})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	wait(t, client, 2*time.Millisecond)
	expired, err := q.Reclaim(ctx, 1, 10, 1)
	require.NoError(t, err)
	require.Len(t, expired.Exhausted, len(short.Leases))
	more, err := q.Claim(ctx, 1, 2, time.Hour, redisq.Limits{})
	require.NoError(t, err)
	require.Len(t, more.Leases, 2)
	_, before, err := q.ClaimOne(ctx, 1, redisq.Job{ID: c.Leases[0].ID}, time.Hour, false)
	require.NoError(t, err)
	require.Equal(t, redisq.Delayed, before.State)

	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	queuetest.CheckInvariants(t, client, q, 1)
	added, err := q.Enqueue(ctx, 1, jobsOf(all), redisq.Repeated)
	require.NoError(t, err)
	require.Equal(t, 11, added.Added, "ten were refused and one is over")
}
