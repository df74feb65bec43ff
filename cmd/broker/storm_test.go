package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// stormRounds is how often each point kills a broker, on each kind of store:
// twenty times in all. PENSTOCK_TEST_ROUNDS asks for more.
func stormRounds(t testing.TB) int {
	text := os.Getenv("PENSTOCK_TEST_ROUNDS")
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "PENSTOCK_TEST_ROUNDS")
	return n
}

// buildPlain builds this test binary without the race detector, once for all tests. Its folder is
// removed by TestMain.
var buildPlain = sync.OnceValues(func() (folder string, err error) {
	if folder, err = os.MkdirTemp("", "penstock-plain-"); err != nil {
		return "", err
	}
	plainFolder.Store(&folder)
	if out, err := exec.Command("go", "test", "-race=false", "-vet=off", "-ldflags=-s -w", "-c", "-o",
		filepath.Join(folder, "broker"), ".").CombinedOutput(); err != nil {
		return folder, fmt.Errorf("%w: %s", err, out)
	}
	return folder, nil
})

var plainFolder atomic.Pointer[string]

// plainProgram is this test binary without the race detector.
func plainProgram(t *testing.T) string {
	t.Helper()
	folder, err := buildPlain()
	require.NoError(t, err)
	return filepath.Join(folder, "broker")
}

// A broker that is killed again and again, at every boundary there is, under
// traffic of every kind: nothing that was acknowledged is lost, nothing that a
// worker finished comes back, and a push is repeated only when it was in flight.
// The first round has the race detector, if there is one; the others, which repeat
// what it did, are three times as fast without.
func TestFaultStormOfKillsLosesNothing(t *testing.T) {
	plain := plainProgram(t)
	points := slices.DeleteFunc(slices.Clone(failpoint.Points), func(point string) bool { return elsewhere[point] })
	// Three storms side by side: the points of each take turns.
	for part := range 3 {
		t.Run(fmt.Sprint("part ", part+1), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, w *world) {
				s := newStorm(t, w.with(quick...))
				for round := range stormRounds(t) {
					if round > 0 {
						w.program = plain
					}
					for i := part; i < len(points); i += 3 {
						if round == 0 || !rare[points[i]] {
							s.kill(points[i], round)
						}
					}
				}
				s.finish()
			})
		})
	}
}

// A storm is traffic against whichever broker is alive: a producer, also of scheduled messages, a push
// consumer that refuses some messages three times, a worker of a pull consumer
// that drops some jobs three times, somebody who redrives the dead ones, and
// somebody who changes the configuration.
type storm struct {
	t       *testing.T
	w       *world
	sink    *sink
	toll    *toll
	current atomic.Pointer[process]
	stop    chan struct{}
	wg      sync.WaitGroup

	mu       sync.Mutex
	acked    map[string]bool
	finished map[string]string // job -> body, answered 202
	again    []string          // finished jobs that were handed out once more
	unknown  map[string]bool   // body of jobs whose worker got no answer to its result
	dropped  map[string]int
	accepted map[string]int // body -> pushes answered 204
	kills    int
	heard    *sink // of the status events
}

// rare are the points that a broker comes to every few seconds: they kill in the first round only.
var rare = map[string]bool{failpoint.AfterExpiryLease: true, failpoint.AfterForward: true, failpoint.AfterAlert: true,
	failpoint.AfterStatusBatch: true, failpoint.AfterStatusSent: true}

// elsewhere are the points that this traffic never comes to. The kills there are those of
// TestFaultKillOfBulks, TestFaultKillWhileABulkComesPublishesNothing,
// TestReplayGoesOnAfterAKillAtEachPoint, TestKillsAroundTheJournalLoseNothingAndStoreNothingTwice,
// TestFaultNoResponseIsLostWhereTheBrokerDies and TestFaultEachMessageIsStoredOrArchived.
var elsewhere = map[string]bool{failpoint.AfterBulkChunk: true, failpoint.AfterBulkBody: true,
	failpoint.BeforeBulkStep: true, failpoint.AfterBulkStep: true,
	failpoint.AfterReplay: true, failpoint.AfterReplayPage: true, failpoint.AfterReplayAdvance: true,
	failpoint.AfterResult: true, failpoint.BeforeReply: true, failpoint.AfterReply: true,
	failpoint.JournalWritten: true, failpoint.JournalFlushed: true, failpoint.JournalReplayed: true,
	failpoint.AfterArchive: true}

