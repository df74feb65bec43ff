package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// A broker that is killed at any boundary of a message's life loses nothing
// that it acknowledged, and repeats no delivery but those that were under way.
func TestFaultKillAtEachPointLosesNothing(t *testing.T) {
	parallel(t)
	for _, point := range []string{failpoint.BeforeCommit, failpoint.AfterCommit, failpoint.BeforeFanout,
		failpoint.AfterFanout,
		failpoint.AfterClaim, failpoint.BeforePost, failpoint.AfterPost, failpoint.AfterOutcome, failpoint.AfterAck} {
		t.Run(point, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, w *world) {
				w.with(quick...)
				s := newSink(t, nil)
				p := w.start(envKill + "=" + point + ":40")
				p.sample("k=" + s.URL)
				current := p
				toll := w.toll(s)
				l := startLoad(600, func() []*process { return []*process{current} })
				p.awaitEnd()
				acked := l.finish()
				toll.died(point)
				if point == failpoint.AfterPost {
					require.Positive(t, toll.lost, "the outcome of the fortieth answer is not stored")
				}
				current = w.start()
				extra := w.requireAll(s, acked)
				toll.requireNoMore()
				if w.redis != nil {
					requireRisingAttempts(t, s)
				}
				t.Logf("%d acknowledged, %d requests under way at the kill, %d copies", len(acked), toll.lost, extra)
				// The restarted broker is whole: it takes and delivers.
				current.publish("m-after")
				eventually(t, "a message after the restart", func() bool { return s.times("m-after") == 1 })
			})
		})
	}
}

// An outcome that is stored is final even though Redis never heard of it.
func TestFaultKillBetweenOutcomeAndAckRepeatsNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		s := newSink(t, nil)
		p := w.start(envKill + "=" + failpoint.AfterOutcome + ":1")
		p.sample("k=" + s.URL)
		p.publish("m-1")
		p.awaitEnd()
		require.Equal(t, 1, s.count())
		p = w.start()
		p.publish("m-2")
		require.Zero(t, w.requireAll(s, []string{"m-1", "m-2"}), "a delivered job is not sent again")
	})
}

// A poison message that kills its broker each time is dead after its attempts,
// and everything else goes on.
func TestFaultKillByPoisonEndsInADeadLetter(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	s := newSink(t, nil)
	p := w.start()
	p.sample("k=" + s.URL)
	p.stop()
	for range 3 { // BROKER_MAX_RETRIES=2: three attempts
		p = w.start(envKill + "=" + failpoint.BeforePost + ":1")
		if p.tryPublish("m-poison", "X-Broker-Message-ID", "poison") {
			t.Log("published")
		}
		p.awaitEnd()
	}
	p = w.start()
	eventually(t, "the poison to be dead", func() bool {
		return strings.Contains(p.do("GET", "/channel/c/consumer/k/dlq", "").body, "poison")
	})
	p.publish("m-good")
	eventually(t, "the good one", func() bool { return s.times("m-good") == 1 })
	require.Zero(t, w.requireAll(s, []string{"m-good"}))
	require.Zero(t, s.times("m-poison"))
}

func TestFaultKillAfterPullClaimGivesTheJobBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		p := w.start(envKill + "=" + failpoint.AfterPullClaim + ":1")
		p.sample("k")
		p.publish("m-1")
		var jobs []map[string]any
		eventually(t, "the job to be listed", func() bool { jobs = p.queued("k"); return len(jobs) == 1 })
		id := jobs[0]["ID"].(string)
		_, err := p.try("POST", "/channel/c/consumer/k/job/"+id, `{"NextState":"INFLIGHT"}`, consumerTokens("k")...)
		require.Error(t, err, "the broker died before it answered")
		p = w.start()
		eventually(t, "the job to be listed again", func() bool { return len(p.queued("k")) == 1 })
		require.Equal(t, 202, p.move("k", id, `{"NextState":"INFLIGHT"}`).status)
		require.Equal(t, 202, p.move("k", id, `{"NextState":"DELIVERED"}`).status)
	})
}

func TestFaultKillAfterRedriveStillDelivers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		var fail atomic.Bool
		fail.Store(true)
		s := newSink(t, func(int, received) int {
			if fail.Load() {
				return 500
			}
			return 204
		})
		p := w.start(envKill + "=" + failpoint.AfterRedrive + ":1")
		p.sample("k=" + s.URL)
		p.publish("m-1")
		eventually(t, "the job to be dead", func() bool {
			return strings.Contains(p.do("GET", "/channel/c/consumer/k/dlq", "").body, `"DEAD"`)
		})
		fail.Store(false)
		_, err := p.try("POST", "/channel/c/consumer/k/dlq", "requeue=k-token", "Content-Type",
			"application/x-www-form-urlencoded")
		require.Error(t, err)
		before := s.count()
		require.Equal(t, 3, before)
		w.start()
		eventually(t, "the redriven job", func() bool { return s.count() > before })
		require.Zero(t, w.requireAll(s, []string{"m-1"}), "once")
	})
}

