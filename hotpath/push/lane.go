package push

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A lane is one push consumer inside this broker. It holds the claimed jobs that are not finished,
// and the time of the next claim. Lanes isolate consumers: a consumer that hangs takes only the
// slots of its own lane.
type lane struct {
	no    uint32
	limit int // requests in flight

	consumer  atomic.Pointer[durable.Consumer]
	target    atomic.Pointer[laneTarget]
	token     atomic.Pointer[laneToken]
	refusals  refusals
	service   atomic.Int64              // average time of a request, ns
	responses atomic.Int64              // usual size of a response, bytes
	suspected atomic.Int64              // counts calls of SuspectLoss
	probe     atomic.Int64              // Unix ms until which this broker may probe; the next delivery takes it
	short     atomic.Bool               // a large payload found no room: largePayloads wakes the lane
	exact     atomic.Bool               // the consumer has a rate or a concurrency: the lane claims nothing ahead
	full      atomic.Bool               // the concurrency kept a job back: the end of a lease wakes the lane
	ended     atomic.Int64              // counts the leases that ended while the lane was exact
	retrying  atomic.Int64              // deliveries with a slot that are no first attempts
	heldTo    atomic.Int64              // end of the last hold that kept a claim back, Unix ms
	until     atomic.Pointer[time.Time] // the rate allows no lease before; nil: it does
	link      replayLink
	large     int64 // bytes charged to the lane, under the lock of largePayloads

	mu      sync.Mutex
	claims  int         // reserved for a claim under way
	waiting []*delivery // claimed, no request yet
	posting int         // requests in flight, or about to be
	moved   time.Time   // when a request began after none, or one ended
	queued  bool        // in the run queue or being served
	again   bool        // woken while it was being served
	more    bool        // the last claim left jobs behind, or could not be made
	first   bool        // some of these come before a new job
	timer   *time.Timer
	timerAt time.Time // zero: no timer

	claimed time.Time // last claim; only the server of the lane uses it
}

// A laneTarget is the target of a consumer's requests, for one version of its record.
type laneTarget struct {
	version int64
	target  Target
	err     error // the URL cannot be delivered to
}

// fastService is the longest average request time at which a lane claims ahead.
const fastService = 50 * time.Millisecond

// ahead returns how many jobs a lane may claim beyond its requests in flight. A finished request
// then finds its successor in memory and needs no round trip to Redis. ahead is 0 for a consumer
// with one request at a time, because there priority must hold for each single job. It is 0 for a
// slow consumer, because leases would run down while the jobs wait, and for one with a rate or a
// concurrency, which count leases.
func (l *lane) ahead() int {
	if l.exact.Load() || l.service.Load() > int64(fastService) {
		return 0
	}
	return l.limit - 1
}

// observe updates the average request time.
func (l *lane) observe(took time.Duration) {
	old := l.service.Load()
	l.service.Store(old + (int64(took)-old)/16) // an average tolerates a lost update
}

// room returns how many more jobs the lane may claim.
func (l *lane) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left()
}

// left is room for callers that hold mu.
func (l *lane) left() int {
	return l.limit + l.ahead() - l.claims - len(l.waiting) - l.posting - l.taken()
}

// reserve reserves room for n jobs of a claim.
func (l *lane) reserve(n int) {
	l.mu.Lock()
	l.claims += n
	l.mu.Unlock()
}

// tryReserve reserves room for n jobs that are on their way to Redis. It reserves nothing and
// returns false where they do not all fit, where other jobs may be waiting that come first, or where
// the rate allows none.
func (l *lane) tryReserve(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first || l.left() < n || l.pause() > 0 {
		return false
	}
	l.claims += n
	return true
}

// unreserve returns room that the claim did not use.
func (l *lane) unreserve(n int) {
	l.mu.Lock()
	l.claims -= n
	l.mu.Unlock()
}

// put adds a claimed job that has a reserved place. It returns the job if its request may begin at
// once. Otherwise it returns nil, and a request that ends takes the job.
func (l *lane) put(v *delivery) *delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims--
	if l.posting >= l.limit {
		l.waiting = append(l.waiting, v)
		return nil
	}
	if l.posting++; l.posting == 1 {
		l.moved = time.Now()
	}
	return v
}

// leftMore records whether jobs are, or may be, left to claim, and whether some of them come before
// a new job. If jobs are left, the end of a request claims them. Otherwise the lane waits for a
// wake-up.
func (l *lane) leftMore(more, first bool) {
	l.mu.Lock()
	l.more, l.first = more, first
	l.mu.Unlock()
}

// next ends a request. It returns the waiting job whose request begins in its place, or nil. claim
// reports whether the lane should claim again: jobs were left behind, and at least a quarter of the
// lane's room is free.
func (l *lane) next() (v *delivery, claim bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = time.Now()
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

// setTimer schedules one wake-up, at the earliest of the requested times.
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

// takeProbe returns the right to probe, once; 0 where there is none.
func (l *lane) takeProbe() int64 {
	if l.probe.Load() == 0 {
		return 0
	}
	return l.probe.Swap(0)
}
