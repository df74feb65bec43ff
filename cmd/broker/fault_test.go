package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/failpoint"
)

// requireAll waits until the sink has every acknowledged body and then until
// nothing more comes, and returns how many extra copies there were.
func requireAll(t testing.TB, s *sink, acked []string) (extra int) {
	t.Helper()
	eventually(t, fmt.Sprintf("all %d acknowledged messages to be delivered", len(acked)), func() bool {
		for _, body := range acked {
			if s.times(body) == 0 {
				return false
			}
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for body, n := range s.byBody {
		require.True(t, strings.HasPrefix(body, "m-"), "nothing is delivered that was not sent")
		extra += n - 1
	}
	return extra
}

// A broker that is killed at any boundary of a message's life loses nothing
// that it acknowledged, and repeats no delivery but those that were under way.
func TestFaultKillAtEachPointLosesNothing(t *testing.T) {
	// duplicates: how many deliveries may be repeated, at most: those in flight.
	points := map[string]int{
		failpoint.BeforeCommit: 64, failpoint.AfterCommit: 64, failpoint.BeforeFanout: 64, failpoint.AfterFanout: 64,
		failpoint.AfterClaim: 64, failpoint.BeforePost: 64, failpoint.AfterPost: 1100, failpoint.AfterOutcome: 1100, failpoint.AfterSettle: 1100,
	}
	for point, bound := range points {
		t.Run(point, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, w *world) {
				w.with(quick...)
				s := newSink(t, nil)
				p := w.start(envKill + "=" + point + ":40")
				p.sample("k=" + s.URL)
				current := p
				l := startLoad(600, func() []*process { return []*process{current} })
				p.awaitEnd()
				acked := l.finish()
				current = w.start()
				extra := requireAll(t, s, acked)
				require.LessOrEqual(t, extra, bound)
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
		eventually(t, "the second message", func() bool { return s.times("m-2") == 1 })
		time.Sleep(6 * time.Second) // longer than the lease: quick settings + 3 s
		require.Equal(t, 1, s.times("m-1"), "a delivered job is not sent again")
	})
}

// A poison message that kills its broker each time is dead after its attempts,
// and everything else goes on.
func TestFaultKillByPoisonEndsInADeadLetter(t *testing.T) {
	t.Parallel()
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
	require.Zero(t, s.times("m-poison"))
}

func TestFaultKillAfterPullClaimGivesTheJobBack(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with(quick...)
		p := w.start(envKill + "=" + failpoint.AfterPullHold + ":1")
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
		fail := true
		s := newSink(t, func(int, received) int {
			if fail {
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
		fail = false
		_, err := p.try("POST", "/channel/c/consumer/k/dlq", "requeue=k-token", "Content-Type", "application/x-www-form-urlencoded")
		require.Error(t, err)
		before := s.count()
		require.Equal(t, 3, before)
		w.start()
		eventually(t, "the redriven job", func() bool { return s.count() == before+1 })
	})
}

func TestFaultFlushallUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	w := realWorld(t).with(quick...)
	s := newSink(t, nil)
	p := w.start()
	p.sample("k="+s.URL, "pull")
	l := startLoad(3000, func() []*process { return []*process{p} })
	flushes := 0
	for flushes < 5 {
		n := l.count()
		eventually(t, "progress", func() bool { return l.count() >= min(n+400, 3000) })
		w.flushall()
		flushes++
	}
	acked := l.wait()
	require.Len(t, acked, 3000)
	extra := requireAll(t, s, acked)
	require.LessOrEqual(t, extra, flushes*64, "at most what was in flight at each flush")
	// The pull consumer sees every job, too.
	done := map[string]bool{}
	for len(done) < 3000 {
		n := len(done)
		eventually(t, fmt.Sprintf("more jobs than %d", n), func() bool {
			for _, j := range p.queued("pull", "limit=100") {
				id := j["ID"].(string)
				if r := p.move("pull", id, `{"NextState":"INFLIGHT"}`); r.status == 202 && r.header.Get("X-Broker-Lease") != "" {
					require.Equal(t, 202, p.move("pull", id, `{"NextState":"DELIVERED"}`).status)
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
	t.Parallel()
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
	eventually(t, "the success to be taken", func() bool { return p.move("k", id, `{"NextState":"DELIVERED"}`).status == 202 })
	eventually(t, "the other job to be back alone", func() bool {
		jobs := p.queued("k")
		return len(jobs) == 1 && jobs[0]["ID"] == other
	})
}

func TestFaultRestartOfRedisLosesNothing(t *testing.T) {
	t.Parallel()
	w := realWorld(t).with(quick...)
	s := newSink(t, nil)
	p := w.start()
	p.sample("k=" + s.URL)
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
	requireAll(t, s, l.wait())
}

func TestFaultRestartOfMySQLLosesNothing(t *testing.T) {
	t.Parallel()
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
	acked := l.wait()
	eventually(t, "all", func() bool {
		for _, b := range acked {
			if s.times(b) == 0 {
				return false
			}
		}
		return true
	})
}

// Two brokers: one dies, the other delivers what it left.
func TestFaultKillOfOneBrokerIsTakenOverByAnother(t *testing.T) {
	for _, point := range []string{failpoint.BeforeFanout, failpoint.AfterClaim, failpoint.AfterPost} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := realWorld(t).with(quick...)
			s := newSink(t, nil)
			other := w.start()
			other.sample("k=" + s.URL)
			p := w.start(envKill + "=" + point + ":20")
			l := startLoad(500, func() []*process { return []*process{p} })
			p.awaitEnd()
			requireAll(t, s, l.finish())
		})
	}
}

// The ack of a death is lost with Redis's memory of everything since: the dead
// job is still leased there. Whoever revives it gets a lease of its own.
func TestFaultLostAckOfADeadJobDoesNotKeepItFromBeingRevived(t *testing.T) {
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
		require.Equal(t, 202, p.move("k", id, `{"NextState":"DELIVERED"}`, "X-Broker-Lease", r.header.Get("X-Broker-Lease")).status)
		require.Equal(t, 400, p.move("k", id, `{"NextState":"INFLIGHT"}`).status, "it is over")
	})
}