func TestFaultFlushallUnderLoadLosesNothing(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	s := newSink(t, nil)
	p := w.start()
	p.sample("k="+s.URL, "pull")
	early := p.walkedPast(s, 20)
	l := startLoad(3000, func() []*process { return []*process{p} })
	flushes := w.flushed(s)
	for range 5 {
		n := l.count()
		eventually(t, "progress", func() bool { return l.count() >= min(n+400, 3000) })
		flushes.flushall()
	}
	acked := l.wait()
	require.Len(t, acked, 3000)
	acked = append(acked, early...)
	w.requireAll(s, acked)
	copies := flushes.requireNoMore()
	t.Logf("%d jobs leased at the flushes, %d copies", len(flushes.held), copies)
	// The pull consumer sees every job, too.
	done := map[string]bool{}
	for len(done) < len(acked) {
		n := len(done)
		eventually(t, fmt.Sprintf("more jobs than %d", n), func() bool {
			for _, j := range p.queued("pull", "limit=100") {
				id := j["ID"].(string)
				if r := p.move("pull", id, `{"NextState":"INFLIGHT"}`); r.status != 202 || r.header.Get("X-Broker-Lease") == "" {
					continue
				}
				// A lease of a second may be over before a slow machine has sent the report.
				if r := p.move("pull", id, `{"NextState":"DELIVERED"}`); r.status != 400 {
					require.Equal(t, 202, r.status, r.body)
					done[j["Message"].(map[string]any)["Payload"].(string)] = true
				}
			}
			return len(done) > n
		})
	}
	for _, body := range acked {
		require.True(t, done[body], body)
	}
}

// A worker whose job's lease was wiped with Redis may still report success.
func TestFaultFlushallDoesNotRefuseAWorkerItsResult(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_RATIONAL_DELAY=500ms")
	p := w.start()
	p.sample("k")
	p.publish("m-1")
	p.publish("m-2")
	var jobs []map[string]any
	eventually(t, "the jobs", func() bool { jobs = p.queued("k"); return len(jobs) == 2 })
	id, other := jobs[0]["ID"].(string), jobs[1]["ID"].(string)
	require.Equal(t, 202, p.move("k", id, `{"NextState":"INFLIGHT"}`).status)
	require.Equal(t, 400, p.move("k", other, `{"NextState":"DELIVERED"}`).status, "it was not in flight")
	w.flushall()
	eventually(t, "the success to be taken", func() bool {
		return p.move("k", id, `{"NextState":"DELIVERED"}`).status == 202
	})
	eventually(t, "the other job to be back alone", func() bool {
		jobs := p.queued("k")
		return len(jobs) == 1 && jobs[0]["ID"] == other
	})
}

func TestFaultRestartOfRedisLosesNothing(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	s := newSink(t, nil)
	p := w.start()
	p.sample("k="+s.URL, "pull")
	early := p.walkedPast(s, 20)
	l := startLoad(2000, func() []*process { return []*process{p} })
	for range 2 {
		n := l.count()
		eventually(t, "progress", func() bool { return l.count() >= min(n+300, 2000) })
		w.redis.Kill()
		// Publishing goes on without Redis.
		n = l.count()
		eventually(t, "acknowledgements without Redis", func() bool { return l.count() >= min(n+100, 2000) })
		w.redis.Restart()
	}
	acked := append(l.wait(), early...)
	require.Zero(t, w.requireAll(s, acked), "nothing twice: the broker remembers what it delivers")
	finishPull(t, p, "pull", len(acked))
}

func TestFaultRestartOfMySQLLosesNothing(t *testing.T) {
	parallel(t)
	w := ownMySQLWorld(t).with(quick...)
	s := newSink(t, nil)
	p := w.start()
	p.sample("k=" + s.URL)
	l := startLoad(2000, func() []*process { return []*process{p} })
	for range 2 {
		n := l.count()
		eventually(t, "progress", func() bool { return l.count() >= min(n+300, 2000) })
		w.mysql.Kill()
		r, err := p.try("POST", "/channel/c/broadcast", "never acknowledged", producerTokens...)
		require.NoError(t, err)
		require.Equal(t, 503, r.status)
		require.NotEmpty(t, r.header.Get("Retry-After"))
		said, _, named := strings.Cut(strings.ToLower(r.body), `"request_id"`) // which is random
		require.True(t, named)
		require.NotContains(t, said, "sql")
		w.mysql.Restart()
	}
	require.Zero(t, w.requireAll(s, l.wait()), "nothing twice: the broker remembers what it delivers")
}

