package main

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
	"github.com/penstock-broker/penstock/redisq"
)

// A clusterStage is a broker on a Cluster of its own with push consumers k1..kn
// and a pull consumer.
type clusterStage struct {
	*process
	t       *testing.T
	cluster *servers.Cluster
	sinks   map[string]*sink
	slots   map[string]int // of each push consumer
}

func newClusterStage(t *testing.T, consumers int, env ...string) *clusterStage {
	t.Helper()
	cluster, err := servers.StartCluster(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	w := &world{t: t, env: []string{"BROKER_MYSQL_DSN=" + tables.MySQL(t), "BROKER_REDIS_URL=" + cluster.URL()}}
	s := &clusterStage{process: w.with(patient...).with(env...).start(), t: t, cluster: cluster, sinks: map[string]*sink{},
		slots: map[string]int{}}
	s.sample("pull")
	// In an empty database consumers are numbered as they come.
	q := redisq.New(nil, redisq.Options{})
	for i := range consumers {
		k := "k" + strconv.Itoa(i)
		s.sinks[k] = newSink(t, nil)
		s.put("/channel/c/consumer/"+k, "token", k+"-token", "callbackUrl", s.sinks[k].URL)
		slot, err := admin(t, cluster.Nodes[0]).ClusterKeySlot(t.Context(), q.Keys(uint32(i + 2))[0]).Result()
		require.NoError(t, err)
		s.slots[k] = int(slot)
	}
	s.publish("m-first")
	for _, sink := range s.sinks {
		eventually(t, "a delivery to each consumer", func() bool { return sink.times("m-first") == 1 })
	}
	finishPull(t, s.process, "pull", 1)
	return s
}

// owner is the node of a consumer's keys.
func (s *clusterStage) owner(k string) *servers.RedisNode {
	s.t.Helper()
	n, err := s.cluster.Owner(s.t.Context(), s.slots[k])
	require.NoError(s.t, err)
	return n
}

// One master of three is killed under load. The consumers whose jobs the others
// hold get everything meanwhile and nothing twice; when it is back, empty, the
// rest is delivered as well.
func TestFaultRedisClusterMasterKilledHoldsUpOnlyItsConsumers(t *testing.T) {
	parallel(t)
	s := newClusterStage(t, 6)
	dead := s.owner("k0")
	var here, away []*sink
	for k, sink := range s.sinks {
		if s.owner(k) == dead {
			away = append(away, sink)
		} else {
			here = append(here, sink)
		}
	}
	require.NotEmpty(t, here)
	l := startLoad(400, func() []*process { return []*process{s.process} })
	eventually(t, "load", func() bool { return l.count() > 100 })
	require.NoError(t, dead.Kill())
	acked := []string{"m-first"}
	for i := range 50 {
		acked = append(acked, fmt.Sprintf("m-without-%d", i))
		s.publish(acked[len(acked)-1]) // 201
	}
	acked = append(acked, l.wait()...)
	for _, sink := range here {
		require.Zero(t, s.world.requireAll(sink, acked), "nothing twice")
	}
	for _, sink := range away {
		require.Zero(t, sink.times("m-without-49"), "its Redis is away")
	}
	require.NoError(t, dead.Restart())
	for _, sink := range away {
		require.Zero(t, s.world.requireAll(sink, acked), "nothing twice: the broker remembers what it delivers")
	}
	for _, sink := range here {
		require.Zero(t, s.world.requireAll(sink, acked), "nothing twice")
	}
	finishPull(t, s.process, "pull", len(acked)-1)
}

// While one master of three is dead, fan-out itself serves the consumers of the others. The
// rational delay keeps the reconciler from these messages, because it would bring the jobs
// of a fan-out that failed as a whole.
func TestFaultRedisClusterMasterKilledLeavesFanOutToTheOthersWhole(t *testing.T) {
	parallel(t)
	s := newClusterStage(t, 6, "BROKER_RATIONAL_DELAY=1h")
	dead := s.owner("k0")
	var here, away []*sink
	for k, sink := range s.sinks {
		if s.owner(k) == dead {
			away = append(away, sink)
		} else {
			here = append(here, sink)
		}
	}
	require.NotEmpty(t, here)
	require.NoError(t, dead.Kill())
	acked := []string{"m-first"}
	for i := range 50 {
		acked = append(acked, fmt.Sprintf("m-without-%d", i))
		s.publish(acked[len(acked)-1]) // 201
	}
	for _, sink := range here {
		eventually(t, "all messages at a consumer of a master that runs", func() bool { return sink.hasAll(acked) })
	}
	for _, sink := range away {
		require.Equal(t, 1, sink.count(), "its Redis is away")
	}
	require.Zero(t, s.count(t, "penstock_recovered_jobs_total"), "the reconciler has no part in it")
}

// The slots of consumers move to other masters under load: MOVED, ASK and
// TRYAGAIN are nobody's business but ours.
func TestFaultRedisClusterSlotsMovedUnderLoad(t *testing.T) {
	parallel(t)
	s := newClusterStage(t, 3)
	l := startLoad(900, func() []*process { return []*process{s.process} })
	for round := range 4 {
		eventually(t, "load", func() bool { return l.count() > 150*(round+1) })
		for k, slot := range s.slots {
			from := s.owner(k)
			for i, n := range s.cluster.Nodes {
				if n == from {
					require.NoError(t, s.cluster.MoveSlot(t.Context(), slot, s.cluster.Nodes[(i+1)%3]))
				}
			}
		}
	}
	acked := append(l.wait(), "m-first")
	require.Len(t, acked, 901)
	for k, sink := range s.sinks {
		require.Zero(t, s.world.requireAll(sink, acked), "nothing twice to %s", k)
	}
	finishPull(t, s.process, "pull", len(acked)-1)
	require.NotContains(t, s.log.String(), "lost or replaced")
}
