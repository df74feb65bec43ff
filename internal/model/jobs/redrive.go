package jobs

import (
	"context"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/redisq"
)

// redrivePage is the number of dead letters that one transaction of RedriveAll moves.
const redrivePage = 500

// RedriveAll gives every dead letter of the consumer a fresh set of attempts
// and returns how many it moved.
func (d *Service) RedriveAll(ctx context.Context, consumer uint32) (int, error) {
	total, from := 0, ident.ID{}
	for {
		dead, err := d.Store.DeadJobs(ctx, consumer, from, redrivePage)
		if err != nil || len(dead) == 0 {
			return total, err
		}
		ids := make([]ident.ID, len(dead))
		for i, j := range dead {
			ids[i] = j.ID
		}
		moved, err := d.redrive(ctx, consumer, ids, d.Store.Redrive)
		if err != nil {
			return total, err
		}
		total += len(moved)
		from = ids[len(ids)-1].Next()
	}
}

// RedriveAgain gives dead letters a fresh set of attempts by the policy of their consumer. It
// returns how many it moved.
func (d *Service) RedriveAgain(ctx context.Context, consumer uint32, ids []ident.ID) (int, error) {
	moved, err := d.redrive(ctx, consumer, ids, d.Store.RedriveAgain)
	return len(moved), err
}

// RedriveBy opens dead letters again by open, and offers those that it has opened to the queue.
func (d *Service) RedriveBy(ctx context.Context, consumer uint32, ids []ident.ID, open Redriving) ([]durable.OpenJob,
	error) {
	return d.redrive(ctx, consumer, ids, open)
}

// A Redriving opens dead letters again, in the store alone.
type Redriving func(ctx context.Context, consumer uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob, error)

// redrive opens dead letters again and returns those that this call opened.
func (d *Service) redrive(ctx context.Context, consumer uint32, ids []ident.ID, open Redriving) ([]durable.OpenJob,
	error) {
	cleared := d.clear(ctx, consumer, ids)
	moved, err := open(ctx, consumer, ids, d.NowMs())
	if err != nil {
		return nil, err
	}
	d.enqueueRedriven(ctx, consumer, moved)
	if !cleared {
		d.Dirty(consumer)
	}
	return moved, nil
}

// clear removes dead jobs from the queue, which still has them, with all their attempts counted,
// where the acknowledgement of their deaths was lost. It runs before they are open in the store: from
// then on the reconciler may offer them, and a broker be delivering them. It reports whether none
// stays; one that does goes on with its attempts.
func (d *Service) clear(ctx context.Context, consumer uint32, ids []ident.ID) bool {
	standings, err := d.Queue.Probe(ctx, consumer, ids)
	if err != nil {
		return false
	}
	left := map[ident.ID]redisq.Standing{}
	for i, s := range standings {
		if s.State != redisq.Missing {
			left[ids[i]] = s
		}
	}
	if len(left) == 0 {
		return true
	}
	states, err := d.Store.JobStates(ctx, consumer, slices.Collect(maps.Keys(left)))
	if err != nil {
		return false
	}
	var waiting []ident.ID
	var leased []redisq.Lease
	for id, s := range left {
		switch {
		case states[id].Status != durable.Dead: // another request has redriven it since
		case s.State == redisq.Leased:
			leased = append(leased, redisq.Lease{ID: id, Token: s.Token})
		default:
			waiting = append(waiting, id)
		}
	}
	_, err = d.Queue.AckLeases(ctx, consumer, leased)
	if len(waiting) > 0 && err == nil {
		_, err = d.Queue.Ack(ctx, consumer, waiting)
	}
	return err == nil
}

// enqueueRedriven adds redriven jobs to the queue. It returns no error: the jobs are open
// in the store, so the reconciler offers those that Redis did not take.
func (d *Service) enqueueRedriven(ctx context.Context, consumer uint32, moved []durable.OpenJob) {
	if len(moved) == 0 {
		return
	}
	failpoint.At(failpoint.AfterRedrive)
	batch := make([]redisq.Job, len(moved))
	for i, j := range moved {
		batch[i] = redisq.Job{ID: j.ID, Priority: j.Priority, Attempts: j.Attempts}
	}
	e, err := d.Queue.Enqueue(ctx, consumer, batch, redisq.Repeated)
	if err != nil || e.Spilled > 0 {
		d.Dirty(consumer)
	}
	d.Wake(consumer)
}
