package schedule

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/guard"
)

// sweepLoop removes schedules that are over and past their retention, and those of deleted
// channels. One broker does it.
func (m *Mover) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	failing := false
	for {
		if m.Cluster.Owns(0) {
			err := guard.Do("removal of schedules", func() error { return m.sweep(ctx) })
			if err != nil && !failing && ctx.Err() == nil {
				m.Log.Warn("schedules that are over cannot be removed; the broker tries again", "error", err)
			}
			failing = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *Mover) sweep(ctx context.Context) error {
	for _, no := range m.Catalogue.DeletedChannels() {
		if time.Since(m.emptied[no]) < emptyAgain {
			continue
		}
		if err := m.empty(ctx, func() (int, error) { return m.Store.RemoveScheduled(ctx, no, sweepPage) }); err != nil {
			return err
		}
		m.emptied[no] = time.Now()
	}
	if m.Retention == 0 {
		return nil
	}
	before := m.Cluster.PastMs() - m.Retention.Milliseconds()
	return m.empty(ctx, func() (int, error) { return m.Store.ForgetScheduled(ctx, before, sweepPage) })
}

// empty removes pages until one is not full. It takes a fifth of one connection's time.
func (m *Mover) empty(ctx context.Context, remove func() (int, error)) error {
	for {
		began := time.Now()
		n, err := remove()
		if err != nil || n < sweepPage {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sweepPause * time.Since(began)):
		}
	}
}
