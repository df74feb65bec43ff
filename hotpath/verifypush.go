package hotpath

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// start begins the deliveries of leases claimed at `at`. Those that this very
// process put into Redis and that nothing has happened to since go out at once;
// the store must be asked about the others, which it returns, first (the fresh rule).
func (d *dispatcher) start(l *lane, k *durable.Consumer, leases []redisq.Lease, at time.Time, generation uint64) (doubtful []redisq.Lease) {
	failpoint.At(failpoint.AfterClaim)
	d.metrics.Claimed.Add(float64(len(leases)))
	d.touched(l.no)
	for _, lease := range leases {
		msg, gen := d.payloads.get(lease.ID)
		if msg != nil && gen == generation && lease.Attempt == 1 && lease.Flags == 0 {
			if msg, ok := d.large.take(l, msg); ok {
				d.deliver(&delivery{d: d, lane: l, consumer: k, msg: msg, lease: lease, at: at})
				continue
			}
		}
		doubtful = append(doubtful, lease)
	}
	return doubtful
}

// verify asks the store which of the leases are still to be delivered, and begins
// the deliveries of those whose payloads have room in memory. It gives the left ones
// back; they are claimed again when there is room.
func (d *dispatcher) verify(ctx context.Context, l *lane, k *durable.Consumer, leases []redisq.Lease, at time.Time) (left int) {
	if len(leases) == 0 {
		return 0
	}
	d.metrics.Verified.Add(float64(len(leases)))
	ids := make([]ident.ID, len(leases))
	for i, lease := range leases {
		ids[i] = lease.ID
	}
	var states map[ident.ID]durable.JobState
	err := guard.Do("check of claimed jobs", func() (err error) {
		states, err = d.store.JobStates(ctx, k.No, ids)
		return err
	})
	if err != nil {
		d.giveUp(ctx, l, leases, err)
		return 0
	}
	var over []ident.ID
	open := leases[:0]
	ids = ids[:0]
	for _, lease := range leases {
		s := states[lease.ID]
		if s.Status == durable.Delivered || s.Status == durable.Dead {
			over = append(over, lease.ID)
			continue
		}
		lease.Attempt = max(lease.Attempt, s.Attempts+1) // Redis may have forgotten some
		open, ids = append(open, lease), append(ids, lease.ID)
	}
	fit, removed, err := d.send(ctx, l, k, open, ids, states, at)
	if err != nil {
		d.giveUp(ctx, l, open, err)
	} else if left = len(open) - fit; left > 0 {
		d.unreserve(l, left)
		d.release(l, open[fit:])
		l.leftMore(true)
		if !l.short.Load() {
			d.Wake(l.no) // there may be room, only not for one claim
		}
	}
	if over = append(over, removed...); len(over) > 0 {
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

// send loads the messages of leases and begins the deliveries of the first fit of
// them; the others have no room. Messages that were removed have no delivery either.
func (d *dispatcher) send(ctx context.Context, l *lane, k *durable.Consumer, leases []redisq.Lease, ids []ident.ID, states map[ident.ID]durable.JobState, at time.Time) (fit int, removed []ident.ID, err error) {
	if len(leases) == 0 {
		return 0, nil, nil
	}
	select {
	case d.loading <- struct{}{}: // until what was loaded is counted
		defer func() { <-d.loading }()
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	var msgs []durable.Message
	var read int
	err = guard.Do("load of claimed jobs", func() (err error) {
		msgs, read, err = d.store.MessagesUpTo(ctx, k.ChannelNo, ids, d.large.room(l))
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	byID := make(map[ident.ID]*durable.Message, len(msgs))
	for i := range msgs {
		byID[msgs[i].ID] = &msgs[i]
	}
	for fit < read {
		lease := leases[fit]
		msg := byID[lease.ID]
		if msg == nil {
			removed = append(removed, lease.ID)
			fit++
			continue
		}
		msg, ok := d.large.take(l, msg)
		if !ok {
			break
		}
		tracked := states[lease.ID].Status != durable.Waiting || lease.Flags != 0
		d.deliver(&delivery{d: d, lane: l, consumer: k, msg: msg, lease: lease, at: at, tracked: tracked})
		fit++
	}
	return fit, removed, nil
}

// giveUp gives leases back that could not be checked, uncharged: that is not the
// consumer's fault.
func (d *dispatcher) giveUp(ctx context.Context, l *lane, leases []redisq.Lease, err error) {
	d.unreserve(l, len(leases))
	d.release(l, leases)
	if ctx.Err() == nil {
		d.log.Warn("claimed jobs cannot be checked; given back", "jobs", len(leases), "error", err)
		l.setTimer(storePause, func() { d.Wake(l.no) })
	}
}
