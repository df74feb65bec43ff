package simulation

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
)

// keepHolds stores holds as durable.Store.KeepHolds does.
func (s *store) keepHolds(holds []durable.Hold) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make([]bool, len(holds))
	for i, h := range holds {
		if kept[i] = s.consumers[h.ConsumerNo-1].Version == h.Version; kept[i] && s.holds[h.ConsumerNo].UntilMs < h.UntilMs {
			h.Version = 0
			s.holds[h.ConsumerNo] = h
		}
	}
	return kept
}

func (t storeSeam) KeepHolds(ctx context.Context, holds []durable.Hold) ([]bool, error) {
	return read(ctx, t, "KeepHolds", 0, func() []bool { return t.s.keepHolds(holds) })
}

func (t storeSeam) Holds(ctx context.Context, nowMs int64) ([]durable.Hold, error) {
	return read(ctx, t, "Holds", 0, func() (out []durable.Hold) {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		for _, k := range t.s.consumers { // in one order
			if h := t.s.holds[k.No]; h.UntilMs > nowMs {
				out = append(out, h)
			}
		}
		return out
	})
}

func (t storeSeam) HoldOf(ctx context.Context, consumer uint32) (durable.Hold, error) {
	return read(ctx, t, "HoldOf", consumer, func() durable.Hold {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		return t.s.holds[consumer]
	})
}

func (t storeSeam) EndHolds(ctx context.Context, consumers []uint32) error {
	return t.do(ctx, "EndHolds", 0, func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		for _, no := range consumers {
			delete(t.s.holds, no)
		}
	})
}
