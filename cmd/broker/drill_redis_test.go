package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// BenchmarkDrillFlushall wipes Redis under a backlog of JOBS open jobs of one
// consumer, while 200 messages a second are published: first for a push consumer
// that takes a second, more or less, for each request, then, the same jobs, for a pull worker
// that claims one after the other. For each:
//
//   - first: from FLUSHALL to the first job of the backlog that is handed out and
//     was not leased at that moment (those are repeats, or on their way already);
//   - known: from FLUSHALL until every open job can be handed out again: all are
//     in Redis, or the window is full and Redis knows that the store has more. The
//     rest is then brought as the window empties, like any backlog.
//
// In the end everything is drained by batch pull workers and counted.
func BenchmarkDrillFlushall(b *testing.B) {
	for b.Loop() {
		jobs := drillJobs(b)
		r := newRig(b)
		p := r.start()
		d := &flushDrill{rig: r, p: p, jobs: jobs, deliveries: newDeliveries(jobs + 10_000_000)}
		slow := httptest.NewServer(d)
		b.Cleanup(slow.Close)
		p.sample("k=" + slow.URL)
		r.say("publishing %d jobs", jobs)
		r.fill(p, 0, jobs, func(int) int { return 0 })
		load := startPace(p, jobs, 200)
		d.open = func() int { return jobs + load.count() - d.deliveries.count() }
		r.awaitKnown(d.open)

		heldByPush := d.flush("push")
		p.put("/channel/c/consumer/k", "type", "pull")
		eventually(b, "the requests of the push consumer to end", func() bool { return d.posting.Load() == 0 })
		stop, worker := make(chan struct{}), sync.WaitGroup{}
		var failed error
		worker.Go(func() { failed = d.pull(stop) })
		r.awaitKnown(d.open)
		heldByPull := d.flush("pull")
		close(stop)
		worker.Wait()

		answers := load.finish()
		for _, a := range answers {
			if a.status != 201 {
				b.Fatalf("a publish was answered %d %v", a.status, a.err)
			}
		}
		if failed != nil {
			b.Fatal(failed)
		}
		total := jobs + len(answers)
		begun := time.Now()
		rest := newDrain(p, d.deliveries, total)
		r.together(drillWorkers, rest.work)
		r.requireWhole(d.deliveries, total, heldByPush, heldByPull)
		r.requireOver(total)
		r.report("drain-s", time.Since(begun).Seconds(), fmt.Sprintf("seconds until %d batch workers had drained the rest "+
			"of %d jobs, %d requests refused", drillWorkers, total, rest.refused))
		r.report("repeats", float64(len(d.deliveries.repeats)), fmt.Sprintf("jobs delivered again, of %d in flight at the "+
			"two flushes", len(heldByPush)+len(heldByPull)))
	}
}

// A flushDrill is a consumer of BenchmarkDrillFlushall: a slow push consumer, then
// a pull worker.
type flushDrill struct {
	*rig
	p          *process
	jobs       int
	deliveries *deliveries
	open       func() int
	posting    atomic.Int64

	mu       sync.Mutex
	arrivals []arrival
}

// An arrival is a job of the backlog that was handed out.
type arrival struct {
	message ident.ID
	at      time.Time
}

// ServeHTTP is the push consumer.
func (d *flushDrill) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.posting.Add(1)
	defer d.posting.Add(-1)
	at := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d.arrived(r.Header.Get("X-Broker-Job-ID"), string(body), at)
	time.Sleep(time.Second/2 + rand.N(time.Second)) // its slots become free one by one
	w.WriteHeader(http.StatusNoContent)
}

// arrived records that a job was handed out.
func (d *flushDrill) arrived(job, body string, at time.Time) (first bool) {
	message, first := d.deliveries.deliver(job, body)
	if n, err := drillNumber(body); err == nil && n < d.jobs { // of the backlog
		d.mu.Lock()
		d.arrivals = append(d.arrivals, arrival{message, at})
		d.mu.Unlock()
	}
	return first
}

