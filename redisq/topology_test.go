package redisq_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuetest"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/redisq"
)

func TestRedisSentinel(t *testing.T) {
	sentinel := servers.SharedSentinel(t)
	runSuite(t, redisq.ConnectOptions{URL: sentinel.URL(), Master: sentinel.MasterName}, removeKeys)
}

func TestRedisCluster(t *testing.T) {
	// ForEachMaster in removeFromCluster fails for a client of one server.
	runSuite(t, redisq.ConnectOptions{URL: servers.SharedCluster(t).URL()}, removeFromCluster)
}

// removeFromCluster deletes the keys of one test from all masters.
func removeFromCluster(t testing.TB, client redis.UniversalClient, prefix string) {
	t.Helper()
	require.IsType(t, &redis.ClusterClient{}, client)
	err := client.(*redis.ClusterClient).ForEachMaster(context.Background(), func(_ context.Context,
		node *redis.Client) error {
		removeKeys(t, node, prefix)
		return nil
	})
	require.NoError(t, err)
}

// CLUSTER KEYSLOT gives one slot for all keys of a consumer, and enough different slots
// for all consumers that every master has some.
func TestRedisClusterSpreadsConsumersAndKeepsEachInOneSlot(t *testing.T) {
	ctx := context.Background()
	cluster := servers.SharedCluster(t)
	client := connect(t, cluster.URL())
	q := redisq.New(client, redisq.Options{Prefix: ownPrefix()})
	const consumers = 300
	slots, owners := map[int64]bool{}, map[string]int{}
	for c := range uint32(consumers) {
		var first int64
		for i, key := range q.Keys(c) {
			slot, err := client.ClusterKeySlot(ctx, key).Result()
			require.NoError(t, err)
			if i == 0 {
				first = slot
			}
			require.Equal(t, first, slot, key)
		}
		slots[first] = true
		owners[cluster.Addrs()[int(first)*len(cluster.Nodes)/servers.Slots]]++
	}
	require.Greater(t, len(slots), consumers*9/10)
	require.Len(t, owners, len(cluster.Nodes))
	for addr, n := range owners {
		require.Greater(t, n, consumers/6, addr)
	}
}

// onEveryMaster returns one consumer for each master, in the order of cluster.Nodes.
func onEveryMaster(t *testing.T, cluster *servers.Cluster, client redis.UniversalClient, q *redisq.Queue) []uint32 {
	t.Helper()
	consumers := make([]uint32, len(cluster.Nodes))
	for c, found := uint32(1), 0; found < len(consumers); c++ {
		slot, err := client.ClusterKeySlot(context.Background(), q.Keys(c)[0]).Result()
		require.NoError(t, err)
		owner, err := cluster.Owner(context.Background(), int(slot))
		require.NoError(t, err)
		for i, n := range cluster.Nodes {
			if n == owner && consumers[i] == 0 {
				consumers[i] = c
				found++
			}
		}
	}
	return consumers
}

func TestRedisClusterIsRecognisedByOneAddress(t *testing.T) {
	cluster := servers.SharedCluster(t)
	one := "redis://" + cluster.Addrs()[1]
	require.IsType(t, &redis.ClusterClient{}, connect(t, one))
	_, _, err := redisq.Connect(context.Background(), redisq.ConnectOptions{URL: one + "/1"})
	require.ErrorContains(t, err, "cluster mode", "a Cluster has database 0 only")
}

// The three masters are three processes that are known from the start.
func TestRedisClusterMastersDoNotMoveTheIncarnation(t *testing.T) {
	ctx := context.Background()
	cluster := servers.SharedCluster(t)
	client, watch, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: cluster.URL(), Timeout: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	prefix := ownPrefix()
	t.Cleanup(func() { removeFromCluster(t, client, prefix) })
	q := redisq.New(client, redisq.Options{Prefix: prefix, Runs: watch})
	consumers := onEveryMaster(t, cluster, client, q)
	_, errs := q.StatsMany(ctx, consumers)
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, len(consumers), q.Incarnation(), "only the first contact with each consumer counts")
}

