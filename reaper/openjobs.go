package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// scanOpen offers the jobs that failed or were redriven, with their attempts and due
// times. It stops while Redis has delayed jobs for four windows, and continues in a later
// round.
func (r *Reaper) scanOpen(ctx context.Context, s *scan) error {
	for {
		open, err := r.Store.OpenJobs(ctx, s.k.No, s.openFrom, pageSize)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			stats, err := r.Queue.Stats(ctx, s.k.No)
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
			e, err := r.Queue.Recover(ctx, s.k.No, s.epoch, batch)
			if err != nil {
				return err
			}
			if e.Added > 0 {
				r.recovered.Add(float64(e.Added))
				r.Touch(s.k.No)
				r.Wake(s.k.No)
			}
			if e.FirstSpilled >= 0 {
				from := open[e.FirstSpilled].ID
				r.save(s, func(l *scanState) { l.openFrom = from })
				return nil
			}
		}
		if len(open) < pageSize {
			r.save(s, func(l *scanState) { l.openFrom, l.openDone = ident.ID{}, true })
			return nil
		}
		from := open[len(open)-1].ID.Next()
		r.save(s, func(l *scanState) { l.openFrom = from })
	}
}
