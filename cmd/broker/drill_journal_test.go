package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/test/proxy"
)

// journalRate is the number of messages per second of the drill of the journal.
const journalRate = 1000

// BenchmarkDrillJournal publishes to a channel with ack=journal while MySQL is healthy, while each of
// its answers is 500 ms late, and while it stands still (PENSTOCK_DRILL_AWAY).
func BenchmarkDrillJournal(b *testing.B) {
	for b.Loop() {
		away := drillAway(b)
		r := newRig(b)
		link, err := proxy.Start("127.0.0.1:" + strconv.Itoa(r.mysql.Port()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = link.Close() }) // after everything that goes through it
		r.env[0] = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(r.env[0], link.Addr())
		r.with("BROKER_DATA_DIR=" + b.TempDir())
		s := newSink(b, nil)
		p := r.start()
		p.sample("k=" + s.URL)
		p.put("/channel/c", "ack", "journal")

		var acked []string
		phase := func(name string, first int, length time.Duration, begin, end func()) {
			load := startPace(p, first, journalRate)
			time.Sleep(2 * time.Second)
			before := p.gauge(b, "process_resident_memory_bytes")
			begin()
			began := time.Now()
			most := before
			for time.Since(began) < length {
				time.Sleep(200 * time.Millisecond)
				most = max(most, p.gauge(b, "process_resident_memory_bytes"))
			}
			ended := time.Now()
			end()
			statuses := map[int]int{}
			var took []time.Duration
			for _, a := range load.finish() {
				if a.acked() || a.status == 202 {
					acked = append(acked, drillBodyOf(a))
				}
				if a.sent.After(began) && a.sent.Before(ended) {
					statuses[a.status]++
					took = append(took, a.took)
				}
			}
			slices.Sort(took)
			r.say("%s: answers by status %v", name, statuses)
			r.report(name+"-p99.9-ms", float64(took[len(took)*999/1000].Microseconds())/1000,
				"99.9 % of the answers (goal: budget of 65 ms + 10)")
			r.report(name+"-202-share", float64(statuses[202])/float64(len(took)), "of the answers from the journal")
			r.report(name+"-rss-before-MB", before/1e6, "resident memory of the broker under load")
			r.report(name+"-rss-most-MB", most/1e6, "meanwhile")
		}
		none := func() {}
		phase("healthy", 0, 10*time.Second, none, none)
		phase("delayed", 1_000_000, 10*time.Second, func() { link.Set(proxy.Weather{Delay: 250 * time.Millisecond}) },
			func() { link.Set(proxy.Weather{}) })
		phase("stopped", 2_000_000, away, r.mysql.Pause, r.mysql.Resume)
		returned := time.Now()
		eventually(b, "an empty journal", func() bool { return p.gauge(b, "penstock_journal_messages") == 0 })
		r.report("drained-s", time.Since(returned).Seconds(), fmt.Sprintf("from the return of MySQL after %v to an empty "+
			"journal", away))
		if repeats := r.requireAll(s, acked); repeats > 0 {
			b.Fatalf("%d deliveries too many: nothing died", repeats)
		}
	}
}
