package verify

import (
	"sync"

	"github.com/penstock-broker/penstock/redisq"
)

// A Fits limits for each consumer how many jobs one call requests. Without it, a consumer with
// large messages would claim, load and release hundreds of jobs for each one that fits into an
// answer. It has entries only for consumers whose jobs did not fit.
type Fits struct {
	mu   sync.Mutex
	most map[uint32]int
}

// Of returns n, or the consumer's limit if that is lower.
func (f *Fits) Of(consumer uint32, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if most, known := f.most[consumer]; known {
		return min(n, most)
	}
	return n
}

// Learn adjusts the limit after a call that returned got jobs, of which fit had room in the answer.
func (f *Fits) Learn(consumer uint32, got, fit int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most, known := f.most[consumer]
	switch {
	case fit < got:
		if f.most == nil {
			f.most = map[uint32]int{}
		}
		f.most[consumer] = 2 * max(fit, 1)
	case known && got >= most:
		if f.most[consumer] = 4 * most; 4*most >= redisq.MaxBatch {
			delete(f.most, consumer)
		}
	}
}
