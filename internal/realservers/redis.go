//go:build unix

package realservers

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A RedisServer is a Redis of one test's own. Unless its arguments say
// otherwise it writes nothing to disk, so a restart loses everything. Its
// methods may be called concurrently; Restart only from the test's goroutine.
type RedisServer struct {
	tb      testing.TB
	process *process
}

// StartRedis starts an empty server that lives until the test ends. extraArgs
// are further options of redis-server, such as "--appendonly", "yes"; they
// override the defaults. A missing program fails the test.
func StartRedis(tb testing.TB, extraArgs ...string) *RedisServer {
	tb.Helper()
	p, err := startRedis(extraArgs)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.remove(); err != nil {
			tb.Errorf("remove the Redis server: %v", err)
		}
	})
	return &RedisServer{tb: tb, process: p}
}

// URL returns the server's redis:// address, the same before and after a
// restart.
func (s *RedisServer) URL() string { return redisURL(s.process.port) }

// Port is where the server listens on 127.0.0.1.
func (s *RedisServer) Port() int { return s.process.port }

// Kill ends the server with SIGKILL.
func (s *RedisServer) Kill() { report(s.tb, s.process.kill()) }

// Stop shuts the server down cleanly.
func (s *RedisServer) Stop() { report(s.tb, s.process.stop()) }

// Pause freezes the server: connections stay open, nothing answers.
func (s *RedisServer) Pause() { report(s.tb, s.process.pause()) }

// Resume lets a paused server go on.
func (s *RedisServer) Resume() { report(s.tb, s.process.signal(syscall.SIGCONT)) }

// Restart starts the server on its old port and folder, after a clean stop if
// it is still running, and returns when it has loaded what it had saved.
func (s *RedisServer) Restart() {
	s.tb.Helper()
	if err := s.process.stop(); err != nil {
		s.tb.Fatal(err)
	}
	if err := s.process.start(); err != nil {
		s.tb.Fatal(err)
	}
}

func redisURL(port int) string { return "redis://127.0.0.1:" + strconv.Itoa(port) + "/0" }

func startRedis(extraArgs []string) (*process, error) {
	binary, err := findBinary("redis-server", "valkey-server")
	if err != nil {
		return nil, err
	}
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	args := func(port int) []string {
		return append([]string{
			"--port", strconv.Itoa(port),
			"--bind", "127.0.0.1",
			"--dir", f.path,
			"--save", "",
			"--appendonly", "no",
			"--maxmemory-policy", "noeviction",
			"--loglevel", "notice",
			"--daemonize", "no",
		}, extraArgs...)
	}
	// The log is enough to know that it is ready; a password among extraArgs
	// would refuse a ping.
	return startProcess(f, binary, "Ready to accept connections", args, func(int) error { return nil })
}

// redisVersion returns the server's version.
func redisVersion(url string) (string, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return "", fmt.Errorf("realservers: read the Redis URL: %w", err)
	}
	c := redis.NewClient(o)
	defer c.Close() //nolint:errcheck // nothing pending
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return info["Server"]["redis_version"], nil
}
