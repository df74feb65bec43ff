package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// startRedis starts a Redis with an append-only file and returns its address and
// version. The file is never rewritten: the child that does it would escape the
// count of CPU time, and a run is too short to need it.
func startRedis(ctx context.Context, s *site, g *group, appendfsync string) (addr, version string, err error) {
	port, err := freePort()
	if err != nil {
		return "", "", err
	}
	addr = loopback(port)
	p, err := g.start("redis", syscall.SIGKILL, exec.Command(s.programs["redis-server"],
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", g.folder, "--daemonize", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", appendfsync,
		"--auto-aof-rewrite-percentage", "0", "--maxmemory-policy", "noeviction",
	))
	if err != nil {
		return "", "", err
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	return addr, version, p.ready(ctx, func(ctx context.Context) error {
		info, err := c.InfoMap(ctx, "server").Result()
		if err == nil {
			version = fmt.Sprintf("Redis %s, appendfsync %s", info["Server"]["redis_version"], appendfsync)
		}
		return err
	})
}
