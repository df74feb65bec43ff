//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentinelOptions of StartSentinel. The zero value is a master with one replica
// and three sentinels of which two agree.
type SentinelOptions struct {
	Replicas  int           // 0: one
	Sentinels int           // 0: three; a majority of them must agree on a failover
	DownAfter time.Duration // silence after which a node counts as dead; 0: two seconds
	Args      []string      // further options of the redis-server processes
}

// FailoverTimeout is the time after which Sentinels give up a failover.
const FailoverTimeout = 30 * time.Second

// A Sentinel is a Redis master with its replicas and the sentinels that watch
// them. A failover takes about DownAfter and two seconds. A node that was away
// joins as a replica when it is restarted.
type Sentinel struct {
	MasterName string
	Nodes      []*RedisNode // the master at the start is the first
	Sentinels  []*RedisNode
}

// StartSentinel starts a group and returns when the replicas have their data and
// all sentinels know each other and all nodes. Close removes it.
func StartSentinel(ctx context.Context, o SentinelOptions) (*Sentinel, error) {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Sentinels == 0 {
		o.Sentinels = 3
	}
	if o.DownAfter == 0 {
		o.DownAfter = 2 * time.Second
	}
	s := &Sentinel{MasterName: "penstock"}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sentinel) start(ctx context.Context, o SentinelOptions) error {
	args := append([]string{"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"}, o.Args...)
	master, err := StartRedisNode(args...)
	if err != nil {
		return err
	}
	s.Nodes = append(s.Nodes, master)
	for range o.Replicas {
		replica, err := StartRedisNode(args...)
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, replica)
		if err := replica.do(ctx, "replicaof", "127.0.0.1", master.Port()); err != nil {
			return err
		}
		if err := replica.do(ctx, "config", "rewrite"); err != nil {
			return err
		}
	}
	// Sentinels look for replicas every ten seconds only: these must be there.
	if err := master.awaitInfo(ctx, "replication", "connected_slaves:"+strconv.Itoa(o.Replicas)); err != nil {
		return err
	}
	for _, replica := range s.Nodes[1:] {
		if err := replica.awaitInfo(ctx, "replication", "master_link_status:up"); err != nil {
			return err
		}
	}
	for range o.Sentinels {
		n, err := startSentinelNode(s.MasterName, master.Port(), o)
		if err != nil {
			return err
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	for _, n := range s.Sentinels {
		if err := n.awaitAcquaintance(ctx, s.MasterName, o); err != nil {
			return err
		}
	}
	return nil
}

func startSentinelNode(name string, masterPort int, o SentinelOptions) (*RedisNode, error) {
	var conf string
	p, err := startRedisProgram(program{
		// A sentinel has all its settings in the file that it rewrites.
		args: func(port int) []string {
			line := fmt.Sprintf("port %d\n", port)
			if old, err := os.ReadFile(conf); err != nil || !strings.Contains(string(old), line) {
				text := line + "bind 127.0.0.1\ndir " + quoted(filepath.Dir(conf)) + "\n" +
					fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d\n", name, masterPort, o.Sentinels/2+1) +
					fmt.Sprintf("sentinel down-after-milliseconds %s %d\n", name, o.DownAfter.Milliseconds()) +
					fmt.Sprintf("sentinel failover-timeout %s %d\n", name, min(4*o.DownAfter, FailoverTimeout).Milliseconds())
				_ = os.WriteFile(conf, []byte(text), 0o600) // without it the server does not start, and says why
			}
			return []string{conf, "--sentinel"}
		},
		ready: "Sentinel ID is",
		ping:  func(port int) error { return pingRedis(port) },
	}, func(dir string) error {
		conf = filepath.Join(dir, "sentinel.conf")
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &RedisNode{p}, nil
}

// Addrs lists the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, n := range s.Sentinels {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// URL is the redis:// URL of the sentinels.
func (s *Sentinel) URL() string { return "redis://" + strings.Join(s.Addrs(), ",") + "/0" }

// Master returns the node that most sentinels that answer call the master now.
func (s *Sentinel) Master(ctx context.Context) (*RedisNode, error) {
	votes := map[int]int{}
	for _, n := range s.Sentinels {
		c := n.askSentinel()
		addr, err := c.GetMasterAddrByName(ctx, s.MasterName).Result()
		_ = c.Close()
		if err == nil && len(addr) == 2 {
			if port, err := strconv.Atoi(addr[1]); err == nil {
				votes[port]++
			}
		}
	}
	var best *RedisNode
	for _, n := range s.Nodes {
		if votes[n.Port()] > 0 && (best == nil || votes[n.Port()] > votes[best.Port()]) {
			best = n
		}
	}
	if best == nil {
		return nil, errors.New("servers: no sentinel names a master")
	}
	return best, nil
}

// askSentinel returns a client for a question to a sentinel that may be gone. Close it.
func (n *RedisNode) askSentinel() *redis.SentinelClient {
	return redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), DialTimeout: adminTimeout / 10,
		ReadTimeout: adminTimeout / 10, MaxRetries: -1})
}

