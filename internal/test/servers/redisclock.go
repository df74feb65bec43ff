//go:build linux

package servers

import (
	"strconv"
	"time"
)

// A ClockedRedisServer is a RedisServer whose wall clock the test sets.
type ClockedRedisServer struct{ *RedisServer }

// StartRedisClocked is StartRedis with a clock that begins right. It needs a C
// compiler. (libfaketime cannot be loaded into a Redis that uses jemalloc: each
// waits for the other to be initialised.)
func StartRedisClocked(tb TB, extraArgs ...string) *ClockedRedisServer {
	tb.Helper()
	g := redisProgram(func(port int) []string { return []string{"--port", strconv.Itoa(port)} }, extraArgs)
	g.env = wallclock.env()
	p, err := startRedisProgram(g, wallclock.build)
	if err != nil {
		tb.Fatal(err)
	}
	n := &RedisNode{p}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Errorf("remove the Redis server: %v", err)
		}
	})
	return &ClockedRedisServer{&RedisServer{tb: tb, node: n}}
}

// Jump sets the clock to by from that of this machine, in whole seconds, at once.
func (s *ClockedRedisServer) Jump(by time.Duration) {
	report(s.tb, wallclock.set(s.node.process.folder.path, int64(by/time.Second)))
}
