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

	"github.com/penstock-broker/penstock/internal/realservers"
	"github.com/penstock-broker/penstock/redisq"
	"github.com/penstock-broker/penstock/redisq/queuetest"
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
	runSuite(t, redisq.ConnectOptions{URL: realservers.Redis(t)}, removeKeys)
}

// runSuite runs the suite on a real server, which others use as well: remove
// removes the keys with a prefix.
func runSuite(t *testing.T, o redisq.ConnectOptions, remove func(tb testing.TB, client redis.UniversalClient, prefix string)) {
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

// ownPrefix makes key prefixes that no other test of any run uses.
func ownPrefix() string {
	return fmt.Sprintf("test%x.%d:", time.Now().UnixNano(), prefixes.Add(1))
}

// removeKeys empties the part of a shared server that belongs to a test.
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