// MySQL stands still for longer than a lease while an outcome waits for it. The broker
// keeps the lease meanwhile: the job becomes due for nobody.
func TestFaultPauseOfMySQLLetsNoLeaseEnd(t *testing.T) {
	parallel(t)
	w := ownMySQLWorld(t).with(quick...)
	s := newSink(t, func(_ int, r received) int {
		if r.body == "m-held" {
			w.mysql.Pause() // before the outcome can be stored
		}
		return 204
	})
	p := w.start()
	p.sample("k=" + s.URL)
	p.publish("m-first")
	w.requireAll(s, []string{"m-first"})
	i := w.insight(s)
	leased, queue := queueKeys(i.consumers()[0])[2], w.openRedis()
	deadline := func() time.Time {
		all, err := queue.ZRangeWithScores(t.Context(), leased, 0, -1).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, len(all), 1)
		if len(all) == 0 {
			return time.Time{}
		}
		return time.UnixMilli(int64(all[0].Score))
	}
	_ = p.tryPublish("m-held") // its fan-out needs no MySQL, its answer came before the pause
	var first time.Time
	eventually(t, "a lease", func() bool { first = deadline(); return !first.IsZero() })
	eventually(t, "the first deadline to pass", func() bool { return time.Now().After(first.Add(time.Second)) })
	require.True(t, deadline().After(time.Now()), "the lease goes on")
	require.Equal(t, 1, s.times("m-held"))
	w.mysql.Resume()
	require.Zero(t, w.requireAll(s, []string{"m-first", "m-held"}))
	require.Equal(t, 1, s.times("m-held"))
	require.Zero(t, leasesEnded(t, p))
}

// Two brokers: one dies, the other delivers what it left.
func TestFaultKillOfOneBrokerIsTakenOverByAnother(t *testing.T) {
	parallel(t)
	for _, point := range []string{failpoint.BeforeFanout, failpoint.AfterClaim, failpoint.AfterPost,
		failpoint.AfterOutcome} {
		t.Run(point, func(t *testing.T) {
			parallel(t)
			w := realWorld(t).with(quick...)
			s := newSink(t, nil)
			other := w.start()
			other.sample("k=" + s.URL)
			const dying = "dying"
			p := w.start(envKill+"="+point+":20", "BROKER_USER_AGENT="+dying)
			l := startLoad(500, func() []*process { return []*process{p} })
			p.awaitEnd()
			extra := w.requireAll(s, l.finish())
			ofDying := map[string]int{}
			for _, r := range s.all() {
				if r.header.Get("User-Agent") == dying {
					ofDying[r.body]++
				}
			}
			requireRisingAttempts(t, s)
			lost, _ := w.insight(s).unaccounted()
			for body, n := range lost {
				require.LessOrEqual(t, n, ofDying[body], "%s was sent again, and not because its broker died", body)
			}
			if point == failpoint.AfterPost {
				require.Positive(t, extra, "the outcome of the twentieth answer was lost with the broker")
			}
		})
	}
}

// The ack of a death is lost with Redis's memory of everything since: the dead
// job is still leased there. Whoever reopens it gets a lease of its own.
func TestFaultLostAckOfADeadJobDoesNotKeepItFromBeingReopened(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...).with("BROKER_STOP_TIMEOUT=1h") // the lease will not end by itself
		p := w.start(envKill + "=" + failpoint.AfterOutcome + ":1")
		p.sample("k")
		p.publish("m-1")
		var jobs []map[string]any
		eventually(t, "the job", func() bool { jobs = p.queued("k"); return len(jobs) == 1 })
		id := jobs[0]["ID"].(string)
		require.Equal(t, 202, p.move("k", id, `{"NextState":"INFLIGHT"}`).status)
		_, err := p.try("POST", "/channel/c/consumer/k/job/"+id, `{"NextState":"DEAD"}`, consumerTokens("k")...)
		require.Error(t, err, "the broker died before it told Redis")
		p = w.start()
		r := p.move("k", id, `{"NextState":"INFLIGHT"}`)
		require.Equal(t, 202, r.status, r.body)
		require.NotEmpty(t, r.header.Get("X-Broker-Lease"))
		require.Equal(t, 202, p.move("k", id, `{"NextState":"DELIVERED"}`, "X-Broker-Lease",
			r.header.Get("X-Broker-Lease")).status)
		require.Equal(t, 400, p.move("k", id, `{"NextState":"INFLIGHT"}`).status, "it is over")
	})
}
