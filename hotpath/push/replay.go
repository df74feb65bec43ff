package push

import (
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A replay has a lane of its own behind that of its consumer. Redis grants it jobs only while the
// consumer has none ready, so what is left here is that it takes few slots: at most a quarter of
// those of the consumer, which counts them as its own. While this broker has live deliveries of any
// consumer, the lane has one slot and pauses between two claims, so that it takes a small part of
// the processor and of the store.

const (
	// replayShare is the part of the slots of a consumer that its replay may take.
	replayShare = 4
	// liveFor is how long after a live claim the broker counts as busy.
	liveFor = 250 * time.Millisecond
	// busyPause is the least time between two claims of a replay while the broker is busy, and
	// busyShare how many times as long as a request takes it pauses.
	busyPause = 5 * time.Millisecond
	busyShare = 10
	// behindPause is the wait for a slot that the consumer does not need.
	behindPause = 50 * time.Millisecond
)

// A replayLink joins the lane of a consumer and that of its replay.
type replayLink struct {
	behind atomic.Pointer[lane] // of a consumer: the lane of its replay; nil: it has none
	live   *lane                // of a replay: the lane of its consumer
}

// learnReplay joins the lane of a replay to that of its consumer. The caller holds d.mu.
func (d *Dispatcher) learnReplay(l *lane, k *durable.Consumer) {
	l.limit = max(l.limit/replayShare, 1)
	l.link.live = d.lanes[k.Replay.ConsumerNo]
	if l.link.live != nil {
		l.link.live.link.behind.Store(l)
	}
}

// forgetReplay is the end of learnReplay.
func (l *lane) forgetReplay() {
	if live := l.link.live; live != nil {
		live.link.behind.CompareAndSwap(l, nil)
	}
}

// taken returns how many slots of the lane its replay has. A lane is locked before its replay.
func (l *lane) taken() int {
	if r := l.link.behind.Load(); r != nil {
		return r.busySlots()
	}
	return 0
}

// roomOf returns how many jobs a lane may claim now. A replay takes no slot that its consumer could
// miss, and one slot at a time while the broker is busy.
func (d *Dispatcher) roomOf(l *lane) int {
	room := l.room()
	if l.link.live == nil {
		return room
	}
	if d.busy() {
		room = min(room, 1-l.taken())
	}
	return min(room, l.link.live.room())
}

// awaitRoom wakes a lane of a replay that has no room: no delivery of its own may be left to do it.
// It returns false, as a claim that is not made.
func (d *Dispatcher) awaitRoom(l *lane) bool {
	if l.link.live != nil {
		l.setTimer(behindPause, func() { d.Wake(l.no) })
	}
	return false
}

// busy reports whether this broker has claimed live jobs just now.
func (d *Dispatcher) busy() bool { return d.nowNs()-d.live.Load() < int64(liveFor) }

// behindFor returns how long a lane pauses behind live jobs after a claim; 0 for one of a consumer.
func (d *Dispatcher) behindFor(l *lane) time.Duration {
	if l.link.live == nil || !d.busy() {
		return 0
	}
	return max(busyPause, busyShare*time.Duration(l.service.Load()))
}

// nowNs is a monotonic time.
func (d *Dispatcher) nowNs() int64 { return int64(time.Since(d.began)) }

// claimedLive notes a live claim.
func (d *Dispatcher) claimedLive(k *durable.Consumer) {
	if k.Replay == nil {
		d.live.Store(d.nowNs())
	}
}
