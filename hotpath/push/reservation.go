package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// A Reservation is room in a lane for jobs that are about to be offered to Redis. Where no other
// job waits, Redis leases the jobs in the step that takes them. This saves the claim: a third of
// the work of Redis for a message, and a round trip before its delivery. Start must be called,
// whatever the result of the offer.
type Reservation struct {
	d         *Dispatcher
	lane      *lane
	consumer  *durable.Consumer
	n         int
	at        time.Time
	suspected int64 // the lane's count of suspected losses at that time
}

// Reserve reserves room for n jobs of a consumer that are about to be offered. It returns nil where
// a claim could not take all of them at once.
func (d *Dispatcher) Reserve(consumer uint32, n int) *Reservation {
	l := d.lane(consumer)
	if l == nil || l.short.Load() || d.outcomes.Room() < max(n, claimMax) {
		return nil
	}
	k := l.consumer.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	if k.Type != durable.Push || k.Held() || d.rest(k) > 0 || d.stopped || n > d.slots/2 || d.grant(l, n) < n ||
		!l.tryReserve(n) {
		return nil
	}
	d.slots -= n
	d.metrics.PushInFlight.Add(float64(n))
	d.deliveries.Add(1) // a stopping dispatcher waits for the deliveries of the reservation
	return &Reservation{d: d, lane: l, consumer: k, n: n, at: time.Now(), suspected: l.suspected.Load()}
}

// Start begins the deliveries of the jobs that Redis leased, and returns the rest of the room. A
// concurrent claim may have found that room taken, so the caller wakes the lane afterwards. Start
// never blocks: questions to the store run in another goroutine.
func (b *Reservation) Start(ctx context.Context, leases []redisq.Lease) {
	d, l := b.d, b.lane
	defer d.deliveries.Done()
	incarnation := d.queue.Incarnation() // after the offer, which may meet another Redis
	d.unreserve(l, b.n-len(leases))
	if len(leases) == 0 {
		return
	}
	unverified := d.start(l, b.consumer, leases, b.at, incarnation)
	d.suspectSince(l, b.suspected)
	if len(unverified) > 0 {
		d.deliveries.Go(func() {
			defer guard.Watch("reservation")
			ctx, cancel := d.whileRunning(ctx)
			defer cancel()
			left := d.verify(ctx, l, b.consumer, claimed{unverified, b.at, b.suspected})
			d.fits.Learn(l.no, len(unverified), len(unverified)-left)
			d.suspectSince(l, b.suspected)
		})
	}
}

// Lease returns the visibility timeout of the jobs.
func (b *Reservation) Lease() time.Duration { return b.d.lease(b.consumer) }

// Limits returns the limits of the consumer.
func (b *Reservation) Limits() redisq.Limits { return b.d.limits(b.consumer) }

// whileRunning returns a context that also ends when the dispatcher stops: a store that does not
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
