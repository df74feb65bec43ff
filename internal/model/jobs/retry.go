package jobs

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// retryPage is the number of open jobs that one step of RetryAll reads and moves.
const retryPage = 500

// RetryAll makes all delayed jobs of the consumer due now: those that wait for their next attempt, and
// those that a worker gave back with a delay. It returns how many it moved, also with an error. Jobs that
// are in flight, or wait for an earlier one of their ordering key, stay as they are, and so does a hold
// of the consumer.
//
// Each step stores first that its jobs are due, and then tells the queue. After a crash in between the
// store says so and the queue still delays them: they are due at their old times, or after the next
// RetryAll, which asks the queue for every open job. A wiped Redis gets the stored times.
func (d *Service) RetryAll(ctx context.Context, consumer uint32) (total int, err error) {
	for from := (ident.ID{}); ; {
		open, err := d.Store.OpenJobs(ctx, consumer, from, retryPage)
		if err != nil || len(open) == 0 {
			return total, err
		}
		n, err := d.hasten(ctx, consumer, open)
		total += n
		if err != nil || len(open) < retryPage {
			return total, err
		}
		from = open[len(open)-1].ID.Next()
	}
}

// hasten makes open jobs due now and returns how many of them were delayed.
func (d *Service) hasten(ctx context.Context, consumer uint32, open []durable.OpenJob) (n int, err error) {
	now := d.NowMs()
	all := make([]ident.ID, len(open))
	late := map[ident.ID]redisq.Job{}
	var ids []ident.ID // of those in late
	for i, j := range open {
		all[i] = j.ID
		if j.NextMs > now {
			ids = append(ids, j.ID)
			late[j.ID] = redisq.Job{ID: j.ID, Priority: j.Priority, Attempts: j.Attempts}
		}
	}
	if err := d.Store.Hasten(ctx, consumer, ids, now); err != nil {
		return 0, err
	}
	n, unknown, err := d.Queue.Hasten(ctx, consumer, all)
	if n > 0 {
		defer d.Wake(consumer)
	}
	if err != nil {
		return n, err
	}
	var outside []redisq.Job // of the window, or lost
	for _, id := range unknown {
		if j, ok := late[id]; ok {
			outside = append(outside, j)
		}
	}
	if len(outside) == 0 {
		return n, nil
	}
	e, err := d.Queue.Enqueue(ctx, consumer, outside, redisq.Repeated)
	if err != nil || e.Spilled > 0 {
		d.Dirty(consumer) // the store has them: the reconciler offers them
	}
	d.Wake(consumer)
	return n + len(outside), nil
}
