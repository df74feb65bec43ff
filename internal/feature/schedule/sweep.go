package schedule

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// An owner is a channel, or a producer, whose deletion ends its schedules.
type owner struct {
	no       uint32
	producer bool
}

// sweepLoop removes schedules that are over and past their retention, and those of deleted
// channels and producers. One broker does it.
func (m *Mover) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(lookTick)
	defer tick.Stop()
	failing, swept := false, time.Time{}
	for {
		if m.Cluster.Owns(0) {
			old := time.Since(swept) >= sweepTick
			err := guard.Do("removal of schedules", func() error { return m.sweep(ctx, old) })
			if err != nil && !failing && ctx.Err() == nil {
				m.Log.Warn("schedules that are over cannot be removed; the broker tries again", "error", err)
			}
			if failing = err != nil; old && !failing {
				swept = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes the schedules of what was deleted, which costs nothing where that was done not long
// ago, and with old those past their retention.
func (m *Mover) sweep(ctx context.Context, old bool) error {
	for _, no := range m.Catalogue.DeletedChannels() {
		if err := m.end(ctx, owner{no, false}, m.Store.RemoveScheduled); err != nil {
			return err
		}
	}
	for _, no := range m.Catalogue.DeletedProducerNos() {
		if err := m.end(ctx, owner{no, true}, m.Store.EndScheduled); err != nil {
			return err
		}
	}
	if m.Retention == 0 || !old {
		return nil
	}
	before := m.Cluster.PastMs() - m.Retention.Milliseconds()
	return m.empty(ctx, func() (int, error) { return m.Store.ForgetScheduled(ctx, before, sweepPage) })
}

// end removes the schedules of a deleted channel or producer.
func (m *Mover) end(ctx context.Context, of owner, remove func(ctx context.Context, no uint32, limit int) (int,
	error)) error {
	if time.Since(m.emptied[of]) < emptyAgain {
		return nil
	}
	err := m.empty(ctx, func() (int, error) { return remove(ctx, of.no, sweepPage) })
	if err == nil {
		m.emptied[of] = time.Now()
	}
	return err
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
