package bench

import (
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are kept in microseconds up to ten minutes with three significant digits.
const (
	maxLatency = 10 * time.Minute
	latencyFig = 3
)

// recorderShards spreads the workers over several histograms, so that they seldom wait for the same
// lock.
const recorderShards = 8

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), latencyFig)
}

// A Recorder collects latencies from many goroutines. Interval moves them to the total, so a
// sampler sees each interval separately.
type Recorder struct {
	shards [recorderShards]struct {
		mu sync.Mutex
		h  *hdrhistogram.Histogram
		_  [64]byte // a cache line each
	}
	total, scratch *hdrhistogram.Histogram // of the sampler
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	r := &Recorder{total: newHistogram(), scratch: newHistogram()}
	for i := range r.shards {
		r.shards[i].h = newHistogram()
	}
	return r
}

// Record adds one latency. worker is any number that spreads callers.
func (r *Recorder) Record(worker int, ns int64) {
	us := min(max(ns/1000, 1), maxLatency.Microseconds())
	s := &r.shards[worker%recorderShards]
	s.mu.Lock()
	_ = s.h.RecordValue(us) // clamped into the range above
	s.mu.Unlock()
}

// Interval returns the latencies since the last call, valid until the next. Only one goroutine may
// call Interval and Total.
func (r *Recorder) Interval() *hdrhistogram.Histogram {
	r.scratch.Reset()
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		r.scratch.Merge(s.h)
		s.h.Reset()
		s.mu.Unlock()
	}
	r.total.Merge(r.scratch)
	return r.scratch
}

// Total returns everything recorded so far.
func (r *Recorder) Total() *hdrhistogram.Histogram {
	r.Interval()
	return r.total
}

// A Latency is the distribution of latencies in a report, in milliseconds.
type Latency struct {
	Count                                      int64
	Mean, Min, P50, P90, P95, P99, P999, P9999 float64
	Max                                        float64
	// HDR is the histogram of microseconds, V2 compressed, base64: other tools read it.
	HDR string `json:",omitempty"`
}

// Summary condenses a histogram.
func Summary(h *hdrhistogram.Histogram) (Latency, error) {
	l := Latency{Count: h.TotalCount()}
	if l.Count == 0 {
		return l, nil
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	l.Mean, l.Min, l.Max = h.Mean()/1000, ms(h.Min()), ms(h.Max())
	l.P50, l.P90, l.P95 = ms(h.ValueAtQuantile(50)), ms(h.ValueAtQuantile(90)), ms(h.ValueAtQuantile(95))
	l.P99, l.P999, l.P9999 = ms(h.ValueAtQuantile(99)), ms(h.ValueAtQuantile(99.9)), ms(h.ValueAtQuantile(99.99))
	b, err := h.EncodeV2()
	if err != nil {
		return l, fmt.Errorf("encode histogram: %w", err)
	}
	l.HDR = string(b)
	return l, nil
}

// Histogram reads the histogram back, nil when the distribution is empty.
func (l Latency) Histogram() (*hdrhistogram.Histogram, error) {
	if l.HDR == "" {
		return nil, nil
	}
	h, err := hdrhistogram.Decode([]byte(l.HDR))
	if err != nil {
		return nil, fmt.Errorf("decode histogram: %w", err)
	}
	return h, nil
}
