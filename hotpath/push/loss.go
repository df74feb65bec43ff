package push

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// When Redis loses the state of a consumer, the leases and attempts of its jobs
// are gone. A job that is rebuilt from the store would then be sent a second time
// with the same attempt number while its first delivery is under way. The
// broker that notices the loss therefore informs the others, and every broker restores the leases
// of its deliveries in flight before the reconciler rebuilds the rest. A broker that is dead,
// paused or cut off from Redis at that time cannot.

// restorers is how many lanes get their leases back at the same time.
const restorers = 4

// A dedupQueue holds things that wait to be looked at, each once however often it was added.
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

// take returns one of the things; ok is false when there is none.
func (p *dedupQueue[T]) take() (thing T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for thing := range p.things {
		delete(p.things, thing)
		return thing, true
	}
	return thing, false
}

// SuspectLoss says that Redis may have lost leases of a consumer. The
// leases of its deliveries in flight are restored. SuspectLoss never blocks. It does nothing for
// pull consumers, because their workers own the leases.
func (d *Dispatcher) SuspectLoss(consumer uint32) {
	if l := d.lane(consumer); l != nil {
		d.suspect(l)
	}
}

// suspectSince is for deliveries that began just now, on leases that were asked for
// when the lane had been suspected so often: they may be among what was lost since.
func (d *Dispatcher) suspectSince(l *lane, suspected int64) {
	if l.suspected.Load() != suspected {
		d.suspect(l)
	}
}

// SuspectAll is SuspectLoss of every consumer.
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

// restoreSuspected gives leases back until ctx ends.
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

// hold gives the leases of a lane's deliveries back to Redis, if it does not have
// them any more. A delivery that ends at the same moment may leave a lease behind:
// that lease ends, and the next claim asks the store first.
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
			d.log.Debug("leases that Redis may have lost cannot be given back; trying again", "consumer", l.no, "jobs", len(leases), "error", err)
			time.AfterFunc(storePause, func() { d.SuspectLoss(l.no) })
		}
		return
	}
	d.touched(l.no)
	for i, v := range deliveries {
		if !mine[i] {
			v.lost.Store(true)
		}
	}
}

// restoreTimeout keeps a Redis that hangs, a master of a Cluster, from holding up the
// lanes of others for long.
const restoreTimeout = time.Second

// look meets Redis without claiming anything, so that a loss is noticed by a lane
// that has no room.
func (d *Dispatcher) look(ctx context.Context, l *lane) {
	op, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	_ = guard.Do("look at a queue", func() error { // the next look tries again
		_, err := d.queue.Claim(op, l.no, 0, d.settings.Lease)
		return err
	})
}

// A Notifier is the part of redisq.Queue that reaches the other brokers.
type Notifier interface {
	Notify(ctx context.Context, consumers []uint32) error
}

// A LossNotifier informs the other brokers of consumers whose state in Redis was lost. They have
// leases as well, and might not ask Redis about them for a while.
type LossNotifier struct {
	queue Notifier
	lost  *dedupQueue[uint32]
}

// NewLossNotifier returns a notifier that sends nothing before Run.
func NewLossNotifier(q Notifier) *LossNotifier {
	return &LossNotifier{queue: q, lost: newDedupQueue[uint32](1)}
}

// Lost adds a consumer whose state was lost. It never blocks.
func (h *LossNotifier) Lost(consumer uint32) { h.lost.add(consumer) }

// Run sends hints until ctx ends. A hint may get lost: the other brokers poll.
func (h *LossNotifier) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.lost.signal:
		}
		var hints []uint32
		for consumer, ok := h.lost.take(); ok; consumer, ok = h.lost.take() {
			hints = append(hints, consumer|redisq.LostHint)
		}
		_ = h.queue.Notify(ctx, hints)
	}
}
