//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Slots is how many hash slots a Redis Cluster has.
const Slots = 16384

// clusterMasters is how many masters a Cluster has: the fewest that Redis
// recommends, because a majority must agree that a node is gone.
const clusterMasters = 3

// A Cluster is three Redis masters without replicas that share the slots. While
// one is away the others go on (cluster-require-full-coverage no); killed and
// restarted it comes back with its slots and, unless Args say otherwise, without
// data, about two seconds after it accepts connections.
type Cluster struct {
	Nodes []*RedisNode
}

// StartCluster starts a Cluster and returns when every node reports a healthy state. args are
// further options of redis-server. Close removes it.
func StartCluster(ctx context.Context, args ...string) (*Cluster, error) {
	c := &Cluster{}
	if err := c.start(ctx, args); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, args []string) error {
	for range clusterMasters {
		n, err := StartRedisNode(append([]string{
			"--cluster-enabled", "yes",
			"--cluster-node-timeout", "5000", // ms; a busy machine is no dead node
			"--cluster-require-full-coverage", "no",
		}, args...)...)
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for i, n := range c.Nodes {
		client := n.client()
		first, last := i*Slots/len(c.Nodes), (i+1)*Slots/len(c.Nodes)-1
		errs := []error{
			client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
			client.ClusterAddSlotsRange(ctx, first, last).Err(),
		}
		if i > 0 {
			errs = append(errs, client.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c.Nodes[0].Port())).Err())
		}
		if err := errors.Join(append(errs, client.Close())...); err != nil {
			return fmt.Errorf("servers: form a cluster: %w", err)
		}
	}
	return c.AwaitHealthy(ctx)
}

// AwaitHealthy returns when every node knows all nodes and owners of all slots.
func (c *Cluster) AwaitHealthy(ctx context.Context) error {
	for _, n := range c.Nodes {
		client := n.client()
		err := await(ctx, "the cluster to be healthy", func() bool {
			info, err := client.ClusterInfo(ctx).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r\n", Slots)) &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(c.Nodes)))
		})
		if err := errors.Join(err, client.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Addrs lists the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// URL is the redis:// URL with all nodes as seeds.
func (c *Cluster) URL() string { return "redis://" + strings.Join(c.Addrs(), ",") }

// Owner returns the node that owns a slot, as the first node that answers sees it.
func (c *Cluster) Owner(ctx context.Context, slot int) (*RedisNode, error) {
	for _, asked := range c.Nodes {
		client := redis.NewClient(&redis.Options{Addr: asked.Addr(), Protocol: 2, DisableIdentity: true,
			DialTimeout: adminTimeout / 10, ReadTimeout: adminTimeout / 10, MaxRetries: -1})
		ranges, err := client.Do(ctx, "cluster", "slots").Slice() // SHARDS is as of Redis 7
		_ = client.Close()
		if err != nil {
			continue
		}
		for _, r := range ranges {
			port := ownerIn(r, slot)
			for _, n := range c.Nodes {
				if n.Port() == port {
					return n, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("servers: no node owns slot %d", slot)
}

// ownerIn returns the port of the master in an entry of CLUSTER SLOTS, 0 when the
// slot is not in its range.
func ownerIn(entry any, slot int) int {
	r, ok := entry.([]any)
	if !ok || len(r) < 3 {
		return 0
	}
	first, _ := r[0].(int64)
	last, _ := r[1].(int64)
	master, _ := r[2].([]any)
	if len(master) < 2 || int64(slot) < first || int64(slot) > last {
		return 0
	}
	port, _ := master[1].(int64)
	return int(port)
}

// BeginMove marks a slot as moving to another node. It moves no key.
func (c *Cluster) BeginMove(ctx context.Context, slot int, to *RedisNode) error {
	from, err := c.Owner(ctx, slot)
	if err != nil || from == to {
		return err
	}
	fromID, err1 := from.id(ctx)
	toID, err2 := to.id(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := to.do(ctx, "cluster", "setslot", slot, "importing", fromID); err != nil {
		return err
	}
	return from.do(ctx, "cluster", "setslot", slot, "migrating", toID)
}

// id is the name of the node in its cluster.
func (n *RedisNode) id(ctx context.Context) (string, error) {
	c := n.client()
	defer c.Close() //nolint:errcheck // nothing pending
	return c.Do(ctx, "cluster", "myid").Text()
}

// MoveSlot moves a slot and its keys, one by one, to another node while clients
// use them, as a resharding does.
func (c *Cluster) MoveSlot(ctx context.Context, slot int, to *RedisNode) error {
	from, err := c.Owner(ctx, slot)
	if err != nil || from == to {
		return err
	}
	if err := c.BeginMove(ctx, slot, to); err != nil {
		return err
	}
	toID, err := to.id(ctx)
	if err != nil {
		return err
	}
	source := from.client()
	defer source.Close() //nolint:errcheck // nothing pending
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := source.Migrate(ctx, "127.0.0.1", strconv.Itoa(to.Port()), keys[0], 0, adminTimeout).Err(); err != nil {
			return fmt.Errorf("servers: migrate %s: %w", keys[0], err)
		}
	}
	// The target comes first, so that the slot has an owner at any time.
	for _, n := range append([]*RedisNode{to, from}, c.Nodes...) {
		if err := n.do(ctx, "cluster", "setslot", slot, "node", toID); err != nil {
			return err
		}
	}
	return nil
}

// Close kills all nodes and removes the data.
func (c *Cluster) Close() error { return closeAll(c.Nodes) }
