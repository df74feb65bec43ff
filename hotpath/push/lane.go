package push

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A lane is one push consumer inside this broker: its claimed jobs that are not finished, and the
// time of its next claim. Lanes are bulkheads: a consumer that hangs takes no slots but its own.
type lane struct {
	no    uint32
	limit int // requests in flight

	consumer  atomic.Pointer[durable.Consumer]
	target    atomic.Pointer[laneTarget]
	service   atomic.Int64 // average time of a request, ns
	suspected atomic.Int64 // counts calls of SuspectLoss
	short     atomic.Bool  // a large payload found no room: largePayloads wakes the lane
	large     int64        // bytes of large payloads charged to the lane, under the lock of largePayloads

	mu      sync.Mutex
	claims  int         // reserved for a claim under way
	waiting []*delivery // claimed, no request yet
	posting int         // requests in flight, or about to be
	queued  bool        // in the run queue or being served
	again   bool        // woken while it was being served
	more    bool        // the last claim left jobs behind, or could not be made
	timer   *time.Timer
	timerAt time.Time // zero: no timer

	claimed time.Time // last claim; only the server of the lane uses it
}

// A laneTarget is where a consumer's requests go, for one value of its record.
type laneTarget struct {
	version int64
	target  Target
	err     error // the URL cannot be delivered to
}

// fastService is the time of a request up to which a lane claims ahead.
const fastService = 50 * time.Millisecond

// ahead returns how many jobs a lane may claim beyond its requests in flight. A finished request
// then finds the next job in the lane, without a round trip to Redis. A consumer that takes one
// job at a time gets none ahead, because priority counts to the last job. Neither does a slow
// consumer, because the leases would run meanwhile.
func (l *lane) ahead() int {
	if l.service.Load() > int64(fastService) {
		return 0
	}
	return l.limit - 1
}

// observe averages the time of requests.
func (l *lane) observe(took time.Duration) {
	old := l.service.Load()
	l.service.Store(old + (int64(took)-old)/16) // a lost update of an average is none
}

// room returns how many more jobs the lane may claim.
func (l *lane) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left()
}

// left is room; the caller holds mu.
func (l *lane) left() int { return l.limit + l.ahead() - l.claims - len(l.waiting) - l.posting }

// reserve counts n jobs that a claim may bring.
func (l *lane) reserve(n int) {
	l.mu.Lock()
	l.claims += n
	l.mu.Unlock()
}

// tryReserve is reserve for jobs that are on their way to Redis. It returns false and does
// nothing if not all of them have room, or if other jobs may be waiting.
func (l *lane) tryReserve(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more || l.left() < n {
		return false
	}
	l.claims += n
	return true
}

// unreserve takes back places of jobs that the claim did not bring.
func (l *lane) unreserve(n int) {
	l.mu.Lock()
	l.claims -= n
	l.mu.Unlock()
}

// put adds a claimed job, for which a place was reserved. It returns the job if
// a request may begin at once, else nil: a request that ends takes it.
func (l *lane) put(v *delivery) *delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims--
	if l.posting >= l.limit {
		l.waiting = append(l.waiting, v)
		return nil
	}
	l.posting++
	return v
}

// leftMore records whether jobs are left, or may be left, for a claim. If so, the end of a request
// claims them. Otherwise the lane waits for a wake-up.
func (l *lane) leftMore(more bool) {
	l.mu.Lock()
	l.more = more
	l.mu.Unlock()
}

// next ends a request. It returns the job whose request begins in its place,
// nil when none waits, and whether the lane should claim again: it left jobs
// behind and has much room now.
func (l *lane) next() (v *delivery, claim bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 {
		v = l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
	} else {
		l.posting--
	}
	left := l.claims + len(l.waiting) + l.posting
	return v, l.more && left <= (l.limit+l.ahead())*3/4
}

// setTimer arranges one wake-up at the earliest time asked for.
func (l *lane) setTimer(after time.Duration, wake func()) {
	at := time.Now().Add(after)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.timerAt.IsZero() && l.timerAt.Before(at) && l.timerAt.After(time.Now()) {
		return
	}
	l.timerAt = at
	if l.timer == nil {
		l.timer = time.AfterFunc(after, wake)
		return
	}
	l.timer.Reset(after)
}

func (l *lane) stopTimer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}
