//go:build unix

package servers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A RedisServer is a Redis of one test's own. Unless its arguments say
// otherwise it writes nothing to disk, so a restart loses everything. Its
// methods may be called concurrently; Restart only from the test's goroutine.
type RedisServer struct {
	tb   TB
	node *RedisNode
}

// StartRedis starts an empty server that lives until the test ends. extraArgs
// are further options of redis-server, such as "--appendonly", "yes"; they
// override the defaults. A missing program fails the test.
func StartRedis(tb TB, extraArgs ...string) *RedisServer {
	tb.Helper()
	n, err := StartRedisNode(extraArgs...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Errorf("remove the Redis server: %v", err)
		}
	})
	return &RedisServer{tb: tb, node: n}
}

// URL returns the server's redis:// address, the same before and after a
// restart.
func (s *RedisServer) URL() string { return s.node.URL() }

// Port is where the server listens on 127.0.0.1.
func (s *RedisServer) Port() int { return s.node.Port() }

// Kill ends the server with SIGKILL.
func (s *RedisServer) Kill() { report(s.tb, s.node.Kill()) }

// Stop shuts the server down cleanly.
func (s *RedisServer) Stop() { report(s.tb, s.node.Stop()) }

// Pause freezes the server: connections stay open, nothing answers.
func (s *RedisServer) Pause() { report(s.tb, s.node.Pause()) }

// Resume lets a paused server go on.
func (s *RedisServer) Resume() { report(s.tb, s.node.Resume()) }

// Restart starts the server on its old port and folder, after a clean stop if it is still running.
// It returns when the server has loaded its saved data.
func (s *RedisServer) Restart() {
	s.tb.Helper()
	if err := s.node.Restart(); err != nil {
		s.tb.Fatal(err)
	}
}

func redisURL(port int) string { return "redis://127.0.0.1:" + strconv.Itoa(port) + "/0" }

// redisVersion returns the server's version.
func redisVersion(url string) (string, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return "", fmt.Errorf("servers: read the Redis URL: %w", err)
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
