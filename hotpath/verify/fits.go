package verify

import (
	"sync"

	"github.com/penstock-broker/penstock/redisq"
)

// A Fits remembers for each consumer how many jobs at once are worth asking for: a
// few where their messages are large, so that hundreds are not claimed, looked at
// and given back for each one that has room. Only those that did not fit are in it.
type Fits struct {
	mu   sync.Mutex
	most map[uint32]int
}

// Of returns n, or the smaller number that is worth asking for.
func (f *Fits) Of(consumer uint32, n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if most, known := f.most[consumer]; known {
		return min(n, most)
	}
	return n
}

// Learn is told that of got jobs fit had room.
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
