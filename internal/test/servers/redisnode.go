//go:build unix

package servers

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A RedisNode is one Redis, or one sentinel, of the caller's own: StartRedis
// without a test around it. Close removes it; when the process ends without that
// the janitor does. Its methods may be called concurrently, Restart and Close
// only by one caller.
type RedisNode struct{ process *process }

// StartRedisNode starts an empty server, as StartRedis does.
func StartRedisNode(extraArgs ...string) (*RedisNode, error) {
	p, err := startRedis(extraArgs)
	if err != nil {
		return nil, err
	}
	return &RedisNode{p}, nil
}

// URL returns the node's redis:// address, the same before and after a restart.
func (n *RedisNode) URL() string { return redisURL(n.process.port) }

// Port is where the node listens on 127.0.0.1.
func (n *RedisNode) Port() int { return n.process.port }

// Addr is host:port.
func (n *RedisNode) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Port())) }

// Kill ends the node with SIGKILL.
func (n *RedisNode) Kill() error { return n.process.kill() }

// Stop shuts the node down cleanly.
func (n *RedisNode) Stop() error { return n.process.stop() }

// Pause freezes the node: connections stay open, nothing answers.
func (n *RedisNode) Pause() error { return n.process.pause() }

// Resume lets a paused node go on.
func (n *RedisNode) Resume() error { return n.process.signal(syscall.SIGCONT) }

// Restart starts the node on its old port and folder, after a clean stop if it
// is still running, and returns when it accepts connections and has loaded what
// it had saved. What it learned about its part in a group (replica of whom,
// which slots) it still knows.
func (n *RedisNode) Restart() error {
	return errors.Join(n.process.stop(), n.process.start())
}

// Close kills the node and removes its data.
func (n *RedisNode) Close() error { return n.process.remove() }

// closeAll closes the nodes of a group.
func closeAll(nodes []*RedisNode) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// busOffset is where Redis listens for the other nodes of a Cluster.
const busOffset = 10000

// startRedis starts a server whose options are the defaults below and extraArgs.
func startRedis(extraArgs []string) (*process, error) {
	g := redisProgram(func(port int) []string { return []string{"--port", strconv.Itoa(port)} }, extraArgs)
	for i, arg := range extraArgs {
		if arg == "--cluster-enabled" && i+1 < len(extraArgs) && extraArgs[i+1] == "yes" {
			g.bus = busOffset
		}
	}
	return startRedisProgram(g, nil)
}

// redisProgram is a redis-server that writes nothing to disk unless extraArgs say
// so. Its configuration file, first of the arguments, begins empty: it is where
// Redis keeps, over restarts, whose replica it is.
func redisProgram(port func(int) []string, extraArgs []string) program {
	return program{
		args: func(p int) []string {
			return append(append([]string{"redis.conf"}, port(p)...), append([]string{
				"--bind", "127.0.0.1",
				"--save", "",
				"--appendonly", "no",
				"--maxmemory-policy", "noeviction",
				"--loglevel", "notice",
				"--daemonize", "no",
			}, extraArgs...)...)
		},
		// The log is enough to know that it is ready; a password among extraArgs
		// would refuse a ping.
		ready: "Ready to accept connections",
		ping:  func(int) error { return nil },
	}
}

// startRedisProgram starts a kind of redis-server in a folder of its own, in which
// prepare, unless it is nil, puts what it needs.
func startRedisProgram(g program, prepare func(dir string) error) (*process, error) {
	binary, err := findBinary("redis-server", "valkey-server")
	if err != nil {
		return nil, err
	}
	g.binary = binary
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	conf := []byte("dir " + quoted(f.path) + "\n")
	if err := os.WriteFile(filepath.Join(f.path, "redis.conf"), conf, 0o600); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	if prepare != nil {
		if err := prepare(f.path); err != nil {
			return nil, errors.Join(err, f.remove())
		}
	}
	return startProcess(f, g)
}

// quoted is a string as Redis reads it in its configuration file.
func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
