package redisq

import (
	"context"
	"fmt"
)

// SetSpilled sets the highest priority that has jobs outside the window, -1 for none. It
// ignores spills by other brokers at the same time, whose jobs then stay outside until the
// next scan of the store. A refill therefore uses ReplaceSpilled.
func (q *Queue) SetSpilled(ctx context.Context, consumer uint32, priority int) error {
	_, err := q.keepSpill(ctx, consumer, priority, -1)
	return err
}

// ReplaceSpilled is SetSpilled for a refill that read Stats.Spills before it began. If jobs
// were spilled since that read, ReplaceSpilled changes nothing and returns false, and the
// caller reads the store again. Spills of Recovered jobs do not count, because the scan
// that offers them knows about them.
func (q *Queue) ReplaceSpilled(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error) {
	return q.keepSpill(ctx, consumer, priority, max(spills, 0))
}

func (q *Queue) keepSpill(ctx context.Context, consumer uint32, priority int, spills int64) (bool, error) {
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

// Complete notes that a scan of the store, which began after the state of the epoch, has ended with
// every open job in Redis or spilled. Until then Claim and Stats do not say Whole. It returns ErrLost
// if the epoch is not the current one.
func (q *Queue) Complete(ctx context.Context, consumer uint32, epoch string) error {
	c := &call{consumer: consumer, script: completeScript, pinned: epoch}
	q.runAll(ctx, []*call{c})
	return c.err
}

// Behind tells the queue that the store may have jobs of the consumer which are older than those
// that are offered: the consumer gets messages of the past. Where Redis has no state of such a
// consumer, its new state begins with jobs of every priority outside the window. No job is then
// leased, and no fresh one is added, before the scan of the store has loaded what is older. Behind
// is called before any other call for the consumer. It may be repeated.
func (q *Queue) Behind(consumer uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.behind == nil {
		q.behind = map[uint32]bool{}
	}
	q.behind[consumer] = true
}

// outside returns the highest priority that has jobs outside the window of a new state, -1 if none
// is known.
func (q *Queue) outside(consumer uint32) int {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.behind[consumer] {
		return MaxPriority
	}
	return -1
}

// Renew replaces the epoch of a consumer after another Redis process has answered, which
// may have only a part of the state. Jobs and leases stay. Renew replaces only the epoch
// that this process knows, so one of several brokers that notice the change succeeds.
// Every process that then meets the new epoch reports it to OnLost. If this process does
// not know the current epoch, Renew only adopts it.
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
