package bench

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// Promises are what the policies of push consumers promise, as far as their endpoint can see it. All
// consumers of a run have the same policy. It is checked while requests arrive.
type promises struct {
	rate      int // most requests in a window; 0: no limit
	window    time.Duration
	ordered   bool
	consumers []kept
}

// A kept is the state of one consumer.
type kept struct {
	mu     sync.Mutex
	times  []int64 // Unix ns of the last requests, a ring of rate
	count  int64
	over   int64 // requests that came too early after the one a whole rate before
	gap    int64 // ns: the shortest time from a request to the one a whole rate later
	latest map[string]uint64
	late   int64 // messages that came after a later one of their key
}

// newPromises reads the policy of a run.
func newPromises(c *Config, consumers int) *promises {
	p := &promises{consumers: make([]kept, consumers)}
	for _, field := range c.Policy {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "rateLimit":
			count, per, _ := strings.Cut(value, "/")
			n, err := strconv.Atoi(count)
			window, err2 := time.ParseDuration(per)
			if err == nil && err2 == nil && n > 0 { // else the broker refuses it
				p.rate, p.window = min(n, maxRate), window
			}
		case "ordered":
			p.ordered = value == "true" && c.Keys > 0
		}
	}
	return p
}

// maxRate bounds the times that are kept for each consumer.
const maxRate = 1_000_000

// asked notes a request to a consumer, whatever its answer will be.
func (p *promises) asked(consumer int, nowNs int64) {
	if p.rate == 0 || consumer >= len(p.consumers) {
		return
	}
	k := &p.consumers[consumer]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.times == nil {
		k.times = make([]int64, p.rate)
	}
	slot := &k.times[k.count%int64(p.rate)]
	if k.count >= int64(p.rate) {
		gap := nowNs - *slot
		if k.gap == 0 || gap < k.gap {
			k.gap = gap
		}
		if gap < int64(p.window) {
			k.over++
		}
	}
	*slot = nowNs
	k.count++
}

// took notes the first delivery of a message with an ordering key. The messages of a key have
// growing sequences, because one connection sends them one after the other.
func (p *promises) took(consumer int, key string, seq uint64) {
	if !p.ordered || key == "" {
		return
	}
	k := &p.consumers[consumer]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.latest == nil {
		k.latest = map[string]uint64{}
	}
	if latest, known := k.latest[key]; known && seq < latest {
		k.late++
		return
	}
	k.latest[key] = seq
}

// tell adds the findings to a verdict.
func (p *promises) tell(v *Verdict) {
	v.RateLimit, v.RateWindowMs = p.rate, float64(p.window)/1e6
	for i := range p.consumers {
		k := &p.consumers[i]
		k.mu.Lock()
		v.OverRate += k.over
		v.OutOfOrder += k.late
		v.Keys += len(k.latest)
		if gap := float64(k.gap) / 1e6; k.gap > 0 && (v.ShortestMs == 0 || gap < v.ShortestMs) {
			v.ShortestMs = gap
		}
		k.mu.Unlock()
	}
}
