package main

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDrillMySQLStopped freezes MySQL for 30 seconds (SIGSTOP: connections
// stay open, nothing answers) while 100 messages a second are published to a push
// consumer, each once, whatever becomes of it.
func BenchmarkDrillMySQLStopped(b *testing.B) {
	for b.Loop() {
		away := drillAway(b)
		r := newRig(b)
		s := newSink(b, nil)
		p := r.start()
		p.sample("k=" + s.URL)
		load := startPace(p, 0, 100)
		eventually(b, "deliveries", func() bool { return s.count() > 300 })
		goroutines, memory := p.gauge(b, "go_goroutines"), p.gauge(b, "process_resident_memory_bytes")

		stopped := time.Now()
		r.mysql.Pause()
		mostGoroutines, mostMemory := goroutines, memory
		for time.Since(stopped) < away {
			mostGoroutines = max(mostGoroutines, p.gauge(b, "go_goroutines"))
			mostMemory = max(mostMemory, p.gauge(b, "process_resident_memory_bytes"))
			time.Sleep(100 * time.Millisecond)
		}
		returned := time.Now()
		r.mysql.Resume()
		eventually(b, "publishing to go on", func() bool { return load.ackedSince(returned) > 300 })
		answers := load.finish()

		statuses := map[int]int{} // of what was sent and answered meanwhile
		var waited time.Duration
		var first time.Time
		var acked []string
		for _, a := range answers {
			if a.acked() {
				acked = append(acked, drillBodyOf(a))
			}
			if a.sent.After(stopped) && a.answered().Before(returned) {
				statuses[a.status]++
			}
			if a.answered().After(stopped) && a.sent.Before(returned) {
				waited = max(waited, a.took)
			}
			if a.acked() && a.answered().After(returned) && (first.IsZero() || a.answered().Before(first)) {
				first = a.answered()
			}
			if a.err != nil || a.status != 201 && a.status != 503 {
				b.Fatalf("message %s was answered %d %v", a.key, a.status, a.err)
			}
		}
		if len(statuses) != 1 || statuses[503] == 0 {
			b.Fatalf("answers while MySQL stood still, by status: %v", statuses)
		}
		if repeats := r.requireAll(s, acked); repeats > 0 {
			b.Fatalf("%d deliveries too many: nothing died", repeats)
		}
		r.report("refused", float64(statuses[503]), fmt.Sprintf("answers while MySQL stood still for %v: all are 503", away))
		r.report("slowest-answer-s", waited.Seconds(), "slowest answer to what was sent before its return (goal <= 5)")
		r.report("first-201-s", first.Sub(returned).Seconds(), "seconds from its return to the first 201 (goal <= 5)")
		r.report("goroutines-before", goroutines, "of the broker under load")
		r.report("goroutines-most", mostGoroutines, "meanwhile")
		r.report("rss-before-MB", memory/1e6, "resident memory of the broker under load")
		r.report("rss-most-MB", mostMemory/1e6, "meanwhile")
	}
}
