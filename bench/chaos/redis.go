//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/test/proxy"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The kinds of Redis that a campaign can run on.
const (
	standalone = "standalone"
	sentinel   = "sentinel"
	cluster    = "cluster"
)

var topologies = []string{standalone, sentinel, cluster}

// A redisWorld is the Redis of a campaign.
type redisWorld struct {
	kind  string
	nodes []*servers.RedisNode // that store data
	group *servers.Sentinel    // nil unless sentinel
	ring  *servers.Cluster     // nil unless cluster
}

func startRedis(ctx context.Context, kind string) (*redisWorld, error) {
	w := &redisWorld{kind: kind}
	var err error
	switch kind {
	case standalone:
		var n *servers.RedisNode
		if n, err = servers.StartRedisNode(); err == nil {
			w.nodes = []*servers.RedisNode{n}
		}
	case sentinel:
		if w.group, err = servers.StartSentinel(ctx, servers.SentinelOptions{}); err == nil {
			w.nodes = w.group.Nodes
		}
	case cluster:
		if w.ring, err = servers.StartCluster(ctx); err == nil {
			w.nodes = w.ring.Nodes
		}
	}
	return w, err
}

// settings are the settings of a broker for this Redis. link is its proxy, used if possible.
func (w *redisWorld) settings(link *proxy.Proxy) []string {
	switch w.kind {
	case sentinel:
		return []string{"BROKER_REDIS_URL=" + w.group.URL(), "BROKER_REDIS_MASTER=" + w.group.MasterName}
	case cluster:
		return []string{"BROKER_REDIS_URL=" + w.ring.URL()}
	}
	return []string{"BROKER_REDIS_URL=redis://" + link.Addr() + "/0"}
}

func (w *redisWorld) Close() error {
	switch {
	case w.group != nil:
		return w.group.Close()
	case w.ring != nil:
		return w.ring.Close()
	}
	var errs []error
	for _, n := range w.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// masters returns the nodes that accept writes now.
func (w *redisWorld) masters(ctx context.Context) ([]*servers.RedisNode, error) {
	if w.group == nil {
		return w.nodes, nil
	}
	m, err := w.group.Master(ctx)
	return []*servers.RedisNode{m}, err
}

// redisPatience bounds a command of the rig itself.
const redisPatience = 10 * time.Second

// with calls f with a client of one node.
func with(ctx context.Context, n *servers.RedisNode, f func(ctx context.Context, c *redis.Client) error) error {
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	return f(ctx, c)
}

// each calls f for every node that accepts writes.
func (w *redisWorld) each(ctx context.Context, f func(ctx context.Context, c *redis.Client) error) error {
	nodes, err := w.masters(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := with(ctx, n, f); err != nil {
			return err
		}
	}
	return nil
}

// snapshotOf is the file that a node would load at its start.
func snapshotOf(ctx context.Context, n *servers.RedisNode) (path string, err error) {
	err = with(ctx, n, func(ctx context.Context, c *redis.Client) error {
		dir, err := c.ConfigGet(ctx, "dir").Result()
		path = filepath.Join(dir["dir"], "dump.rdb")
		return err
	})
	return path, err
}

// restartEmpty kills a node and starts it without data after a while.
func restartEmpty(ctx context.Context, n *servers.RedisNode, away time.Duration) error {
	path, err := snapshotOf(ctx, n)
	if err != nil {
		return err
	}
	if err := n.Kill(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	time.Sleep(away)
	return n.Restart()
}

// restartOld restarts a node with the data that it had `age` before it was killed.
func restartOld(ctx context.Context, n *servers.RedisNode, age, away time.Duration) error {
	err := with(ctx, n, func(ctx context.Context, c *redis.Client) error { return c.Save(ctx).Err() })
	if err != nil {
		return err
	}
	time.Sleep(age)
	if err := n.Kill(); err != nil {
		return err
	}
	time.Sleep(away)
	return n.Restart()
}

// healthy waits until every part of the world works again.
func (w *redisWorld) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if w.ring != nil {
		return w.ring.AwaitHealthy(ctx)
	}
	if w.group == nil {
		return nil
	}
	for ctx.Err() == nil {
		m, err := w.group.Master(ctx)
		if err == nil && with(ctx, m, func(ctx context.Context, c *redis.Client) error {
			info, err := c.InfoMap(ctx, "replication").Result()
			if err == nil && (info["Replication"]["role"] != "master" ||
				info["Replication"]["connected_slaves"] != strconv.Itoa(len(w.nodes)-1)) {
				err = errors.New("not whole yet")
			}
			return err
		}) == nil && w.group.Healthy(ctx) == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("sentinel: the group did not become whole: %w", ctx.Err())
}

// waiting counts the jobs in Redis.
func (w *redisWorld) waiting(ctx context.Context) (n int64, err error) {
	err = w.each(ctx, func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, "p1:*").Result() // five for each consumer
		for _, key := range keys {
			if set := key[len(key)-2:]; err == nil && (set == ":r" || set == ":d" || set == ":x") {
				var members int64
				members, err = c.ZCard(ctx, key).Result()
				n += members
			}
		}
		return err
	})
	return n, err
}
