package push

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// When Redis loses the state of a consumer, the leases and attempts of its jobs are gone. A job
// that is rebuilt from the store would then be sent a second time with the same attempt number
// while its first delivery is under way. Therefore the broker that notices the loss notifies the
// other brokers. Every broker restores the leases of its deliveries before the reconciler rebuilds
// the rest. A broker that is dead, paused or cut off from Redis at that time cannot restore its
// leases.

// restorers is the number of lanes whose leases are restored at the same time.
const restorers = 4

// A dedupQueue is a deduplicating queue: it contains each entry once, however often it is added.
type dedupQueue[T comparable] struct {
	signal chan struct{} // capacity: one for each goroutine that may sleep

	mu     sync.Mutex
	things map[T]struct{}
}

func newDedupQueue[T comparable](sleepers int) *dedupQueue[T] {
	return &dedupQueue[T]{signal: make(chan struct{}, sleepers), things: map[T]struct{}{}}
}

func (p *dedupQueue[T]) add(thing T) {
	p.mu.Lock()
	p.things[thing] = struct{}{}
	p.mu.Unlock()
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// take removes and returns one entry, in no particular order. ok is false when the queue is empty.
func (p *dedupQueue[T]) take() (thing T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for thing := range p.things {
		delete(p.things, thing)
		return thing, true
	}
	return thing, false
}

// SuspectLoss reports that Redis may have lost leases of a consumer. The leases of the deliveries
// to it are then restored. SuspectLoss never blocks, and does nothing for pull consumers, whose
// leases package pull restores.
func (d *Dispatcher) SuspectLoss(consumer uint32) {
	if l := d.lane(consumer); l != nil {
		d.suspect(l)
	}
}

// suspectSince covers deliveries that have just begun. suspected is the lane's count of suspected
// losses before their leases were requested. If the count has changed, these leases may be among
// the lost ones, and the lane is suspected again.
func (d *Dispatcher) suspectSince(l *lane, suspected int64) {
	if l.suspected.Load() != suspected {
		d.suspect(l)
	}
}

// SuspectAll calls SuspectLoss for every consumer.
func (d *Dispatcher) SuspectAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lanes {
		d.suspect(l)
	}
}

func (d *Dispatcher) suspect(l *lane) {
	l.suspected.Add(1)
	d.suspects.add(l)
}

// restoreSuspected restores the leases of suspected lanes until ctx ends.
func (d *Dispatcher) restoreSuspected(ctx context.Context) {
	for {
		for l, ok := d.suspects.take(); ok; l, ok = d.suspects.take() {
			d.restore(ctx, l)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.suspects.signal:
		}
	}
}

// restore writes the leases of a lane's deliveries into Redis where Redis no longer has them.
func (d *Dispatcher) restore(ctx context.Context, l *lane) {
	deliveries := d.inFlight.of(l)
	if len(deliveries) == 0 {
		return
	}
	leases := make([]redisq.Lease, len(deliveries))
	for i, v := range deliveries {
		leases[i] = v.lease
	}
	op, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	mine, err := d.queue.RestoreLeases(op, l.no, leases, d.lease(l.consumer.Load()))
	if err != nil {
		if ctx.Err() == nil {
			d.log.Debug("leases that Redis may have lost cannot be given back; trying again", "consumer", l.no, "jobs",
				len(leases), "error", err)
			time.AfterFunc(storePause, func() { d.SuspectLoss(l.no) })
		}
		return
	}
	d.touched(l.no)
	var ended []redisq.Lease
	var unsent []redisq.Lease
	for i, v := range deliveries {
		end := v.end.Load()
		switch {
		case !mine[i]:
			v.lost.Store(true)
		case end == over:
			ended = append(ended, v.lease)
		case end == givenBack:
			unsent = append(unsent, v.lease)
		}
	}
	d.takeBack(l, ended, unsent)
}

// takeBack removes the leases of deliveries that ended while restore wrote their leases. Without it
// these leases would expire by themselves: the job of an unsent delivery would wait that long. The
// rates have lost the unsent attempts already, so nothing is refunded.
func (d *Dispatcher) takeBack(l *lane, ended, unsent []redisq.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	err := guard.Do("removal of restored leases", func() (err error) {
		if len(ended) > 0 {
			_, err = d.queue.AckLeases(ctx, l.no, ended)
		}
		return err
	})
	if err != nil {
		d.log.Debug("jobs that are over stay in Redis until their leases end", "error", err)
	}
	if len(unsent) > 0 {
		for i := range unsent {
			unsent[i].Granted = ""
		}
		d.release(l, unsent)
		d.Wake(l.no)
	}
}

// restoreTimeout bounds the delay that a hanging Redis, or a hanging master of a Cluster, causes to
// the other lanes.
const restoreTimeout = time.Second

// look calls Redis without claiming a job, so that a lane without room also notices a loss.
func (d *Dispatcher) look(ctx context.Context, l *lane) {
	op, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	_ = guard.Do("look at a queue", func() error { // the next look tries again
		_, err := d.queue.Claim(op, l.no, 0, d.settings.Lease, redisq.Limits{})
		return err
	})
}

// A Notifier is the part of redisq.Queue that reaches the other brokers.
type Notifier interface {
	Notify(ctx context.Context, consumers []uint32) error
}

// A HintSender tells the other brokers of consumers whose state in Redis was lost, and of pull
// consumers that have jobs again. Those brokers may hold leases of the first, and may not ask Redis
// about either for a while.
type HintSender struct {
	queue Notifier
	hints *dedupQueue[uint32]
}

// NewHintSender returns a sender. No hint is sent before Run.
func NewHintSender(q Notifier) *HintSender {
	return &HintSender{queue: q, hints: newDedupQueue[uint32](1)}
}

// Lost adds a consumer whose state was lost. It never blocks.
func (h *HintSender) Lost(consumer uint32) { h.hints.add(consumer | redisq.LostHint) }

// Ready adds a consumer that has jobs again. It never blocks.
func (h *HintSender) Ready(consumer uint32) { h.hints.add(consumer) }

// Run sends hints until ctx ends. A hint may get lost: the other brokers also poll.
func (h *HintSender) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.hints.signal:
		}
		var hints []uint32
		for hint, ok := h.hints.take(); ok; hint, ok = h.hints.take() {
			hints = append(hints, hint)
		}
		_ = h.queue.Notify(ctx, hints)
	}
}
