package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// A Reservation is room in a lane for jobs on their way to Redis. Where nothing else
// waits Redis leases them in the step that takes them, which saves the claim: a
// third of what Redis does for a message, and a round trip before its delivery. It
// must be started, whatever became of the jobs.
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

// Start begins the deliveries of those jobs that Redis leased, and gives the other
// room back, which a claim may have found taken: the caller wakes the lane then. It
// never blocks: what the store must be asked about is asked beside it.
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

// whileRunning returns a context that ends when the dispatcher stops, too: a store
// that does not answer must not hold that up.
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
