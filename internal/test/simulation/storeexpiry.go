package simulation

import (
	"cmp"
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// What the sweep of expired jobs asks. No message has a time to live of its own here, and
// dead letters are kept.

func (s *store) headsOf(channel uint32, ids []ident.ID) []durable.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []durable.Head
	for _, id := range ids {
		if m := s.message(channel, id); m != nil {
			out = append(out, durable.Head{ID: id, Audience: m.Audience, Priority: m.Priority, TTLMs: m.TTLMs})
		}
	}
	slices.SortFunc(out, func(a, b durable.Head) int { return a.ID.Compare(b.ID) })
	return out
}

func (t storeSeam) HeadsOf(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Head, error) {
	return read(ctx, t, "HeadsOf", channelNo, func() []durable.Head { return t.s.headsOf(channelNo, ids) })
}

func (t storeSeam) Expiring(context.Context, durable.Expiry, int64, int) ([]durable.Expiry, error) {
	return nil, nil
}

func (t storeSeam) Expire(context.Context, []durable.Expiry, []durable.Expiry, int64) error {
	return nil
}

func (t storeSeam) DeadHeads(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadHead,
	ident.ID, error) {
	dead, err := t.DeadJobs(ctx, consumerNo, from, limit)
	var next ident.ID
	if len(dead) == limit {
		next = dead[limit-1].ID.Next()
	}
	out := make([]durable.DeadHead, len(dead))
	for i, d := range dead {
		out[i] = durable.DeadHead{ID: d.ID, DiedMs: d.DiedMs, Reason: d.Reason}
	}
	return out, next, err
}

func (t storeSeam) Dispose(context.Context, uint32, []durable.DeadHead, durable.Disposal) error {
	return nil
}

// ForgetKeys does nothing: no simulated message has an Idempotency-Key.
func (t storeSeam) ForgetKeys(context.Context, int64, int) (int, error) { return 0, nil }

func (t storeSeam) LastDelivery(ctx context.Context, consumerNo uint32) (int64, error) {
	return read(ctx, t, "LastDelivery", consumerNo, func() (last int64) {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		for k, o := range t.s.deliveries {
			if k.consumer == consumerNo {
				last = cmp.Or(max(last, o.AtMs), last)
			}
		}
		return last
	})
}
