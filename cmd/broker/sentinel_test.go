package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// patient are quick settings with a delivery timeout that a busy machine keeps: a
// consumer of ours that is slow must not look like a repeated delivery.
var patient = append(append([]string{}, quick...), "BROKER_DELIVERY_TIMEOUT=10s")

// sentinelWorld has a master with one replica and sentinels of its own.
func sentinelWorld(t *testing.T, o servers.SentinelOptions) (*world, *servers.Sentinel) {
	s, err := servers.StartSentinel(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs of Redis and its sentinels:\n%s", s.Logs())
		}
		require.NoError(t, s.Close())
	})
	return &world{t: t, env: []string{"BROKER_MYSQL_DSN=" + tables.MySQL(t), "BROKER_REDIS_URL=" + s.URL(),
		"BROKER_REDIS_MASTER=" + s.MasterName}}, s
}

// promote makes the replica n the master.
func promote(t *testing.T, s *servers.Sentinel, n *servers.RedisNode) {
	t.Helper()
	var asked time.Time
	eventually(t, "the other node to be promoted", func() bool {
		m, err := s.Master(t.Context())
		if err == nil && m == n {
			return tell(t, n, "set", "test", "written") == nil
		}
		// One that does not get on is given up by the Sentinels, and has to be asked for again.
		if time.Since(asked) > servers.FailoverTimeout+5*time.Second && s.Failover(t.Context()) == nil {
			asked = time.Now()
		}
		return false
	})
}

// listedNow is the queued jobs of pull consumer k, none while Redis is away.
func listedNow(t *testing.T, p *process, k string) []map[string]any {
	t.Helper()
	r, err := p.try("GET", "/channel/c/consumer/"+k+"/queued-jobs?limit=100", "", consumerTokens(k)...)
	require.NoError(t, err)
	if r.status == 503 {
		return nil
	}
	var page struct{ Result []map[string]any }
	require.Equal(t, 200, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &page))
	return page.Result
}

// finishPull claims and finishes the jobs of pull consumer k until want different
// payloads are done.
func finishPull(t *testing.T, p *process, k string, want int) {
	t.Helper()
	var mu sync.Mutex
	done := map[string]bool{}
	finish := func(job map[string]any) {
		path := "/channel/c/consumer/" + k + "/job/" + job["ID"].(string)
		headers := append(consumerTokens(k), "Content-Type", "application/json")
		r, err := p.try("POST", path, to("INFLIGHT"), headers...)
		if lease := r.header.Get("X-Broker-Lease"); err == nil && lease != "" {
			r, err = p.try("POST", path, to("DELIVERED"), append(headers, "X-Broker-Lease", lease)...)
			if err == nil && r.status == 202 {
				mu.Lock()
				done[job["Message"].(map[string]any)["Payload"].(string)] = true
				mu.Unlock()
			}
		}
	}
	eventually(t, fmt.Sprintf("%d jobs of %s to be finished", want, k), func() bool {
		jobs := make(chan map[string]any)
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for j := range jobs {
					finish(j)
				}
			})
		}
		for _, j := range listedNow(t, p, k) {
			jobs <- j
		}
		close(jobs)
		workers.Wait()
		return len(done) >= want
	})
}

// The master is killed under load: every publish is acknowledged all the same,
// before, during and after the failover, and everything is delivered.
func TestFaultRedisSentinelFailoverLosesNothing(t *testing.T) {
	parallel(t)
	w, sentinel := sentinelWorld(t, servers.SentinelOptions{DownAfter: 2 * time.Second})
	w.with(patient...)
	sink := newSink(t, nil)
	p := w.start()
	p.sample("k="+sink.URL, "pull")
	p.publish("m-first")
	eventually(t, "a delivery", func() bool { return sink.times("m-first") == 1 })
	finishPull(t, p, "pull", 1)

	acked := []string{"m-first"}
	l := startLoad(800, func() []*process { return []*process{p} })
	eventually(t, "load", func() bool { return l.count() > 200 })
	require.NoError(t, sentinel.Nodes[0].Kill())
	for i := 0; ; i++ {
		acked = append(acked, fmt.Sprintf("m-without-master-%d", i))
		p.publish(acked[len(acked)-1]) // 201
		if m, err := sentinel.Master(t.Context()); err == nil && m == sentinel.Nodes[1] && i > 50 {
			break
		}
	}
	acked = append(acked, l.wait()...)
	require.Zero(t, w.requireAll(sink, acked), "nothing twice: the broker remembers what it delivers")
	finishPull(t, p, "pull", len(acked)-1)
}

// The old master comes back as a replica and is promoted again, without what the
// other one took meanwhile: it is a process the broker has met before.
func TestFaultRedisSentinelPromotesANodeThatMissedWrites(t *testing.T) {
	parallel(t)
	// Failovers are ours alone. Of several sentinels one that has not heard of the last
	// one yet could make the new master a replica of the dead one again: for it that
	// one is well, for an hour.
	w, sentinel := sentinelWorld(t, servers.SentinelOptions{Sentinels: 1, DownAfter: time.Hour})
	w.with(patient...)
	p := w.start()
	p.sample("pull")
	a, b := sentinel.Nodes[0], sentinel.Nodes[1]
	p.publish("m-before")
	eventually(t, "the first job", func() bool { return len(listedNow(t, p, "pull")) == 1 })

	promote(t, sentinel, b)
	eventually(t, "the old master to be a replica that keeps up", func() bool {
		return infoHas(t, a, "role:slave", "master_link_status:up") && infoHas(t, b, "connected_slaves:1")
	})
	require.NoError(t, a.Pause())
	// More than sockets hold: what is behind it never leaves the master.
	for i := range 48 {
		require.NoError(t, tell(t, b, "set", fmt.Sprint("filler", i), strings.Repeat("x", 1<<20)))
	}
	const jobs = 30
	for i := range jobs {
		p.publish(fmt.Sprintf("m-%d", i))
	}
	eventually(t, "all jobs", func() bool { return len(listedNow(t, p, "pull")) == jobs+1 })
	// The reconciler has walked past them: nobody looks at them again by himself.
	time.Sleep(4 * time.Second)
	require.NoError(t, b.Kill())
	require.NoError(t, a.Resume())
	promote(t, sentinel, a)
	finishPull(t, p, "pull", jobs+1)
}