// One call for consumers on all masters returns a result for each consumer.
func TestRedisClusterWithoutAMasterServesTheConsumersOfTheOthers(t *testing.T) {
	ctx := context.Background()
	cluster, err := servers.StartCluster(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	client := connect(t, cluster.URL())
	q := redisq.New(client, redisq.Options{})
	consumers := onEveryMaster(t, cluster, client, q)
	batches := func(n int) []redisq.Batch {
		var out []redisq.Batch
		for _, c := range consumers {
			out = append(out, redisq.Batch{Consumer: c, Jobs: jobsOf(ids(n))})
		}
		return out
	}
	_, errs := q.EnqueueMany(ctx, batches(2))
	for _, err := range errs {
		require.NoError(t, err)
	}
	lost := map[uint32]int{}
	q.OnLost(func(c uint32) { lost[c]++ })
	require.NoError(t, cluster.Nodes[1].Kill())

	added, errs := q.EnqueueMany(ctx, batches(3))
	for i := range consumers {
		if i == 1 {
			require.Error(t, errs[i])
			continue
		}
		require.NoError(t, errs[i])
		require.Equal(t, 3, added[i].Added)
		c, err := q.Claim(ctx, consumers[i], 10, time.Hour, redisq.Limits{})
		require.NoError(t, err)
		require.Len(t, c.Leases, 5)
	}
	repeated := batches(1)
	for i := range repeated {
		require.NotEmpty(t, added[i].Epoch, "also after an error")
		repeated[i].Epoch = added[i].Epoch
	}
	errs = q.EnqueueAgain(ctx, repeated)
	require.NoError(t, errs[0])
	require.Error(t, errs[1])
	require.NoError(t, errs[2])
	require.Empty(t, lost)

	require.NoError(t, cluster.Nodes[1].Restart())
	require.NoError(t, cluster.AwaitHealthy(ctx))
	_, err = q.Stats(ctx, consumers[1])
	require.NoError(t, err)
	require.Equal(t, map[uint32]int{consumers[1]: 1}, lost, "the master came back empty")
}

// A claim whose reply is lost must not run twice. The Cluster client has its own rules for
// retries, so this test repeats the one for a single server.
func TestRedisClusterClaimWhoseAnswerIsLostRunsOnce(t *testing.T) {
	ctx := context.Background()
	cluster := servers.SharedCluster(t)
	var armed atomic.Bool
	client := connectTo(t, redisq.ConnectOptions{URL: cluster.URL(), Dialer: cutting(&armed)})
	prefix := ownPrefix()
	t.Cleanup(func() { removeFromCluster(t, client, prefix) })
	q := redisq.New(client, redisq.Options{Prefix: prefix})
	_, err := q.Enqueue(ctx, 1, jobsOf(ids(20)), redisq.Fresh)
	require.NoError(t, err)
	_, err = q.Claim(ctx, 1, 1, time.Hour, redisq.Limits{}) // that node knows the script now
	require.NoError(t, err)
	armed.Store(true)
	_, err = q.Claim(ctx, 1, 4, time.Hour, redisq.Limits{})
	require.Error(t, err)
	s, err := q.Stats(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, 5, s.Leased)
}

// A client whose map of the slots is old gets MOVED. It follows to the other master within
// the call: a caller never sees the redirection, for one script as for a pipeline.
func TestRedisClusterCallsFollowMOVED(t *testing.T) {
	ctx := context.Background()
	cluster, err := servers.StartCluster(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	prefix := ownPrefix()
	other := connect(t, cluster.URL())
	named := redisq.New(other, redisq.Options{Prefix: prefix})
	consumers := onEveryMaster(t, cluster, other, named)
	slot, err := other.ClusterKeySlot(ctx, named.Keys(consumers[0])[0]).Result()
	require.NoError(t, err)
	batches := make([]redisq.Batch, len(consumers))
	for i, consumer := range consumers {
		batches[i] = redisq.Batch{Consumer: consumer, Jobs: jobsOf(ids(2))}
	}
	for name, call := range map[string]func(q *redisq.Queue) error{
		"one script": func(q *redisq.Queue) error {
			_, err := q.Stats(ctx, consumers[0])
			return err
		},
		"a pipeline": func(q *redisq.Queue) error {
			_, errs := q.EnqueueMany(ctx, batches)
			return errors.Join(errs...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := redisq.New(connect(t, cluster.URL()), redisq.Options{Prefix: prefix})
			require.NoError(t, call(q)) // the client knows the slots from now on
			for {                       // again if the client has read the slots anew before the call
				from, err := cluster.Owner(ctx, int(slot))
				require.NoError(t, err)
				to := cluster.Nodes[0]
				if from == to {
					to = cluster.Nodes[1]
				}
				require.NoError(t, cluster.MoveSlot(ctx, int(slot), to))
				before := redirections(t, from)
				require.NoError(t, call(q))
				if redirections(t, from) > before {
					return
				}
			}
		})
	}
}

// redirections returns how often a node has answered MOVED.
func redirections(t *testing.T, n *servers.RedisNode) int {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), Protocol: 2, DisableIdentity: true})
	defer c.Close() //nolint:errcheck // nothing pending
	info, err := c.Info(context.Background(), "errorstats").Result()
	require.NoError(t, err)
	_, rest, found := strings.Cut(info, "errorstat_MOVED:count=")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(rest, "\r\n")
	count, err := strconv.Atoi(digits)
	require.NoError(t, err)
	return count
}