// Healthy returns nil if every sentinel sees the same healthy master and no failover is planned or
// under way. A master that answers again after a short absence is not enough, because the sentinels
// may have agreed on a failover by then.
func (s *Sentinel) Healthy(ctx context.Context) error {
	m, err := s.Master(ctx)
	if err != nil {
		return err
	}
	for _, n := range s.Sentinels {
		c := n.askSentinel()
		said, err := c.Master(ctx, s.MasterName).Result()
		_ = c.Close()
		if err != nil {
			return err
		}
		if said["flags"] != "master" || said["port"] != strconv.Itoa(m.Port()) {
			return fmt.Errorf("servers: sentinel %s has port %s as its master, which is %s", n.Addr(), said["port"],
				said["flags"])
		}
	}
	return nil
}

// Failover promotes a replica now, even if the master is healthy. It returns before the promotion
// is done. An error means that the failover cannot begin at the moment.
func (s *Sentinel) Failover(ctx context.Context) error {
	return s.Sentinels[0].do(ctx, "sentinel", "failover", s.MasterName)
}

// Logs returns the end of the log of each process, those of the sentinels first.
func (s *Sentinel) Logs() string {
	var b strings.Builder
	for _, n := range slices.Concat(s.Sentinels, s.Nodes) {
		text, _ := n.process.logSince(0) // one that cannot be read is one line less
		fmt.Fprintf(&b, "%s:\n%s\n", n.Addr(), tail(text))
	}
	return b.String()
}

// Close kills everything and removes the data.
func (s *Sentinel) Close() error { return errors.Join(closeAll(s.Sentinels), closeAll(s.Nodes)) }

// awaitAcquaintance waits until a sentinel knows the others and the replicas.
func (n *RedisNode) awaitAcquaintance(ctx context.Context, name string, o SentinelOptions) error {
	c := redis.NewSentinelClient(&redis.Options{Addr: n.Addr()})
	defer c.Close() //nolint:errcheck // nothing pending
	return await(ctx, "sentinels to know each other", func() bool {
		m, err := c.Master(ctx, name).Result()
		return err == nil && m["num-slaves"] == strconv.Itoa(o.Replicas) &&
			m["num-other-sentinels"] == strconv.Itoa(o.Sentinels-1) && m["flags"] == "master"
	})
}

// do runs one command on the node.
func (n *RedisNode) do(ctx context.Context, args ...any) error {
	c := n.client()
	defer c.Close() //nolint:errcheck // nothing pending
	if err := c.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("servers: %v: %w", args[0], err)
	}
	return nil
}

// awaitInfo waits until a section of INFO has a line.
func (n *RedisNode) awaitInfo(ctx context.Context, section, line string) error {
	c := n.client()
	defer c.Close() //nolint:errcheck // nothing pending
	return await(ctx, line, func() bool {
		info, err := c.Info(ctx, section).Result()
		return err == nil && strings.Contains(info, line+"\r\n")
	})
}

func (n *RedisNode) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: n.Addr(), Protocol: 2, DisableIdentity: true})
}

func pingRedis(port int) error {
	c := redis.NewClient(&redis.Options{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Protocol: 2,
		DisableIdentity: true, MaxRetries: -1})
	defer c.Close() //nolint:errcheck // nothing pending
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	return c.Ping(ctx).Err()
}

// await polls until condition returns true, for at most startTimeout.
func await(ctx context.Context, what string, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !condition() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("servers: waiting for %s: %w", what, ctx.Err())
		case <-time.After(4 * pollInterval):
		}
	}
	return nil
}
