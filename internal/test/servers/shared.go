//go:build unix

package servers

import (
	"context"
	"os"
	"sync"
	"time"
)

// MySQL returns the DSN of an empty database on the server that the tests of
// this process share. The database is dropped when the test ends.
func MySQL(tb TB) string {
	tb.Helper()
	if err := wanted(); err != nil {
		tb.Fatal(err)
	}
	server := os.Getenv(EnvMySQL)
	if server == "" {
		p, err := sharedMySQL()
		if err != nil {
			tb.Fatal(err)
		}
		server = rootDSN(p.port)
	}
	dsn, drop, err := createDatabase(server)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Logf("drop the test's database: %v", err) // the server outlives no run: not a failure
		}
	})
	return dsn
}

// Redis returns the URL of the Redis that the tests of this process share.
// Each test uses a key prefix of its own; one that must flush, kill or fill a
// server asks StartRedis instead.
func Redis(tb TB) string {
	tb.Helper()
	if err := wanted(); err != nil {
		tb.Fatal(err)
	}
	if url := os.Getenv(EnvRedis); url != "" {
		return url
	}
	p, err := sharedRedis()
	if err != nil {
		tb.Fatal(err)
	}
	return redisURL(p.port)
}

// SharedSentinel returns the master, replica and sentinels that the tests of this process share,
// under the same rules as Redis. Tests must not cause a failover there.
func SharedSentinel(tb TB) *Sentinel {
	tb.Helper()
	s, err := sharedSentinel()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// SharedCluster returns the three masters that the tests of this process share.
func SharedCluster(tb TB) *Cluster {
	tb.Helper()
	c, err := sharedCluster()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// The shared servers end with the process. These values keep their pipes
// reachable for as long.
var (
	sharedMySQL = sync.OnceValues(startMySQL)
	sharedRedis = sync.OnceValues(func() (*process, error) { return startRedis(politeRedis) })

	sharedSentinel = sync.OnceValues(func() (*Sentinel, error) {
		return StartSentinel(context.Background(), SentinelOptions{DownAfter: 10 * time.Minute, Args: politeRedis})
	})
	sharedCluster = sync.OnceValues(func() (*Cluster, error) { return StartCluster(context.Background(), politeRedis...) })
)

// politeRedis disables commands that would disturb the other users of a shared Redis.
var politeRedis = []string{"--rename-command", "FLUSHALL", "", "--rename-command", "FLUSHDB", ""}
