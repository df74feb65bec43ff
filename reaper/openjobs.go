package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// walkOpen offers the jobs that left the happy path, with their attempts and
// due times. It stops while Redis holds as many delayed jobs as it will claim
// around, and goes on in a later round.
func (r *Reaper) walkOpen(ctx context.Context, w *walk) error {
	for {
		open, err := r.Store.OpenJobs(ctx, w.k.No, w.openFrom, pageSize)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			stats, err := r.Queue.Stats(ctx, w.k.No)
			if err != nil {
				return err
			}
			if stats.Delayed >= 4*r.Queue.Window() {
				return nil
			}
			now := r.Cluster.NowMs()
			batch := make([]redisq.Job, len(open))
			for i, j := range open {
				batch[i] = redisq.Job{ID: j.ID, Priority: j.Priority, Attempts: j.Attempts,
					Delay: time.Duration(max(j.NextMs-now, 0)) * time.Millisecond}
			}
			e, err := r.Queue.Recover(ctx, w.k.No, w.epoch, batch)
			if err != nil {
				return err
			}
			if e.Added > 0 {
				r.recovered.Add(float64(e.Added))
				r.Touch(w.k.No)
				r.Wake(w.k.No)
			}
			if e.FirstSpilled >= 0 {
				from := open[e.FirstSpilled].ID
				r.save(w, func(l *ledger) { l.openFrom = from })
				return nil
			}
		}
		if len(open) < pageSize {
			r.save(w, func(l *ledger) { l.openFrom, l.openDone = ident.ID{}, true })
			return nil
		}
		from := open[len(open)-1].ID.Next()
		r.save(w, func(l *ledger) { l.openFrom = from })
	}
}
