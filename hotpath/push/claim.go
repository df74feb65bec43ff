package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// claim claims as many jobs as the lane has room for and starts their deliveries. It reports
// whether the lane should be served again at once.
func (d *Dispatcher) claim(ctx context.Context, l *lane) bool {
	k := l.consumer.Load()
	if k.Type != durable.Push || d.held(ctx, l, k) {
		return false
	}
	// Until a claim has succeeded the lane is treated as having more jobs. If this claim cannot be
	// made, the end of a request tries again.
	l.leftMore(true, true)
	limits := d.limits(k)
	l.exact.Store(limits.Rated() || limits.Concurrency > 0 || k.Replay != nil)
	room := d.roomOf(l)
	if room <= 0 || l.short.Load() {
		return d.awaitRoom(l)
	}
	if pause := d.pause(l, room); pause > 0 {
		l.setTimer(pause, func() { d.Wake(l.no) })
		return false
	}
	n := d.reserve(l, d.fits.Of(l.no, min(room, claimMax)))
	if n == 0 { // a free slot, or the end of a request of its own, wakes the lane
		return d.awaitRoom(l)
	}
	start := time.Now()
	l.claimed = start
	suspected, ended := l.suspected.Load(), l.ended.Load()
	var c redisq.Claim
	err := guard.Do("claim for push", func() (err error) {
		limits.Slots, limits.Retrying = l.limit, int(l.retrying.Load())
		c, err = d.queue.Claim(ctx, l.no, n, d.lease(k), limits)
		return err
	})
	incarnation := d.queue.Incarnation() // after Claim, which may meet another Redis
	if err != nil {
		d.unreserve(l, n)
		if ctx.Err() == nil {
			l.setTimer(storePause, func() { d.Wake(l.no) })
		}
		return false
	}
	got := len(c.Leases)
	d.unreserve(l, n-got)
	l.leftMore(c.Ready > 0, c.Ready > c.Retries || limits.RetryShare == 100 && c.Ready > 0)
	l.limited(&c, d.metrics.Book)
	if got > 0 {
		left := d.verify(ctx, l, k, claimed{d.start(l, k, c.Leases, start, incarnation), start, suspected})
		d.fits.Learn(l.no, got, got-left)
		d.suspectSince(l, suspected)
	}
	// A spilled consumer whose window has too few jobs is refilled from the store.
	if c.Spilled && (c.Ready < l.limit*2 || got < n) {
		d.refill(l.no)
	}
	if c.Ready > 0 && (got == n || l.missed(ended)) {
		return true
	}
	if c.NextDue > 0 {
		l.setTimer(c.NextDue, func() { d.Wake(l.no) })
	}
	return false
}

// pause returns the time until the next claim of a lane with that room is useful.
func (d *Dispatcher) pause(l *lane, room int) time.Duration {
	if rest := d.rest(l.consumer.Load()); rest > 0 {
		l.heldTo.Store(d.nowMs() + rest.Milliseconds())
		return rest
	}
	if pause := l.pause(); pause > 0 {
		return pause
	}
	if rest := d.behindFor(l) - time.Since(l.claimed); rest > 0 {
		return rest
	}
	if since := time.Since(l.claimed); since < claimPause && room < l.limit/2 {
		return claimPause - since
	}
	if d.outcomes.Room() < claimMax {
		return storePause
	}
	return 0
}

// reserve takes up to n slots of the process for the lane, as many as grant allows. Where no slot is
// free it adds the lane to the starved ones.
func (d *Dispatcher) reserve(l *lane, n int) int {
	d.mu.Lock()
	if d.slots == 0 {
		d.starved = append(d.starved, l)
	}
	n = d.grant(l, n)
	d.slots -= n
	d.mu.Unlock()
	l.reserve(n)
	d.metrics.PushInFlight.Add(float64(n))
	return n
}

// unreserve returns slots that a claim did not use.
func (d *Dispatcher) unreserve(l *lane, n int) {
	if n > 0 {
		l.unreserve(n)
		d.free(n)
	}
}

// free returns slots of the process and wakes the starved lanes.
func (d *Dispatcher) free(n int) {
	d.metrics.PushInFlight.Sub(float64(n))
	d.mu.Lock()
	d.slots += n
	starved := d.starved
	d.starved = nil
	for _, s := range starved {
		d.wake(s)
	}
	d.mu.Unlock()
}

// release gives unsent leases back to Redis. The jobs keep their place and their attempt count.
func (d *Dispatcher) release(l *lane, leases []redisq.Lease) {
	if err := d.settler().GiveBack(l.no, leases); err != nil {
		d.log.Debug("unsent jobs could not be given back; their leases will end", "error", err)
	}
}
