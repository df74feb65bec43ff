// Package gcpace makes the garbage collector run less often while the heap is small. With a
// few megabytes of live objects and a high rate of requests, a program otherwise spends
// several percent of its CPU time on keeping a small heap small.
package gcpace

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// extra is the amount of garbage that may accumulate, in bytes. It is small compared
	// with the memory limit of a broker, and large compared with the allocations of a
	// second of publishing.
	extra = 128 << 20
	// most is the highest percentage. A higher one would save hardly any CPU time.
	most = 800
	// usual is Go's default percentage. It applies to heaps larger than extra.
	usual = 100
	// every is the interval at which the percentage is set.
	every = 2 * time.Second
)

// Start sets the garbage collector's percentage by the size of the live heap until the
// process ends. It does nothing when the environment sets GOGC.
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

// percent returns the percentage with which extra bytes of garbage accumulate on top of
// live bytes.
func percent(live uint64) int {
	if live == 0 { // no collection has finished yet
		return most
	}
	return int(min(most, max(usual, extra*100/live)))
}

// live returns the size of the heap after the last collection.
func live() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
