package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Schedules.

func (t storeSeam) NextDue(ctx context.Context, afterMs int64) (int64, error) {
	return ask(ctx, t, "NextDue", 0, func(ctx context.Context) (int64, error) {
		return t.s.NextDue(ctx, afterMs)
	})
}

func (t storeSeam) DueSchedules(ctx context.Context, nowMs int64, limit int) ([]durable.Due, error) {
	return ask(ctx, t, "DueSchedules", 0, func(ctx context.Context) ([]durable.Due, error) {
		return t.s.DueSchedules(ctx, nowMs, limit)
	})
}

func (t storeSeam) DueLines(ctx context.Context, nowMs int64) ([]durable.DueLine, error) {
	return ask(ctx, t, "DueLines", 0, func(ctx context.Context) ([]durable.DueLine, error) {
		return t.s.DueLines(ctx, nowMs)
	})
}

func (t storeSeam) DueOfLines(ctx context.Context, nowMs int64, turns []durable.DueTurn) ([]durable.Due, error) {
	return ask(ctx, t, "DueOfLines", 0, func(ctx context.Context) ([]durable.Due, error) {
		return t.s.DueOfLines(ctx, nowMs, turns)
	})
}

func (t storeSeam) ScheduledRows(ctx context.Context, ids []ident.ID) ([]*durable.Scheduled, error) {
	return ask(ctx, t, "ScheduledRows", 0, func(ctx context.Context) ([]*durable.Scheduled, error) {
		return t.s.ScheduledRows(ctx, ids)
	})
}

func (t storeSeam) PostponeScheduled(ctx context.Context, ids []ident.ID, nowMs, untilMs int64) error {
	ids = slices.Clone(ids)
	return t.do(ctx, "PostponeScheduled", 0, func(ctx context.Context) error {
		return t.s.PostponeScheduled(ctx, ids, nowMs, untilMs)
	})
}

func (t storeSeam) DropScheduled(ctx context.Context, id ident.ID) error {
	return t.do(ctx, "DropScheduled", 0, func(ctx context.Context) error {
		return t.s.DropScheduled(ctx, id)
	})
}

func (t storeSeam) RemoveScheduled(ctx context.Context, channelNo uint32, limit int) (int, error) {
	return ask(ctx, t, "RemoveScheduled", channelNo, func(ctx context.Context) (int, error) {
		return t.s.RemoveScheduled(ctx, channelNo, limit)
	})
}

func (t storeSeam) EndScheduled(ctx context.Context, producerNo uint32, limit int) (int, error) {
	return ask(ctx, t, "EndScheduled", 0, func(ctx context.Context) (int, error) {
		return t.s.EndScheduled(ctx, producerNo, limit)
	})
}

func (t storeSeam) ForgetScheduled(ctx context.Context, beforeMs int64, limit int) (int, error) {
	return ask(ctx, t, "ForgetScheduled", 0, func(ctx context.Context) (int, error) {
		return t.s.ForgetScheduled(ctx, beforeMs, limit)
	})
}

// Schedule may take effect after its error, as long as the guard lets it.
func (t storeSeam) Schedule(ctx context.Context, node durable.NodeLease, batch []*durable.Scheduled) []error {
	rows := make([]durable.Scheduled, len(batch))
	for i, m := range batch {
		rows[i] = *m
	}
	results, err := ask(ctx, t, "Schedule", 0, func(ctx context.Context) ([]error, error) {
		errs := t.s.Schedule(ctx, node, pointers(rows))
		for i := range rows {
			t.s.healthy(errs[i])
			t.l.note("schedule", 0, rows[i].ID, fmt.Sprintf("%s: %v", rows[i].Payload, errs[i]))
		}
		return errs, nil
	})
	return each(results, err, len(batch))
}

// ChangeScheduled may take effect after its error, unless another change came between: the row is
// locked from the look at it to the commit.
func (t storeSeam) ChangeScheduled(ctx context.Context, c durable.ScheduleChange) (*durable.Scheduled, error) {
	changed, no := t.s.revision(c.ID)
	change := func(ctx context.Context) (*durable.Scheduled, error) {
		now, err := t.s.ChangeScheduled(ctx, c)
		t.l.note("change of a schedule", 0, c.ID, fmt.Sprint(err))
		return now, err
	}
	late := func(ctx context.Context) (*durable.Scheduled, error) {
		if ms, n := t.s.revision(c.ID); ms != changed || n != no {
			return nil, nil
		}
		return change(ctx)
	}
	now, err := asked(ctx, t, call{op: "ChangeScheduled", overdue: func() { _, _ = within(t.s, late) }}, change)
	if errors.Is(err, errLost) || errors.Is(err, context.Canceled) {
		err = errors.Join(durable.ErrOutcomeUnknown, err)
	}
	return now, err
}

// revision returns when a schedule was changed last, and its number.
func (s *store) revision(id ident.ID) (changedMs int64, no int) {
	for _, m := range must(s.Store.ScheduledRows(context.Background(), []ident.ID{id})) {
		changedMs, no = m.ChangedMs, m.No
	}
	return changedMs, no
}

// dispatched checks the message of a schedule that has just been stored.
func (c *checker) dispatched(m *durable.Message) {
	c.w.mu.Lock()
	late := time.Duration(c.w.store.nowMs()-c.w.byPayload[string(m.Payload)].dueMs) * time.Millisecond
	c.w.mu.Unlock()
	if late < 0 {
		c.report(m.ID, "I16: %q is stored %v before its time", m.Payload, -late)
	}
	if c.w.plan.calm && late > time.Second {
		c.report(m.ID, "I16: %q is stored %v after its time without any fault", m.Payload, late)
	}
}
