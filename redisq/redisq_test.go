package redisq_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/penstock-broker/penstock/internal/test/queuetest"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/redisq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMiniredis(t *testing.T) {
	queuetest.Run(t, func(t *testing.T) queuetest.Server {
		server := miniredis.RunT(t)
		now := time.Now()
		server.SetTime(now)
		return queuetest.Server{
			Client: connect(t, "redis://"+server.Addr()),
			Prefix: redisq.DefaultPrefix,
			Flush:  server.FlushAll,
			Advance: func(d time.Duration) {
				now = now.Add(d)
				server.SetTime(now)
			},
		}
	})
}

func TestRedis(t *testing.T) {
	runSuite(t, redisq.ConnectOptions{URL: servers.Redis(t)}, removeKeys)
}

// runSuite runs the suite on a shared server. remove deletes the keys with a prefix.
func runSuite(t *testing.T, o redisq.ConnectOptions, remove func(tb testing.TB, client redis.UniversalClient,
	prefix string)) {
	queuetest.Run(t, func(t *testing.T) queuetest.Server {
		client := connectTo(t, o)
		prefix := ownPrefix()
		s := queuetest.Server{
			Client:  client,
			Prefix:  prefix,
			Flush:   func() { remove(t, client, prefix) },
			Advance: func(d time.Duration) { wait(t, client, d) },
		}
		t.Cleanup(s.Flush)
		return s
	})
}

func connect(tb testing.TB, url string) redis.UniversalClient {
	tb.Helper()
	return connectTo(tb, redisq.ConnectOptions{URL: url})
}

func connectTo(tb testing.TB, o redisq.ConnectOptions) redis.UniversalClient {
	tb.Helper()
	o.Timeout = 20 * time.Second
	client, _, err := redisq.Connect(context.Background(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, client.Close()) })
	return client
}

var prefixes atomic.Int64

// ownPrefix returns a key prefix that is unique among all test runs.
func ownPrefix() string {
	return fmt.Sprintf("test%x.%d:", time.Now().UnixNano(), prefixes.Add(1))
}

// removeKeys deletes the keys of one test from a shared server.
func removeKeys(tb testing.TB, client redis.UniversalClient, prefix string) {
	tb.Helper()
	ctx := context.Background()
	keys := client.Scan(ctx, 0, prefix+"*", 10_000).Iterator()
	for keys.Next(ctx) {
		require.NoError(tb, client.Unlink(ctx, keys.Val()).Err())
	}
	require.NoError(tb, keys.Err())
}

// wait returns when the clock of the server has moved on by d.
func wait(tb testing.TB, client redis.UniversalClient, d time.Duration) {
	tb.Helper()
	now := func() time.Time {
		at, err := client.Time(context.Background()).Result()
		require.NoError(tb, err)
		return at
	}
	for until := now().Add(d + time.Millisecond); ; {
		left := until.Sub(now())
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// After a large step back of the clock, delayed jobs and leases would wait too long: the
// consumer's state is dropped and reported as lost.
func TestStateIsDroppedWhereTheClockWentBack(t *testing.T) {
	ctx := context.Background()
	server := miniredis.RunT(t)
	now := time.Now()
	server.SetTime(now)
	q := redisq.New(connect(t, "redis://"+server.Addr()), redisq.Options{})
	all := ids(3)
	put := func(consumer uint32) {
		_, err := q.Enqueue(ctx, consumer, []redisq.Job{{ID: all[0]}, {ID: all[1], Delay: time.Minute}, {ID: all[2]}},
			redisq.Fresh)
		require.NoError(t, err)
		c, err := q.Claim(ctx, consumer, 1, time.Minute, redisq.Limits{})
		require.NoError(t, err)
		require.Len(t, c.Leases, 1)
	}
	look := func(consumer uint32) redisq.Expired {
		x, err := q.Reclaim(ctx, consumer, 10, 0)
		require.NoError(t, err)
		return x
	}
	put(1)
	require.False(t, look(1).Empty)
	var lost []uint32
	q.OnLost(func(consumer uint32) { lost = append(lost, consumer) })
	epoch := q.Epoch(1)
	for _, step := range []time.Duration{-5 * time.Second, 10 * time.Second, 5 * time.Second, 5 * time.Second} {
		now = now.Add(step)
		server.SetTime(now)
		require.False(t, look(1).Empty)
	}
	require.Empty(t, lost, "a step of 5 s or less is waited out")
	server.SetTime(now.Add(-5001 * time.Millisecond))
	require.True(t, look(1).Empty)
	require.Equal(t, []uint32{1}, lost)
	require.NotEqual(t, epoch, q.Epoch(1))
	require.Equal(t, []string{q.Keys(1)[4]}, server.Keys(), "nothing but the new epoch is left")
	put(1)
	require.False(t, look(1).Empty, "the new state works as before")
	require.Equal(t, []uint32{1}, lost)

	put(2) // no reclaim has run for this consumer when the clock goes back
	server.SetTime(now.Add(-time.Hour))
	require.True(t, look(2).Empty)
	require.Equal(t, []uint32{1, 2, 2}, lost, "reported at the first contact and at the loss")
}
