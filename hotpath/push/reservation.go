package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// A Reservation is room in a lane for jobs on their way to Redis. If no other job waits, Redis
// leases them in the step that takes them. That saves the claim: a third of the work of Redis for
// a message, and a round trip before its delivery. Every reservation must be started, whatever
// became of its jobs.
type Reservation struct {
	d         *Dispatcher
	lane      *lane
	consumer  *durable.Consumer
	n         int
	at        time.Time
	suspected int64 // calls of SuspectLoss until then
}

// Reserve reserves room for n jobs of a consumer that are about to be offered. It
// returns nil where a claim would not take all of them at once either.
func (d *Dispatcher) Reserve(consumer uint32, n int) *Reservation {
	l := d.lane(consumer)
	if l == nil || l.short.Load() || d.outcomes.Room() < max(n, claimMax) {
		return nil
	}
	k := l.consumer.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	if k.Type != durable.Push || d.stopped || n > d.slots/2 || !l.tryReserve(n) {
		return nil
	}
	d.slots -= n
	d.metrics.PushInFlight.Add(float64(n))
	d.deliveries.Add(1) // a stop waits for the deliveries of the reservation
	return &Reservation{d: d, lane: l, consumer: k, n: n, at: time.Now(), suspected: l.suspected.Load()}
}

// Start begins the deliveries of the jobs that Redis leased, and gives the rest of the room back.
// A claim may have found that room taken, so the caller wakes the lane. Start never blocks: a
// goroutine of its own asks the store about jobs that are not fresh.
func (b *Reservation) Start(ctx context.Context, leases []redisq.Lease) {
	d, l := b.d, b.lane
	defer d.deliveries.Done()
	generation := d.queue.Generation() // after the offer: it may be what met another Redis
	d.unreserve(l, b.n-len(leases))
	if len(leases) == 0 {
		return
	}
	unverified := d.start(l, b.consumer, leases, b.at, generation)
	d.suspectSince(l, b.suspected)
	if len(unverified) > 0 {
		d.deliveries.Go(func() {
			defer guard.Watch("reservation")
			ctx, cancel := d.whileRunning(ctx)
			defer cancel()
			left := d.verify(ctx, l, b.consumer, unverified, b.at)
			d.fits.Learn(l.no, len(unverified), len(unverified)-left)
			d.suspectSince(l, b.suspected)
		})
	}
}

// Lease is the visibility timeout of the jobs.
func (b *Reservation) Lease() time.Duration { return b.d.lease(b.consumer) }

// whileRunning returns a context that also ends when the dispatcher stops. A store that does not
// answer must not delay the stop.
func (d *Dispatcher) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-d.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
