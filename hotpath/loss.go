package hotpath

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/redisq"
)

// When Redis loses the state of a consumer, the leases and attempts of its jobs
// are gone. A job that is rebuilt from the store would then be sent a second time
// with the same attempt number while its first delivery is under way. So whoever
// notices tells the others, and every broker gives Redis back the leases of what it
// is delivering before the reconciler rebuilds the rest. One that is dead, paused
// or cut off from Redis just then cannot.

// holders is how many lanes get their leases back at the same time.
const holders = 4

// doubts are the lanes whose leases Redis may have lost.
type doubts struct {
	signal chan struct{} // capacity holders: one for each that may sleep

	mu    sync.Mutex
	lanes map[*lane]struct{}
}

func (q *doubts) add(l *lane) {
	q.mu.Lock()
	q.lanes[l] = struct{}{}
	q.mu.Unlock()
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// take returns one of the lanes, nil when there is none.
func (q *doubts) take() *lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l := range q.lanes {
		delete(q.lanes, l)
		return l
	}
	return nil
}

// Doubt says that Redis may have lost leases of a consumer: what is being
// delivered to it gets its leases back. It never blocks, and does nothing for pull
// consumers, whose leases are their workers'.
func (d *dispatcher) Doubt(consumer uint32) {
	d.mu.Lock()
	l := d.lanes[consumer]
	d.mu.Unlock()
	if l != nil {
		l.doubted.Add(1)
		d.doubts.add(l)
	}
}

// DoubtAll is Doubt of every consumer.
func (d *dispatcher) DoubtAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lanes {
		l.doubted.Add(1)
		d.doubts.add(l)
	}
}

// holdDoubted gives leases back until ctx ends.
func (d *dispatcher) holdDoubted(ctx context.Context) {
	for {
		for l := d.doubts.take(); l != nil; l = d.doubts.take() {
			d.hold(ctx, l)
		}
		select {
		case <-ctx.Done():
			return
		case <-d.doubts.signal:
		}
	}
}

// hold gives the leases of a lane's deliveries back to Redis, if it does not have
// them any more. A delivery that ends at the same moment may leave a lease behind:
// that ends, and who claims the job then asks the store first.
func (d *dispatcher) hold(ctx context.Context, l *lane) {
	deliveries := d.held.of(l)
	if len(deliveries) == 0 {
		return
	}
	leases := make([]redisq.Lease, len(deliveries))
	for i, v := range deliveries {
		leases[i] = v.lease
	}
	op, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	mine, err := d.queue.Hold(op, l.no, leases, d.options.Lease)
	if err != nil {
		if ctx.Err() == nil {
			d.log.Debug("leases that Redis may have lost cannot be given back; trying again", "consumer", l.no, "jobs", len(leases), "error", err)
			time.AfterFunc(storePause, func() { d.Doubt(l.no) })
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

// holdTimeout keeps a Redis that hangs, a master of a Cluster, from holding up the
// lanes of others for long.
const holdTimeout = time.Second

// look meets Redis without claiming anything, so that a loss is noticed by a lane
// that has no room.
func (d *dispatcher) look(ctx context.Context, l *lane) {
	op, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	_, _ = d.queue.Claim(op, l.no, 0, d.options.Lease) // the next look tries again
}

// A herald tells the other brokers of consumers whose state in Redis was lost:
// they hold leases, too, and might not ask Redis about them for a while.
type herald struct {
	queue  Enqueuer
	signal chan struct{} // capacity 1

	mu   sync.Mutex
	lost map[uint32]struct{}
}

func newHerald(q Enqueuer) *herald {
	return &herald{queue: q, signal: make(chan struct{}, 1), lost: map[uint32]struct{}{}}
}

func (h *herald) add(consumer uint32) {
	h.mu.Lock()
	h.lost[consumer] = struct{}{}
	h.mu.Unlock()
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// Run tells until ctx ends. A hint may get lost: the others poll.
func (h *herald) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.signal:
		}
		h.mu.Lock()
		hints := make([]uint32, 0, len(h.lost))
		for consumer := range h.lost {
			hints = append(hints, consumer|redisq.LostHint)
		}
		clear(h.lost)
		h.mu.Unlock()
		_ = h.queue.Notify(ctx, hints)
	}
}