// awkward tells the messages that fail three times on their way: they go
// through retries, ended leases, death and redrive.
func awkward(body string) bool { return strings.HasSuffix(body, "7") }

func newStorm(t *testing.T, w *world) *storm {
	s := &storm{t: t, w: w, stop: make(chan struct{}), acked: map[string]bool{}, finished: map[string]string{},
		unknown: map[string]bool{},
		dropped: map[string]int{}, accepted: map[string]int{}}
	s.sink = newSink(t, func(_ int, r received) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if awkward(r.body) && s.sink.times(r.body) <= 3 {
			return 500
		}
		s.accepted[r.body]++
		return 204
	})
	p := w.start()
	p.sample("push="+s.sink.URL, "pull")
	p.put("/producer/p", "statusEvents", "all")
	s.heard = newSink(t, nil)
	p.hearStatus(s.heard)
	s.current.Store(p)
	s.toll = w.toll(s.sink)
	var sequence atomic.Int64
	// Slowly enough for the worker to keep up on a busy machine.
	s.every(30*time.Millisecond, func(p *process) { s.publish(p, fmt.Sprintf("m-%d", sequence.Add(1))) })
	s.every(5*time.Millisecond, s.work)
	s.every(300*time.Millisecond, s.redrive)
	s.expire(p, &sequence)
	s.every(100*time.Millisecond, func(p *process) {
		_, _ = p.try("PUT", "/channel/c/consumer/pull", "name=worker&token=pull-token&type=pull", "Content-Type",
			"application/x-www-form-urlencoded")
	})
	t.Cleanup(s.end)
	return s
}

// expire publishes messages that nobody works on: they expire, and are forwarded as dead letters.
// Another consumer of them is dead, is revived, and dies again: each death is an alert.
func (s *storm) expire(p *process, sequence *atomic.Int64) {
	p.put("/channel/graves", "token", "c-token")
	p.put("/channel/mayflies", "token", "c-token")
	p.put("/channel/mayflies/consumer/idle", "token", "idle-token", "type", "pull", "ttl", "100ms", "dlq",
		"forward:graves")
	p.put("/channel/mayflies/consumer/dies", "token", "dies-token", "callbackUrl", "http://127.0.0.1:9/", "tombstoneAfter",
		"1", "maxRetries", "1000")
	s.every(300*time.Millisecond, func(p *process) {
		_, _ = p.try("POST", "/channel/mayflies/consumer/dies/revive", "")
	})
	s.every(200*time.Millisecond, func(p *process) {
		_, _ = p.try("POST", "/channel/mayflies/broadcast", fmt.Sprint("mayfly ", sequence.Add(1)), producerTokens...)
	})
}

// every calls f with the broker of the moment until the storm ends.
func (s *storm) every(pause time.Duration, f func(p *process)) {
	s.wg.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			case <-time.After(pause):
				f(s.current.Load())
			}
		}
	})
}

func (s *storm) end() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.wg.Wait()
}

