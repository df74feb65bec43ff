package redisq

import (
	"context"
	"fmt"
)

// SetSpilled records that the highest priority with jobs outside the window is
// now priority, -1 for none, whatever happened meanwhile. A job that another
// broker spills at the same moment is then out of sight until the next walk of
// the store: a refill uses SettleSpilled.
func (q *Queue) SetSpilled(ctx context.Context, consumer uint32, priority int) error {
	_, err := q.settle(ctx, consumer, priority, -1)
	return err
}

// SettleSpilled is SetSpilled unless jobs were spilled since the caller read
// Stats.Spills, before it began to refill; then nothing changes, it returns false
// and the caller looks at the store again. Spills of Recovered jobs do not count:
// the walk that offers them knows about them.
func (q *Queue) SettleSpilled(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error) {
	return q.settle(ctx, consumer, priority, max(spills, 0))
}

func (q *Queue) settle(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error) {
	if priority < -1 || priority > MaxPriority {
		return false, fmt.Errorf("redisq: spilled priority %d is not -1..%d", priority, MaxPriority)
	}
	reply, err := q.run(ctx, consumer, spilledScript, priority, spills)
	if err != nil {
		return false, err
	}
	r := reader{items: reply}
	set := r.int() == 1
	return set, r.err
}

// Renew gives the consumer a new epoch although Redis has one: another Redis
// process answers, and how much of the state it has nobody knows. Jobs and leases
// stay. It changes the epoch only from the one this process knows, so of brokers
// that notice together one does; every process that then meets the new epoch
// reports it to OnLost. When this process has met the consumer never before, or
// not the present epoch, meeting it is all that happens.
func (q *Queue) Renew(ctx context.Context, consumer uint32) error {
	known := q.Epoch(consumer)
	c := &call{consumer: consumer, script: renewScript, args: []any{newEpoch()}}
	q.send(ctx, []*call{c})
	if !c.done && c.eval && c.reply == nil {
		q.send(ctx, []*call{c})
	}
	if c.err != nil {
		return c.err
	}
	if !c.done { // stale
		q.adoptAll(ctx, []*call{c})
		return c.err
	}
	r := reader{items: c.reply}
	if epoch := r.text(); r.err == nil {
		q.adopt(consumer, known, epoch)
	}
	return r.err
}
