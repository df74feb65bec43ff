package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// BenchmarkDrillBrokerKilled kills a broker, ten times (PENSTOCK_TEST_ROUNDS),
// after it has answered 201 and before Redis knows of the message, and measures
// how long it takes from the answer until another broker has delivered it. The
// broker stands before the fan-out for 20 ms, in which the answer leaves, and is
// killed there. Which of the two looked after the consumer is left to chance.
func BenchmarkDrillBrokerKilled(b *testing.B) {
	for b.Loop() {
		rounds := stormRounds(b)
		r := newRig(b)
		s := newSink(b, nil)
		other := r.start()
		other.sample("k=" + s.URL)
		var took []time.Duration
		for n := range rounds {
			eventually(b, "the last one's lease to end", func() bool { return other.gauge(b, "penstock_brokers") == 1 })
			doomed := r.start(envKill + "=" + failpoint.BeforeFanout + ":1:20ms")
			eventually(b, "the brokers to know each other", func() bool { return other.gauge(b, "penstock_brokers") == 2 })
			time.Sleep(rand.N(2 * time.Second)) // the loops of both take their turns every second
			if !doomed.tryPublish(drillBody(n)) {
				b.Fatal("the broker died before it answered")
			}
			answered := time.Now()
			doomed.awaitEnd()
			eventually(b, "the message", func() bool { return s.times(drillBody(n)) > 0 })
			took = append(took, s.first()[drillBody(n)].Sub(answered))
		}
		for n := range rounds {
			if times := s.times(drillBody(n)); times > 1 {
				b.Fatalf("message %d came %d times: it was never in flight", n, times)
			}
		}
		slices.Sort(took)
		var all strings.Builder
		for _, t := range took {
			fmt.Fprintf(&all, " %.2f", t.Seconds())
		}
		r.report("median-s", took[len(took)/2].Seconds(), "seconds from the answer, 20 ms before the kill, to the "+
			"delivery by another broker")
		r.report("largest-s", took[len(took)-1].Seconds(), "largest of them (goal <= rational delay + 2 s = 4); all:"+
			all.String())
	}
}
