package metrics

import (
	"math"
	"sort"
	"time"
)

// Buckets is the number of buckets of a Histogram, the last of which has no end.
const Buckets = 34

// histogramBounds are the upper bounds of all buckets but the last: 0.5 ms times a power of the square
// root of 2, up to 32.8 s. Every other one is a power of 2.
var histogramBounds = func() (bounds [Buckets - 1]time.Duration) {
	for i := range bounds {
		bounds[i] = time.Duration(math.Round(500_000 * math.Pow(2, float64(i)/2)))
	}
	return bounds
}()

// HistogramBound returns the upper bound of a bucket below the last one, which belongs to it.
func HistogramBound(i int) time.Duration { return histogramBounds[i] }

// A Histogram counts times in buckets of fixed bounds, so two of them add up. It is a value: a copy does
// not change with its original. It is not safe for concurrent use.
type Histogram struct {
	Counts [Buckets]uint64
	Sum    time.Duration
}

// Observe counts a time n times.
func (h *Histogram) Observe(took time.Duration, n uint64) {
	i := sort.Search(Buckets-1, func(i int) bool { return took <= histogramBounds[i] })
	h.Counts[i] += n
	h.Sum += took * time.Duration(n)
}

// Count returns the number of times.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Add adds the times of another histogram.
func (h *Histogram) Add(o *Histogram) {
	for i, c := range o.Counts {
		h.Counts[i] += c
	}
	h.Sum += o.Sum
}

// Since returns the times of h that earlier, an older copy of it, does not have.
func (h Histogram) Since(earlier *Histogram) Histogram {
	for i, c := range earlier.Counts {
		h.Counts[i] -= c
	}
	h.Sum -= earlier.Sum
	return h
}

// Quantile returns an estimate of the time that the part q of all times does not exceed, 0 without any
// time. Inside a bucket the times are taken to be spread evenly. A time in the last bucket counts as its
// lower bound.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count())
	if rank == 0 {
		return 0
	}
	below, lower := 0.0, time.Duration(0)
	for i, bound := range histogramBounds {
		n := float64(h.Counts[i])
		if n > 0 && below+n >= rank {
			return lower + time.Duration(float64(bound-lower)*(rank-below)/n)
		}
		below += n
		lower = bound
	}
	return lower
}
