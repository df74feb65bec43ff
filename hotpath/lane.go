package hotpath

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/egress"
)

// A lane is one push consumer inside this broker: its free slots, and when it
// should be asked for work next. Lanes are the bulkheads: what hangs in one
// costs the others nothing but its own slots.
type lane struct {
	no uint32

	consumer atomic.Pointer[durable.Consumer]
	target   atomic.Pointer[laneTarget]

	mu       sync.Mutex
	inFlight int       // claimed by this broker and not answered yet
	queued   bool      // in the run queue or being served
	again    bool      // woken while it was being served
	claimed  time.Time // last claim
	timer    *time.Timer
	timerAt  time.Time // zero: no timer
}

// A laneTarget is where a consumer's requests go, for one value of its record.
type laneTarget struct {
	version int64
	target  *egress.Target
	err     error // the URL cannot be delivered to
}

// free returns how many more requests the lane may have in flight.
func (l *lane) free(limit int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return limit - l.inFlight
}

// take counts n more requests in flight.
func (l *lane) take(n int) {
	l.mu.Lock()
	l.inFlight += n
	l.mu.Unlock()
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
