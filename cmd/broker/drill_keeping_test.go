package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/archive"
)

const (
	// keepingSpan is how long publishes are timed in each part but the longest.
	keepingSpan = 30 * time.Second
	removals    = "penstock_purged_messages_total"
)

// BenchmarkDrillKeeping has JOBS messages that are older than the retention: one consumer got all of them, of which
// one in a hundred is a dead letter, and another one has 50 000 jobs that failed once, whose messages stay. Clients
// publish 200 messages a second to another channel: without a retention, while retention keeps up with what passes
// its age, while all others are archived and removed as by a retention that is behind, and after it. The goal is that
// the p99 of publishing stays as it was:
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
		keep := func(age time.Duration) *process {
			return r.start("BROKER_RETENTION="+age.String(), "BROKER_DEAD_RETENTION="+age.String(), "BROKER_ARCHIVE_DIR="+dir)
		}
		// What passed its age is younger than a tenth of it, so this is not behind.
		stored := time.Duration(n/storedPerMs) * time.Millisecond
		p = keep(storedAge + stored - min(stored, storedAge/20))
		begun = time.Now()
		calm := r.live(p, keepingSpan)
		span := time.Since(begun)
		p.stop()
		early := n - r.stored() // the metric counts a file when all of it is removed
		r.report("calm-removed/s", float64(early)/span.Seconds(), "by a retention that keeps up")

		begun = time.Now()
		p = keep(storedAge / 2)
		var behind []time.Duration
		for target := float64(n - early - storedOpen); p.count(b, removals) < target; {
			behind = append(behind, r.live(p, time.Second)...)
		}
		took := time.Since(begun).Seconds()
		after := r.live(p, keepingSpan)
		removed := p.count(b, removals)
		memory := p.memory("VmHWM")
		p.stop()

		r.report("removed/s", removed/took, fmt.Sprintf("%.0f messages archived and removed in %.0f s", removed, took))
		for _, part := range []struct {
			name  string
			times []time.Duration
		}{{"alone", alone}, {"calm", calm}, {"behind", behind}, {"after", after}} {
			r.report(part.name+"-p50-ms", quantile(part.times, .5), fmt.Sprintf("of %d publishes", len(part.times)))
			r.report(part.name+"-p99-ms", quantile(part.times, .99), "")
			r.report(part.name+"-p99-ratio", quantile(part.times, .99)/quantile(alone, .99), "to without a retention")
		}
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
		if count < early+int(removed) {
			b.Fatalf("%d messages were removed, and the archive has %d", early+int(removed), count)
		}
	}
}

// stored is how many of the messages of store are there.
func (r *rig) stored() (n int) {
	r.b.Helper()
	db, err := sql.Open("mysql", r.dsn())
	if err != nil {
		r.b.Fatal(err)
	}
	defer db.Close()
	const count = "SELECT COUNT(*) FROM messages m JOIN channels c ON c.no = m.channel_no AND c.id = 'c'"
	if err := db.QueryRow(count).Scan(&n); err != nil {
		r.b.Fatal(err)
	}
	return n - 1 // the template
}
