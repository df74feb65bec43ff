package simulation

import (
	"context"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// What ends by its age, the books, and the limits of channels, which no channel of the simulation has.

func (t storeSeam) Watermarks(ctx context.Context) (map[uint32]ident.ID, error) {
	return ask(ctx, t, "Watermarks", 0, func(ctx context.Context) (map[uint32]ident.ID, error) {
		return t.s.Watermarks(ctx)
	})
}

func (t storeSeam) Settled(ctx context.Context, consumerNo uint32) (ident.ID, error) {
	return ask(ctx, t, "Settled", consumerNo, func(ctx context.Context) (ident.ID, error) {
		return t.s.Settled(ctx, consumerNo)
	})
}

func (t storeSeam) RewindWatermarks(ctx context.Context, to ident.ID) error {
	return t.do(ctx, "RewindWatermarks", 0, func(ctx context.Context) error {
		return t.s.RewindWatermarks(ctx, to)
	})
}

func (t storeSeam) RewindWatermark(ctx context.Context, consumerNo uint32, to ident.ID) error {
	return t.do(ctx, "RewindWatermark", consumerNo, func(ctx context.Context) error {
		return t.s.RewindWatermark(ctx, consumerNo, to)
	})
}

func (t storeSeam) ForgetWatermarks(ctx context.Context) error {
	return t.do(ctx, "ForgetWatermarks", 0, func(ctx context.Context) error {
		return t.s.ForgetWatermarks(ctx)
	})
}

func (t storeSeam) FirstBookRow(ctx context.Context, consumerNo uint32, after ident.ID) (ident.ID, bool, error) {
	return askTwo(ctx, t, "FirstBookRow", consumerNo, func(ctx context.Context) (ident.ID, bool, error) {
		return t.s.FirstBookRow(ctx, consumerNo, after)
	})
}

func (t storeSeam) TrimBooks(ctx context.Context, consumerNo uint32, before ident.ID) error {
	return t.do(ctx, "TrimBooks", consumerNo, func(ctx context.Context) error {
		return t.s.TrimBooks(ctx, consumerNo, before)
	})
}

func (t storeSeam) Books(ctx context.Context, k durable.Consumer, after, through ident.ID) (durable.Books, error) {
	return ask(ctx, t, "Books", k.No, func(ctx context.Context) (durable.Books, error) {
		return t.s.Books(ctx, k, after, through)
	})
}

func (t storeSeam) LeaveOut(ctx context.Context, k durable.Consumer, ids []ident.ID) error {
	return t.do(ctx, "LeaveOut", k.No, func(ctx context.Context) error {
		return t.s.LeaveOut(ctx, k, ids)
	})
}

func (t storeSeam) Over(ctx context.Context, p durable.Purge) ([]ident.ID, durable.Purged, error) {
	return askTwo(ctx, t, "Over", 0, func(ctx context.Context) ([]ident.ID, durable.Purged, error) {
		return t.s.Over(ctx, p)
	})
}

func (t storeSeam) CountMessages(ctx context.Context, channelNo uint32, through ident.ID, limit int,
	full func(durable.Stretch) bool) (bool, error) {
	return ask(ctx, t, "CountMessages", channelNo, func(ctx context.Context) (bool, error) {
		return t.s.CountMessages(ctx, channelNo, through, limit, full)
	})
}

func (t storeSeam) Stretches(ctx context.Context, channelNo uint32) ([]durable.Stretch, error) {
	return ask(ctx, t, "Stretches", channelNo, func(ctx context.Context) ([]durable.Stretch, error) {
		return t.s.Stretches(ctx, channelNo)
	})
}

func (t storeSeam) NewestSizes(ctx context.Context, channelNo uint32, after, through ident.ID,
	limit int) ([]durable.Stretch, error) {
	return ask(ctx, t, "NewestSizes", channelNo, func(ctx context.Context) ([]durable.Stretch, error) {
		return t.s.NewestSizes(ctx, channelNo, after, through, limit)
	})
}

func (t storeSeam) TrimStretches(ctx context.Context, channelNo uint32, through ident.ID) error {
	return t.do(ctx, "TrimStretches", channelNo, func(ctx context.Context) error {
		return t.s.TrimStretches(ctx, channelNo, through)
	})
}

func (t storeSeam) Removal(ctx context.Context, channelNo uint32) (durable.Removal, error) {
	return ask(ctx, t, "Removal", channelNo, func(ctx context.Context) (durable.Removal, error) {
		return t.s.Removal(ctx, channelNo)
	})
}

func (t storeSeam) RemoveOldAttempts(ctx context.Context, o durable.OldAttempts) (ident.ID, int64, error) {
	return askTwo(ctx, t, "RemoveOldAttempts", o.ConsumerNo, func(ctx context.Context) (ident.ID, int64, error) {
		return t.s.RemoveOldAttempts(ctx, o)
	})
}

func (t storeSeam) OpenAlarm(ctx context.Context, a durable.Alert) (bool, error) {
	return ask(ctx, t, "OpenAlarm", 0, func(ctx context.Context) (bool, error) {
		return t.s.OpenAlarm(ctx, a)
	})
}

func (t storeSeam) CloseAlarm(ctx context.Context, a durable.Alert) (bool, error) {
	return ask(ctx, t, "CloseAlarm", 0, func(ctx context.Context) (bool, error) {
		return t.s.CloseAlarm(ctx, a)
	})
}

func (t storeSeam) ForgetKeys(ctx context.Context, nowMs int64, limit int) (int, error) {
	return ask(ctx, t, "ForgetKeys", 0, func(ctx context.Context) (int, error) {
		return t.s.ForgetKeys(ctx, nowMs, limit)
	})
}

func (t storeSeam) Expire(ctx context.Context, over, later []durable.Expiry, laterMs int64) error {
	over = slices.Clone(over)
	later = slices.Clone(later)
	return t.do(ctx, "Expire", 0, func(ctx context.Context) error {
		return t.s.Expire(ctx, over, later, laterMs)
	})
}

func (t storeSeam) Dispose(ctx context.Context, consumerNo uint32, dead []durable.DeadHead,
	to durable.Disposal) error {
	dead = slices.Clone(dead)
	return t.do(ctx, "Dispose", consumerNo, func(ctx context.Context) error {
		return t.s.Dispose(ctx, consumerNo, dead, to)
	})
}

func (t storeSeam) Hasten(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error {
	ids = slices.Clone(ids)
	return t.do(ctx, "Hasten", consumerNo, func(ctx context.Context) error {
		return t.s.Hasten(ctx, consumerNo, ids, nowMs)
	})
}

func (t storeSeam) SaveWatermarks(ctx context.Context, seen durable.Clock,
	settled []durable.Settled) (map[uint32]ident.ID, error) {
	settled = slices.Clone(settled)
	return ask(ctx, t, "SaveWatermarks", 0, func(ctx context.Context) (map[uint32]ident.ID, error) {
		others, err := t.s.SaveWatermarks(ctx, seen, slices.Clone(settled))
		t.l.w.checker.marked(t.l)
		return others, err
	})
}

// RemoveStrays comes where the books do not balance: a store that went back may have such books.
func (t storeSeam) RemoveStrays(ctx context.Context, k durable.Consumer, after, through ident.ID,
	limit int) (int, error) {
	return ask(ctx, t, "RemoveStrays", k.No, func(ctx context.Context) (int, error) {
		t.l.w.checker.unbalanced(t.l, k.No)
		return t.s.RemoveStrays(ctx, k, after, through, limit)
	})
}

func (t storeSeam) RaiseAlert(ctx context.Context, a durable.Alert) error {
	return t.do(ctx, "RaiseAlert", a.ConsumerNo, func(ctx context.Context) error {
		t.l.w.checker.unbalanced(t.l, a.ConsumerNo)
		return t.s.RaiseAlert(ctx, a)
	})
}

// unbalanced records books that do not balance (I8).
func (c *checker) unbalanced(l *life, consumer uint32) {
	if !c.wentBackOnce() {
		c.report(none, "I8: broker %d finds books of consumer %d that do not balance", l.no, consumer)
	}
}

// Purge removes what is over.
func (t storeSeam) Purge(ctx context.Context, p durable.Purge) (durable.Purged, error) {
	return ask(ctx, t, "Purge", p.ChannelNo, func(ctx context.Context) (durable.Purged, error) {
		t.l.w.checker.walked(t.l, p.ChannelNo, p.Through)
		before := t.s.look()
		open := map[ident.ID]uint32{}
		for _, m := range before.of(p.ChannelNo) {
			open[m.ID] = t.l.w.stillOpen(before, m)
		}
		out, err := t.s.Purge(ctx, p)
		after := t.s.look()
		for _, m := range before.of(p.ChannelNo) {
			if after.message(p.ChannelNo, m.ID) == nil {
				t.s.purged = append(t.s.purged, m)
				t.l.w.checker.removed(t.l, m, open[m.ID])
			}
		}
		return out, err
	})
}

// stillOpen returns a consumer whose job of a message is not over, 0 if there is none. A dead letter that is
// discarded is over, as one of a queue that was purged.
func (w *world) stillOpen(p *picture, m *durable.Message) uint32 {
	for _, k := range w.store.consumers() {
		if k.ChannelNo != m.ChannelNo || !concerns(m.ID, m.Audience, k) {
			continue
		}
		j := p.state(jobKey{k.No, m.ID})
		goes := j.Status == durable.Dead && (j.Discarded || w.plan.deadRetention > 0)
		if j.Status != durable.Delivered && !goes {
			return k.No
		}
	}
	return 0
}

// removed checks that nothing is left to do for a message that is removed (I1).
func (c *checker) removed(l *life, m *durable.Message, open uint32) {
	l.note("removed", 0, m.ID, "")
	if open != 0 {
		c.report(m.ID, "I1: broker %d removed a message, and its job for consumer %d is not over", l.no, open)
	}
}
