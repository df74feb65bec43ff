package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// start begins the deliveries of leases that were claimed at `at`. Leases that the fresh rule
// allows go out at once. start returns the others, which the store must verify.
func (d *Dispatcher) start(l *lane, k *durable.Consumer, leases []redisq.Lease, at time.Time, generation uint64) (unverified []redisq.Lease) {
	failpoint.At(failpoint.AfterClaim)
	d.metrics.Claimed.Add(float64(len(leases)))
	d.touched(l.no)
	for _, lease := range leases {
		c := verify.OfLease(&lease)
		if d.verifier.Fresh(&c, generation) {
			if msg, ok := d.large.take(l, c.Message); ok {
				d.deliver(&delivery{d: d, lane: l, consumer: k, msg: msg, lease: lease, at: at})
				continue
			}
		}
		unverified = append(unverified, lease)
	}
	return unverified
}

// verify asks the store which of the leases are still to be delivered. It begins the deliveries
// whose payloads have room in memory. It gives the other jobs back, and returns their number as
// left; they are claimed again when there is room.
func (d *Dispatcher) verify(ctx context.Context, l *lane, k *durable.Consumer, leases []redisq.Lease, at time.Time) (left int) {
	if len(leases) == 0 {
		return 0
	}
	d.metrics.Verified.Add(float64(len(leases)))
	over, rest, err := d.send(ctx, l, k, leases, at)
	if err != nil {
		d.giveUp(ctx, l, leases, err)
		return 0
	}
	if left = len(rest); left > 0 {
		d.unreserve(l, left)
		d.release(l, rest)
		l.leftMore(true)
		if !l.short.Load() {
			d.Wake(l.no) // the next claim may have room for them
		}
	}
	if len(over) > 0 {
		d.unreserve(l, len(over))
		err := guard.Do("ack of jobs that are over", func() error {
			_, err := d.queue.Ack(ctx, k.No, over)
			return err
		})
		if err != nil {
			d.log.Debug("jobs that are over stay in Redis until their leases end", "error", err)
		}
	}
	return left
}

// send begins the deliveries of the leases that are to be delivered. It returns the jobs that are
// over, and the leases whose payloads have no room. After an error no delivery has begun.
func (d *Dispatcher) send(ctx context.Context, l *lane, k *durable.Consumer, leases []redisq.Lease, at time.Time) (over []ident.ID, rest []redisq.Lease, err error) {
	select {
	case d.loading <- struct{}{}: // held until the loaded payloads are counted
		defer func() { <-d.loading }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	cs, n := verify.Leased(leases), 0
	err = guard.Do("check of claimed jobs", func() (err error) {
		n, err = d.verifier.Verify(ctx, k, cs, d.large.room(l))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i, lease := range leases {
		c := &cs[i]
		if c.Verdict.Ends() {
			over = append(over, c.ID)
			continue
		}
		var msg *durable.Message
		fits := i < n
		if fits {
			msg, fits = d.large.take(l, c.Message)
		}
		if !fits {
			n = i
			rest = append(rest, lease)
			continue
		}
		lease.Attempt = c.Attempt(lease)
		tracked := c.State.Status != durable.Waiting || lease.Flags != 0
		d.deliver(&delivery{d: d, lane: l, consumer: k, msg: msg, lease: lease, at: at, tracked: tracked})
	}
	return over, rest, nil
}

// giveUp gives back leases that could not be verified. No attempt is charged, because the failure
// is not the consumer's.
func (d *Dispatcher) giveUp(ctx context.Context, l *lane, leases []redisq.Lease, err error) {
	d.unreserve(l, len(leases))
	d.release(l, leases)
	if ctx.Err() == nil {
		d.log.Warn("claimed jobs cannot be checked; given back", "jobs", len(leases), "error", err)
		l.setTimer(storePause, func() { d.Wake(l.no) })
	}
}