// kill replaces the broker by one that dies at the point, and waits for that.
func (s *storm) kill(point string, round int) {
	s.t.Helper()
	s.current.Load().kill()
	s.toll.died(fmt.Sprintf("round %d, before %s", round, point))
	n := 1 + rand.IntN(5)
	if point == failpoint.Draining || point == failpoint.AfterReclaim || point == failpoint.AfterRedrive || rare[point] {
		n = 1 // rare: the first one counts
	}
	p := s.w.launch(envKill + "=" + point + ":" + strconv.Itoa(n))
	s.current.Store(p)
	if point == failpoint.Draining {
		p.awaitReady()
		require.NoError(s.t, p.cmd.Process.Signal(syscall.SIGTERM))
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		s.t.Fatalf("round %d: the broker never came to %s:\n%s", round, point, p.log)
	}
	require.Equal(s.t, syscall.SIGKILL, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s: %s", point, p.log)
	s.toll.died(fmt.Sprintf("round %d, %s", round, point))
	s.kills++
}

// scheduled tells the messages that wait in a schedule first.
func scheduled(body string) bool { return strings.HasSuffix(body, "3") }

func (s *storm) publish(p *process, body string) {
	for { // until the fate is known: the same message ID is stored once
		headers := append(append([]string{}, producerTokens...), "X-Broker-Message-ID", "id-"+body)
		if scheduled(body) {
			headers = append(headers, "X-Broker-Scheduled-For", in(300*time.Millisecond))
		}
		r, err := p.try("POST", "/channel/c/broadcast", body, headers...)
		// A repeat names another time, which is another schedule: nobody else has that ID.
		if err == nil && (r.stored() || scheduled(body) && r.status == 409) {
			s.mu.Lock()
			s.acked[body] = true
			s.mu.Unlock()
			return
		}
		select {
		case <-s.stop:
			return
		case <-time.After(20 * time.Millisecond):
			p = s.current.Load()
		}
	}
}

// work claims up to a few jobs in one call, and finishes them one by one.
func (s *storm) work(p *process) {
	r, err := p.try("POST", "/channel/c/consumer/pull/claim?limit=5", "", consumerTokens("pull")...)
	if err != nil || r.status != 200 {
		return
	}
	list, _ := r.json(s.t)["Result"].([]any)
	for _, entry := range list {
		job := entry.(map[string]any)
		id, lease := job["ID"].(string), job["Lease"].(string)
		body := job["Message"].(map[string]any)["Payload"].(string)
		s.mu.Lock()
		if _, over := s.finished[id]; over {
			s.again = append(s.again, body)
		}
		s.dropped[body]++
		drop := awkward(body) && s.dropped[body] <= 3
		s.mu.Unlock()
		if drop {
			continue // as a worker that died
		}
		r, err := p.try("POST", "/channel/c/consumer/pull/job/"+id, `{"NextState":"DELIVERED"}`,
			append(consumerTokens("pull"), "Content-Type", "application/json", "X-Broker-Lease", lease)...)
		s.mu.Lock()
		if err == nil && r.status == 202 {
			s.finished[id] = body
		} else {
			s.unknown[body] = true
		}
		s.mu.Unlock()
	}
}

// redrive opens the dead letters of both consumers again.
func (s *storm) redrive(p *process) {
	for _, k := range []string{"push", "pull"} {
		_, _ = p.try("POST", "/channel/c/consumer/"+k+"/dlq", "requeue="+k+"-token", "Content-Type",
			"application/x-www-form-urlencoded")
	}
}

// finish gives the last broker time to finish everything, and checks it.
func (s *storm) finish() {
	t := s.t
	s.current.Load().kill()
	s.toll.died("the last kill")
	s.current.Store(s.w.start())
	s.mu.Lock()
	n := len(s.acked)
	s.mu.Unlock()
	s.end()
	worker := make(chan struct{})
	s.stop = worker
	s.every(5*time.Millisecond, s.work)
	s.every(300*time.Millisecond, s.redrive)
	deadline := time.Now().Add(patience)
	for len(s.missing()) > 0 && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	if missing := s.missing(); len(missing) > 0 {
		p := s.current.Load()
		t.Fatalf("%d of %d acknowledged messages are missing, such as %s:\n%s\nqueued %s", len(missing), n, missing[0],
			p.do("GET", "/channel/c/message/id-"+missing[0], "", consumerTokens("push")...).body,
			p.do("GET", "/channel/c/consumer/pull/queued-jobs?limit=3", "", consumerTokens("pull")...).body)
	}
	for len(s.untold()) > 0 && time.Now().Before(deadline) {
		time.Sleep(200 * time.Millisecond)
	}
	require.Empty(t, s.untold(), "the producer is told of each delivery")
	s.w.awaitRest(s.sink)
	s.end()
	s.toll.requireNoMore()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Positive(t, n)
	require.Empty(t, s.again, "a job that was finished is handed out to nobody")
	copies := 0
	for _, times := range s.accepted {
		copies += times - 1
	}
	require.LessOrEqual(t, copies, s.toll.lost, "only what was under way at a kill is pushed again")
	t.Logf("%d kills, %d messages, %d requests under way at them, %d pushes repeated", s.kills, n, s.toll.lost, copies)
}

// missing returns the acknowledged messages that are not yet known to be with
// both consumers. Where the answer to a worker was lost, the store tells.
func (s *storm) missing() (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pulled := map[string]bool{}
	for _, body := range s.finished {
		pulled[body] = true
	}
	for body := range s.acked {
		if s.accepted[body] > 0 && !pulled[body] && s.unknown[body] {
			r, err := s.current.Load().try("GET", "/channel/c/message/id-"+body, "")
			pulled[body] = err == nil && strings.Count(r.body, `"Status":"DELIVERED"`) == 2
		}
		if s.accepted[body] == 0 || !pulled[body] {
			missing = append(missing, body)
		}
	}
	return missing
}
