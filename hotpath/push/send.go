package push

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// start begins the deliveries of leases that were claimed at `at`. Leases that the fresh rule
// allows go out at once. start returns the others, which the store must verify.
func (d *Dispatcher) start(l *lane, k *durable.Consumer, leases []redisq.Lease, at time.Time,
	incarnation uint64) (unverified []redisq.Lease) {
	failpoint.At(failpoint.AfterClaim)
	d.metrics.Claimed.Add(float64(len(leases)))
	d.touched(l.no)
	d.claimedLive(k)
	for _, lease := range leases {
		c := verify.OfLease(&lease)
		if d.verifier.Fresh(k, &c, incarnation) {
			if msg, ok := d.large.take(l, c.Message); ok {
				d.deliver(&delivery{d: d, lane: l, consumer: k, msg: msg, lease: lease, granted: lease.Granted, at: at,
					expiry: c.Expiry, probe: l.takeProbe()})
				continue
			}
		}
		unverified = append(unverified, lease)
	}
	return unverified
}

// A claimed is the leases of one claim, or of a part of it.
type claimed struct {
	leases    []redisq.Lease
	at        time.Time // before the claim was sent; monotonic
	suspected int64     // the lane's count of suspected losses at that time
}

// verify asks the store which of the leases are still to be delivered. It begins the deliveries
// whose payloads have room in memory. It gives the other jobs back, and returns their number as
// left; they are claimed again when there is room.
func (d *Dispatcher) verify(ctx context.Context, l *lane, k *durable.Consumer, c claimed) (left int) {
	if len(c.leases) == 0 {
		return 0
	}
	d.metrics.Verified.Add(float64(len(c.leases)))
	cs, sent, rest, err := d.deliverVerified(ctx, l, k, c)
	if err != nil {
		d.giveUp(ctx, l, c.leases, err)
		return 0
	}
	d.unreserve(l, len(c.leases)-sent)
	if left = len(rest); left > 0 {
		d.release(l, rest)
		l.leftMore(true, true)
		if !l.short.Load() {
			d.Wake(l.no) // the next claim may have room for them
		}
	}
	if sent+left < len(c.leases) {
		d.settle(ctx, l, k, cs, c.leases)
	}
	return left
}

// settle ends the leases of the jobs that no consumer gets.
func (d *Dispatcher) settle(ctx context.Context, l *lane, k *durable.Consumer, cs []verify.Candidate,
	leases []redisq.Lease) {
	ended := 0
	err := guard.Do("end of leases that nobody gets", func() (err error) {
		ended, err = d.settler().Settle(ctx, k, cs, leases, func(r outcome.Entry) error {
			r.Urgency, r.Sink = l.urgency(), unsent{d, l}
			d.outcomes.Add(r)
			return nil
		})
		return err
	})
	if err != nil {
		d.log.Debug("leases of jobs that nobody gets end by themselves", "error", err)
	}
	if ended > 0 {
		d.leaseEnded(l)
	}
}

func (d *Dispatcher) settler() verify.Settler {
	return verify.Settler{Verifier: d.verifier, Queue: d.queue, Order: d.order, Metrics: d.metrics}
}

// deliverVerified begins the deliveries of the leases that are to be delivered, sent of them. cs has the
// candidates of all leases, rest those whose payloads have no room. After an error no delivery has begun.
func (d *Dispatcher) deliverVerified(ctx context.Context, l *lane, k *durable.Consumer, of claimed) (
	cs []verify.Candidate, sent int, rest []redisq.Lease, err error) {
	select {
	case d.loading <- struct{}{}: // held until the loaded payloads are counted
		defer func() { <-d.loading }()
	case <-ctx.Done():
		return nil, 0, nil, ctx.Err()
	}
	cs, n, err := d.check(ctx, l, k, of)
	if err != nil {
		return nil, 0, nil, err
	}
	for i, lease := range of.leases {
		c := &cs[i]
		if c.Verdict != verify.Deliver && c.Verdict != verify.Undecided {
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
		d.deliver(&delivery{d: d, lane: l, consumer: k, msg: msg, lease: lease, granted: lease.Granted, at: of.at,
			tracked: tracked, leasesLost: c.State.LeasesLost, redrivenMs: c.State.RedrivenMs, expiry: c.Expiry,
			probe: l.takeProbe()})
		sent++
	}
	return cs, sent, rest, nil
}

// check asks the store about the jobs of leases; see verify.Verifier.Verify for n. Where Redis may have
// lost the leases meanwhile, check restores them and asks again, because another broker may have got
// and ended the jobs. No other restoration knows these leases, because they are in flight only when
// their deliveries begin.
func (d *Dispatcher) check(ctx context.Context, l *lane, k *durable.Consumer, of claimed) (cs []verify.Candidate,
	n int, err error) {
	var mine []bool // nil: all
	for {
		cs = verify.Leased(of.leases)
		err = guard.Do("check of claimed jobs", func() (err error) {
			n, err = d.verifier.Verify(ctx, k, cs, d.large.room(l))
			return err
		})
		suspected := l.suspected.Load()
		if err != nil || suspected == of.suspected {
			for i := range mine {
				if !mine[i] {
					cs[i].Verdict = verify.Lost
				}
			}
			return cs, n, err
		}
		of.suspected = suspected
		err = guard.Do("return of leases", func() (err error) {
			ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
			defer cancel()
			mine, err = d.queue.RestoreLeases(ctx, l.no, of.leases, d.lease(k))
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
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