// A slot moves to another master, key by key, while its consumer works, and calls get ASK,
// TRYAGAIN and MOVED. No job is lost or leased twice. The epoch moves with the slot, so no
// loss is reported.
func TestRedisClusterSlotMovesUnderLoad(t *testing.T) {
	ctx := context.Background()
	cluster, err := servers.StartCluster(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	client := connect(t, cluster.URL())
	q := redisq.New(client, redisq.Options{})
	consumer := onEveryMaster(t, cluster, client, q)[0]
	slot, err := client.ClusterKeySlot(ctx, q.Keys(consumer)[0]).Result()
	require.NoError(t, err)
	all := ids(3000)
	// This job is never due, so the delayed key always exists. Without that key Redis would
	// refuse the scripts while the slot moves, because it wants all their keys on one node.
	_, err = q.Enqueue(ctx, consumer, []redisq.Job{{ID: all[0], Delay: time.Hour}}, redisq.Fresh)
	require.NoError(t, err)
	var lost atomic.Int64
	q.OnLost(func(uint32) { lost.Add(1) })

	var mu sync.Mutex
	claimed := map[string]int{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // enqueues each job until Redis has it
		for _, j := range jobsOf(all[1:]) {
			for src := redisq.Fresh; ; src = redisq.Repeated {
				if _, err := q.Enqueue(ctx, consumer, []redisq.Job{j}, src); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := q.Claim(ctx, consumer, 5, time.Hour, redisq.Limits{})
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				mu.Lock()
				for _, l := range c.Leases {
					claimed[l.ID.String()]++
				}
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(claimed)
	}
	for from := range 3 {
		require.Eventually(t, func() bool { return count() > (from+1)*300 }, time.Minute, time.Millisecond)
		require.NoError(t, cluster.MoveSlot(ctx, int(slot), cluster.Nodes[(from+1)%3]))
	}
	require.Eventually(t, func() bool { return count() == len(all)-1 }, time.Minute, time.Millisecond)
	close(stop)
	wg.Wait()
	for id, n := range claimed {
		require.Equal(t, 1, n, id)
	}
	require.Zero(t, lost.Load())
	queuetest.CheckInvariants(t, client, q, consumer)
	owner, err := cluster.Owner(ctx, int(slot))
	require.NoError(t, err)
	require.Same(t, cluster.Nodes[0], owner)
}

// While a slot moves, Redis stops a script at a missing key, even if the script itself
// emptied it, and keeps the writes before that point. No script may therefore return to a
// key that it may have emptied.
func TestRedisClusterScriptsAreWholeWhileTheirSlotMoves(t *testing.T) {
	ctx := context.Background()
	cluster, err := servers.StartCluster(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	client := connect(t, cluster.URL())
	for name, step := range map[string]func(t *testing.T, q *redisq.Queue, consumer uint32, leases []redisq.Lease) error{
		"claim": func(t *testing.T, q *redisq.Queue, consumer uint32, _ []redisq.Lease) error {
			c, err := q.Claim(ctx, consumer, 10, time.Hour, redisq.Limits{})
			require.Len(t, c.Leases, 1)
			return err
		},
		"extend": func(t *testing.T, q *redisq.Queue, consumer uint32, leases []redisq.Lease) error {
			ok, err := q.Extend(ctx, consumer, leases, time.Hour)
			require.Equal(t, []bool{true, true}, ok)
			return err
		},
		"reclaim of exhausted jobs": func(t *testing.T, q *redisq.Queue, consumer uint32, leases []redisq.Lease) error {
			wait(t, client, 5*time.Millisecond)
			x, err := q.Reclaim(ctx, consumer, 10, 1)
			require.Len(t, x.Exhausted, len(leases))
			return err
		},
		"nack": func(t *testing.T, q *redisq.Queue, consumer uint32, leases []redisq.Lease) error {
			_, err := q.Nack(ctx, consumer, leases, []time.Duration{0, time.Hour})
			return err
		},
		"release": func(t *testing.T, q *redisq.Queue, consumer uint32, leases []redisq.Lease) error {
			_, err := q.Release(ctx, consumer, leases)
			return err
		},
		"claim one": func(t *testing.T, q *redisq.Queue, consumer uint32, _ []redisq.Lease) error {
			w, err := q.Peek(ctx, consumer, nil, 1)
			require.NoError(t, err)
			_, _, err = q.ClaimOne(ctx, consumer, redisq.Job{ID: w[0].ID}, time.Hour, false)
			return err
		},
		"ack": func(t *testing.T, q *redisq.Queue, consumer uint32, leases []redisq.Lease) error {
			_, err := q.Ack(ctx, consumer, []ident.ID{leases[0].ID, leases[1].ID})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := redisq.New(client, redisq.Options{Prefix: ownPrefix()})
			consumer := onEveryMaster(t, cluster, client, q)[0]
			all := ids(4)
			lease := time.Hour
			if name == "reclaim of exhausted jobs" {
				lease = time.Millisecond
			}
			_, err := q.Enqueue(ctx, consumer, jobsOf(all[:2]), redisq.Fresh)
			require.NoError(t, err)
			c, err := q.Claim(ctx, consumer, 2, lease, redisq.Limits{})
			require.NoError(t, err)
			require.Len(t, c.Leases, 2)
			_, err = q.Enqueue(ctx, consumer, []redisq.Job{{ID: all[2], Delay: 2 * time.Hour}, {ID: all[3]}}, redisq.Fresh)
			require.NoError(t, err)
			slot, err := client.ClusterKeySlot(ctx, q.Keys(consumer)[0]).Result()
			require.NoError(t, err)
			require.NoError(t, cluster.BeginMove(ctx, int(slot), cluster.Nodes[1]))
			require.NoError(t, step(t, q, consumer, c.Leases))
			require.NoError(t, cluster.MoveSlot(ctx, int(slot), cluster.Nodes[1]))
			queuetest.CheckInvariants(t, client, q, consumer)
			found, err := q.Probe(ctx, consumer, all)
			require.NoError(t, err)
			for i, s := range found {
				require.True(t, s.State != redisq.Missing || name == "ack" && i < 2, "job %d is nowhere", i)
			}
		})
	}
}
