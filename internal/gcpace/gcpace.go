// Package gcpace collects garbage less often while the heap is small: a program
// with a few megabytes of live objects and a high rate of requests spends several
// percent of its CPU time on collecting a heap of a size that nobody minds.
package gcpace

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// extra is how much garbage may gather, bytes: small beside a broker's limits,
	// large beside what a second of publishing allocates.
	extra = 128 << 20
	// most is the highest percentage: 1/most of the CPU time is saved already.
	most = 800
	// usual is Go's own percentage, for heaps where extra is less than that.
	usual = 100
	// every is how often the percentage is set anew.
	every = 2 * time.Second
)

// Start begins to set the garbage collector's percentage by the size of the live
// heap, until the process ends. GOGC in the environment keeps it from that.
func Start() {
	if os.Getenv("GOGC") != "" {
		return
	}
	go func() {
		set := usual
		for ; ; time.Sleep(every) {
			if p := percent(live()); p != set {
				debug.SetGCPercent(p)
				set = p
			}
		}
	}()
}

// percent lets extra bytes of garbage gather on top of live bytes.
func percent(live uint64) int {
	if live == 0 { // nothing was collected yet
		return most
	}
	return int(min(most, max(usual, extra*100/live)))
}

// live returns the bytes that the last collection left.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
