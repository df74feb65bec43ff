package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/archive"
)

// keepingSpan is how long publishes are timed before and after the removal.
const keepingSpan = 30 * time.Second

// BenchmarkDrillKeeping has JOBS messages that are older than the retention: one consumer got all of them, of which
// one in a hundred is a dead letter, and another one has 50 000 jobs that failed once, whose messages stay. Clients
// publish 200 messages a second to another channel: without a retention, while the others are archived and removed,
// and after it. The goal is that the p99 of publishing stays as it was:
//
//	make drills DRILL=Keeping JOBS=10000000
//
// It fails when a message is removed that the archive lacks.
func BenchmarkDrillKeeping(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		n := drillJobs(b)
		template := r.prepareStored()
		begun := time.Now()
		r.store(n, template)
		r.say("%d messages are stored, in %.0f s", n, time.Since(begun).Seconds())

		p := r.start("BROKER_RETENTION=0")
		p.put("/channel/live", "token", "c-token")
		r.live(p, 5*time.Second) // connections and code get warm
		alone := r.live(p, keepingSpan)
		p.stop()

		dir := filepath.Join(b.TempDir(), "archive")
		begun = time.Now()
		p = r.start("BROKER_RETENTION=1h", "BROKER_DEAD_RETENTION=1h", "BROKER_ARCHIVE_DIR="+dir)
		var beside []time.Duration
		for target := float64(n - storedOpen); p.count(b, "penstock_purged_messages_total") < target; {
			beside = append(beside, r.live(p, time.Second)...)
		}
		took := time.Since(begun).Seconds()
		after := r.live(p, keepingSpan)
		removed := p.count(b, "penstock_purged_messages_total")
		memory := p.memory("VmHWM")
		p.stop()

		r.report("removed/s", removed/took, fmt.Sprintf("%.0f messages archived and removed in %.0f s", removed, took))
		for name, times := range map[string][]time.Duration{"alone": alone, "beside": beside, "after": after} {
			r.report(name+"-p50-ms", quantile(times, .5), fmt.Sprintf("of %d publishes", len(times)))
			r.report(name+"-p99-ms", quantile(times, .99), "")
		}
		r.report("p99-ratio", quantile(beside, .99)/quantile(alone, .99), "beside the removal to without it")
		r.report("memory-MiB", float64(memory), "of the broker, at most")
		files, _, err := archive.Find(b.Context(), nil, []string{dir})
		if err != nil {
			b.Fatal(err)
		}
		count := 0
		for _, e := range files {
			count += e.Count
		}
		r.say("%d files of the archive have %d messages", len(files), count)
		if float64(count) < removed {
			b.Fatalf("%.0f messages were removed, and the archive has %d", removed, count)
		}
	}
}
