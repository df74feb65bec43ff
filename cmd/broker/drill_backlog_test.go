package main

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDrillBacklog lets JOBS jobs of 100 bytes and three priorities wait for
// one pull consumer, drains them with four workers that claim and finish 500 at a
// time, and wipes Redis when half of them are gone.
//
// The messages are published at one broker and claimed at another one, whose cache
// knows none of them, as after a restart: the claims from the backlog and those
// from an almost empty queue (at most 8 000 jobs, by as many workers in as large
// batches) then read the same from the store, and the length of the queue is all
// that differs. The p99 of the latter for messages that the cache still has is
// reported as well.
//
// Order is checked as drain.order says: a claim must not bring a new message of
// a higher priority than the lowest that was handed out before the claim was
// sent. From FLUSHALL until Redis knows all open jobs again (at most a minute)
// what is handed out does not count as handed out before.
func BenchmarkDrillBacklog(b *testing.B) {
	for b.Loop() {
		jobs := drillJobs(b)
		r := newRig(b)
		claimer, publisher := r.start(), r.start()
		claimer.sample("k")
		eventually(b, "the brokers to know each other", func() bool { return claimer.gauge(b, "penstock_brokers") == 2 })

		rounds := min(max(jobs/40_000, 2), 25)
		r.almostEmpty(claimer, claimer, 2) // connections and code get warm
		cached := r.almostEmpty(claimer, claimer, rounds)
		empty := r.almostEmpty(publisher, claimer, rounds)
		warmed := (2 + 2*rounds) * almostEmpty

		r.say("publishing %d jobs", jobs)
		begun, memory := time.Now(), r.watchMemory()
		r.fill(publisher, 0, jobs, drillPriority)
		r.say("published in %.1f s", time.Since(begun).Seconds())
		l := newDeliveries(jobs)
		open := func() int { return jobs - l.count() }
		r.awaitKnown(open)

		d := newDrain(claimer, l, jobs)
		begun = time.Now()
		drained := make(chan error, 1)
		go func() { drained <- sideBySide(drillWorkers, d.work) }()
		for l.count() < jobs/2 {
			select {
			case err := <-drained:
				b.Fatalf("drained before the flush: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		full := d.takeClaims()
		flushed, again, known, held := d.flush(r)
		if err := <-drained; err != nil {
			b.Fatal(err)
		}
		took := time.Since(begun)
		peak := memory()
		r.requireWhole(l, jobs, held)
		r.requireOver(jobs + warmed)
		if d.disorder > 0 {
			b.Fatalf("%d messages came after a less urgent one that was handed out while they waited", d.disorder)
		}
		r.report("redis-most-MB", peak/1e6, "most that Redis used (goal < 100)")
		r.report("drain-jobs/s", float64(jobs)/took.Seconds(), fmt.Sprintf("%d workers, %d jobs a batch, the flush "+
			"included; %d claims brought fewer, %d requests refused", drillWorkers, drillBatch, d.short, d.refused))
		r.report("flush-to-claim-s", again.Sub(flushed).Seconds(), "seconds from FLUSHALL to the next claim that brought "+
			"something new")
		r.report("repeats", float64(len(l.repeats)), fmt.Sprintf("jobs handed out again, of %d in flight at the flush",
			len(held)))
		r.report("disorder-at-flush", float64(d.disorders), fmt.Sprintf("messages overtaken in the %.1f s after the "+
			"flush; away from it: none", known.Sub(flushed).Seconds()))
		r.report("claim-p50-ms", quantile(full, .5), fmt.Sprintf("claims while %d..%d jobs waited: %d", jobs/2, jobs,
			len(full)))
		r.report("claim-p99-ms", quantile(full, .99), "")
		r.report("almost-empty-p50-ms", quantile(empty, .5), fmt.Sprintf("claims from an almost empty queue: %d", len(empty)))
		r.report("almost-empty-p99-ms", quantile(empty, .99), "")
		r.report("cached-p99-ms", quantile(cached, .99), "the same, of messages that the broker still has in memory")
		r.report("claim-p99-ratio", quantile(full, .99)/quantile(empty, .99), "backlog to almost empty queue (goal <= 2)")
	}
}

// drillPriority spreads messages evenly over three priorities.
func drillPriority(n int) int { return []int{0, 5, 9}[n%3] }

// almostEmpty is the most jobs that wait where a queue is called almost empty:
// four batches for each worker.
const almostEmpty = 4 * drillWorkers * drillBatch

// almostEmpty lets the workers drain so few jobs again and again, with nobody
// publishing meanwhile, as from the backlog, and returns the times of the claims.
func (r *rig) almostEmpty(publisher, claimer *process, rounds int) (claims []time.Duration) {
	r.b.Helper()
	for range rounds {
		r.fill(publisher, 0, almostEmpty, drillPriority)
		eventually(r.b, "the jobs to be in Redis", func() bool {
			level, err := r.level()
			return err == nil && level.jobs >= almostEmpty
		})
		l := newDeliveries(almostEmpty)
		d := newDrain(claimer, l, almostEmpty)
		r.together(drillWorkers, d.work)
		r.requireWhole(l, almostEmpty)
		claims = append(claims, d.takeClaims()...)
	}
	return claims
}
