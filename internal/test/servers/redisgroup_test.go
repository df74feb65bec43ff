//go:build unix

package servers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for an event; nothing is measured with it.
const patience = time.Minute

func TestSentinelPromotesTheReplicaAndTakesTheOldMasterBackAsOne(t *testing.T) {
	ctx := t.Context()
	s, err := StartSentinel(ctx, SentinelOptions{DownAfter: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.Len(t, s.Addrs(), 3)
	first, err := s.Master(ctx)
	require.NoError(t, err)
	require.Same(t, s.Nodes[0], first)
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
	require.NoError(t, c.Wait(ctx, 1, patience).Err())

	require.NoError(t, s.Healthy(ctx))
	require.NoError(t, first.Kill())
	require.Eventually(t, func() bool { return s.Healthy(ctx) != nil }, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		m, err := s.Master(ctx)
		return err == nil && m == s.Nodes[1]
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return c.Get(ctx, "k").Val() == "v" }, patience, 20*time.Millisecond)

	require.NoError(t, first.Restart())
	replica := awaitPair(t, s)
	// It still knows its part after another restart, and the sentinels theirs.
	require.NoError(t, replica.do(ctx, "config", "rewrite"))
	require.NoError(t, replica.Restart())
	require.NoError(t, s.Sentinels[0].Kill())
	require.NoError(t, s.Sentinels[0].Restart())
	awaitPair(t, s)
	require.Eventually(t, func() bool { return s.Healthy(ctx) == nil }, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return c.Get(ctx, "k").Val() == "v" }, patience, 20*time.Millisecond)
}

// awaitPair waits until the node that is no master is a replica of the one that
// is, and returns it. On a busy machine sentinels stand still for half a minute
// because they distrust the clock, or fail over once more.
func awaitPair(t *testing.T, s *Sentinel) *RedisNode {
	t.Helper()
	has := func(n *RedisNode, line string) bool {
		c := n.client()
		defer c.Close() //nolint:errcheck // nothing pending
		info, err := c.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, line+"\r\n")
	}
	var replica *RedisNode
	require.Eventually(t, func() bool {
		m, err := s.Master(t.Context())
		if err != nil {
			return false
		}
		for _, n := range s.Nodes {
			if n != m {
				replica = n
			}
		}
		return has(m, "connected_slaves:1") && has(replica, "role:slave") && has(replica, "master_link_status:up")
	}, 3*patience, 50*time.Millisecond)
	return replica
}

func TestClusterSpreadsKeysAndTakesAKilledMasterBack(t *testing.T) {
	ctx := context.Background()
	s, err := StartCluster(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs()})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	owned := map[*RedisNode]string{}
	for i := 0; len(owned) < len(s.Nodes); i++ {
		key := string(rune('a' + i))
		slot, err := c.ClusterKeySlot(ctx, key).Result()
		require.NoError(t, err)
		n, err := s.Owner(ctx, int(slot))
		require.NoError(t, err)
		require.NoError(t, c.Set(ctx, key, "v", 0).Err())
		owned[n] = key
	}
	require.NoError(t, s.Nodes[2].Kill())
	require.NoError(t, c.Set(ctx, owned[s.Nodes[0]], "w", 0).Err(), "the others go on")
	require.Error(t, c.Get(ctx, owned[s.Nodes[2]]).Err())
	require.NoError(t, s.Nodes[2].Restart())
	require.NoError(t, s.AwaitHealthy(ctx))
	require.ErrorIs(t, c.Get(ctx, owned[s.Nodes[2]]).Err(), redis.Nil, "it has its slots and no data")
	require.Equal(t, "w", c.Get(ctx, owned[s.Nodes[0]]).Val())
}

func TestTheSharedGroupsAnswer(t *testing.T) {
	s, err := SharedSentinel(t).Master(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, s.do(t.Context(), "flushall"), "unknown command")
	require.NoError(t, SharedCluster(t).AwaitHealthy(t.Context()))
}