// pull claims and finishes one job after the other.
func (d *flushDrill) pull(stop <-chan struct{}) error {
	worker := newDrain(d.p, d.deliveries, 0)
	worker.limit = 1
	worker.handed = func(j apitype.ClaimedJob, at time.Time) bool { return d.arrived(j.ID, j.Message.Payload, at) }
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		jobs, err := worker.claim()
		if err == nil && len(jobs) > 0 {
			err = worker.finish(jobs)
		}
		if err != nil {
			return err
		}
	}
}

// flush wipes Redis and reports how soon the consumer has work again.
func (d *flushDrill) flush(kind string) (held map[ident.ID]bool) {
	begun, held := d.rig.flush()
	open := d.open()
	known := d.awaitKnown(d.open)
	var first time.Time
	eventually(d.b, "a job after the flush", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, a := range d.arrivals {
			if a.at.After(begun) && !held[a.message] {
				first = a.at
				return true
			}
		}
		return false
	})
	d.report(kind+"-first-s", first.Sub(begun).Seconds(), fmt.Sprintf("seconds from FLUSHALL to the first job handed "+
		"out (goal <= 2), %d open, %d leased", open, len(held)))
	d.report(kind+"-known-s", known.Sub(begun).Seconds(), "seconds from FLUSHALL until every open job can be handed "+
		"out again (goal <= 60)")
	return held
}

// BenchmarkDrillRedisAway kills Redis and starts it, empty, on the same port 30
// seconds later, while 300 messages a second are published to a push consumer.
func BenchmarkDrillRedisAway(b *testing.B) {
	for b.Loop() {
		away := drillAway(b)
		r := newRig(b)
		s := newSink(b, nil)
		p := r.start()
		p.sample("k=" + s.URL)
		load := startPace(p, 0, 300)
		eventually(b, "deliveries", func() bool { return s.count() > 1000 })

		killed := time.Now()
		r.redis.Kill()
		time.Sleep(away)
		r.redis.Restart()
		returned := time.Now()
		eventually(b, "everything up to now", func() bool { return s.distinct() >= load.count() })
		time.Sleep(2 * time.Second) // a load that goes on, afterwards
		answers := load.finish()

		var acked []string
		var during []told
		var refused int
		for _, a := range answers {
			if a.acked() {
				acked = append(acked, drillBodyOf(a))
			}
			if a.answered().After(killed) && a.sent.Before(returned) {
				during = append(during, a)
				if !a.acked() {
					refused++
				}
			}
		}
		repeats := r.requireAll(s, acked)
		first := s.first()
		var last time.Time
		for _, a := range during {
			if at := first[drillBodyOf(a)]; at.After(last) {
				last = at
			}
		}
		r.requireRepeatsBefore(s, answers, killed)
		r.report("answered-2xx-%", 100*float64(len(during)-refused)/float64(len(during)),
			fmt.Sprintf("of %d publishes while Redis was away for %v (goal 100)", len(during), away))
		r.report("slowest-answer-ms", slowest(during).Seconds()*1000, "slowest answer meanwhile")
		r.report("all-delivered-s", last.Sub(returned).Seconds(), "seconds from its return until everything published "+
			"before was delivered")
		r.report("repeats", float64(repeats), fmt.Sprintf("deliveries more than once, of at most %d in flight at the kill",
			drillInFlight))
	}
}

// requireRepeatsBefore ends the drill unless what came twice was published before
// a fault, and is no more than was in flight.
func (r *rig) requireRepeatsBefore(s *sink, answers []told, fault time.Time) {
	r.b.Helper()
	repeats := 0
	for _, a := range answers {
		n := s.times(drillBodyOf(a))
		if n > 1 && a.sent.After(fault) {
			r.b.Fatalf("message %s was published after the fault and came %d times", a.key, n)
		}
		repeats += max(n-1, 0)
	}
	if repeats > drillInFlight {
		r.b.Fatalf("%d repeats: more than were in flight", repeats)
	}
}
