package why

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// counts are the open jobs of a consumer that are not in flight, by what they wait for.
type counts struct {
	due, backoff, delayed, parked int
	missing                       int // in the store, and not in the queue
	inFlight                      int
	approximate                   bool

	failed, back time.Time // when the first of backoff failed, and the first of delayed was given back
	next, end    time.Time // when the first of backoff, and of delayed, is due
	oldest       time.Time // message of the first missing one
	since        time.Time // when the first of due was stored, or became due again
	first        time.Time // message of the oldest one of all; where approximate is set, it may be in flight
}

func (c *counts) waiting() int { return c.due + c.backoff + c.delayed + c.parked + c.missing }

// count counts the waiting jobs. Which jobs are open is in the store, and where each of them is in Redis.
// Of more than Counted the numbers are those of Redis, which may have some that are over.
func (v *view) count(ctx context.Context) (c counts) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if v.storeErr != nil {
		return v.countQueue(nil)
	}
	open, all, err := v.e.o.Store.UnfinishedJobs(ctx, *v.k, v.has.Settled, Counted+1)
	if err != nil {
		v.storeErr = err
		return v.countQueue(nil)
	}
	if !all || len(open) > Counted {
		return v.countQueue(open)
	}
	var at []redisq.Standing
	if len(open) > 0 && v.queueErr == nil {
		ids := make([]ident.ID, len(open))
		for i := range open {
			ids[i] = open[i].ID
		}
		if at, err = v.e.o.Queue.Probe(ctx, v.k.No, ids); err != nil {
			v.queueErr = err
		}
	}
	if v.queueErr != nil {
		at = make([]redisq.Standing, len(open)) // all are missing there
	}
	for i := range open {
		c.add(&open[i], at[i].State, v.now.UnixMilli())
	}
	return c
}

// add counts an open job.
func (c *counts) add(u *durable.Unfinished, state redisq.State, nowMs int64) {
	waits := u.NextMs > nowMs
	if state != redisq.Leased {
		c.first = earlier(c.first, u.ID.Millis())
	}
	switch {
	case state == redisq.Leased:
		c.inFlight++
	case state == redisq.Ready:
		c.due++
		c.since = earlier(c.since, max(u.ID.Millis(), u.NextMs))
	case waits && u.Returned:
		c.delayed++
		c.back, c.end = earlier(c.back, u.ChangedMs), earlier(c.end, u.NextMs)
	case waits:
		c.backoff++
		c.failed, c.next = earlier(c.failed, u.ChangedMs), earlier(c.next, u.NextMs)
	case state == redisq.Delayed:
		c.parked++
	default:
		c.missing++
		c.oldest = earlier(c.oldest, u.ID.Millis())
	}
}

// earlier returns the earlier of a time, which may be zero, and Unix ms.
func earlier(t time.Time, ms int64) time.Time {
	if other := timeOf(ms); t.IsZero() || other.Before(t) {
		return other
	}
	return t
}

// countQueue takes the numbers of Redis, with the times of the open jobs that are known.
func (v *view) countQueue(open []durable.Unfinished) (c counts) {
	q := &v.queue
	for i := range open {
		c.add(&open[i], redisq.Missing, v.now.UnixMilli())
	}
	if c.approximate = true; v.queueErr != nil {
		return c
	}
	known := c.delayed
	c.due, c.parked, c.inFlight = q.Ready, q.Parked, q.Leased
	c.backoff = max(q.Delayed-q.Parked, 0)
	c.delayed = min(max(known, min(c.backoff-q.Attempted, Counted)), c.backoff)
	c.backoff -= c.delayed
	c.missing = max(len(open)-q.Ready-q.Delayed-q.Leased, 0)
	return c
}
