package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The schedules of the store. Each is one message: of recurrences there are none here, nor of
// Idempotency-Keys.

// schedule stores schedules as durable.Store.Schedule does, one result each.
func (s *store) schedule(node durable.NodeLease, batch []durable.Scheduled) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(batch))
	for i := range batch {
		m := &batch[i]
		stored := s.scheduledAs(m)
		_, taken := s.keys[channelKey{m.ChannelNo, m.Key}]
		switch {
		case !s.alive(node, m.ChannelNo):
			errs[i] = durable.ErrStale
		case stored != nil && stored.ID == m.ID:
		case stored != nil && repeatsMessage(&stored.Message, &m.Message) && stored.DelayMs == m.DelayMs &&
			(stored.DueMs == m.DueMs || m.DelayMs > 0):
			errs[i] = &durable.DuplicateError{ID: stored.ID}
		case stored != nil, m.Key != "" && taken:
			errs[i] = durable.ErrConflict
		case m.Past:
			errs[i] = durable.ErrPast
		default:
			s.schedules[m.ID] = m
		}
	}
	return errs
}

// scheduledAs returns the schedule with the ID or the key of another one, or nil.
func (s *store) scheduledAs(m *durable.Scheduled) *durable.Scheduled {
	if stored := s.schedules[m.ID]; stored != nil {
		return stored
	}
	for _, stored := range s.schedules {
		if m.Key != "" && stored.ChannelNo == m.ChannelNo && stored.Key == m.Key {
			return stored
		}
	}
	return nil
}

// reserved reports whether a waiting schedule has the key of a message that is not its own.
func (s *store) reserved(m *durable.Message) bool {
	for _, stored := range s.schedules {
		if m.Key != "" && m.Occurrence == nil && stored.Status == durable.ScheduleWaiting &&
			stored.ChannelNo == m.ChannelNo && stored.Key == m.Key {
			return true
		}
	}
	return false
}

// insertOccurrence stores the message of a schedule, if the schedule waits for it.
func (s *store) insertOccurrence(node durable.NodeLease, m durable.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := m.Occurrence
	from := s.schedules[o.Of]
	switch {
	case from != nil && from.MessageID == m.ID:
		return nil
	case from == nil || from.Status != durable.ScheduleWaiting || from.No != o.No || from.ChangedMs != o.ChangedMs &&
		s.flaw != changesAreIgnored:
		return durable.ErrMoved
	case !s.guard(node, &m):
		return durable.ErrStale
	}
	s.put(m)
	if s.flaw == movesAreForgotten && s.flaw.strikes(m.ID) {
		return nil
	}
	from.Status, from.MessageID = durable.ScheduleOver, m.ID
	return nil
}

// due returns the waiting schedules that are due at a time, in the order of their times.
func (s *store) due(nowMs int64, limit int) (out []durable.Due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.schedules {
		d := durable.Due{DueLine: durable.DueLine{ProducerNo: m.ProducerNo, ChannelNo: m.ChannelNo}, ID: m.ID,
			AtMs: s.shown(m).DueMs, Bytes: len(m.Payload) + len(m.Headers)}
		if m.Status == durable.ScheduleWaiting && d.AtMs <= nowMs {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, durable.Due.Compare)
	return out[:min(limit, len(out))]
}

// dueLines returns the lines of what is due at a time.
func (s *store) dueLines(nowMs int64) (out []durable.DueLine) {
	for _, d := range s.due(nowMs, math.MaxInt) {
		out = append(out, d.DueLine)
	}
	slices.SortFunc(out, func(a, b durable.DueLine) int {
		return cmp.Or(cmp.Compare(a.ProducerNo, b.ProducerNo), cmp.Compare(a.ChannelNo, b.ChannelNo))
	})
	return slices.Compact(out)
}

// dueOfLines returns what is due in some lines.
func (s *store) dueOfLines(nowMs int64, turns []durable.DueTurn) (out []durable.Due) {
	all := s.due(nowMs, math.MaxInt)
	for _, t := range turns {
		n := 0
		for _, d := range all {
			if d.DueLine == t.DueLine && d.Compare(t.After) > 0 && n < t.Limit {
				out = append(out, d)
				n++
			}
		}
	}
	slices.SortFunc(out, durable.Due.Compare)
	return out
}

// nextDue is the first time after another one at which a schedule is due, or 0.
func (s *store) nextDue(afterMs int64) (next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.schedules {
		if due := s.shown(m).DueMs; m.Status == durable.ScheduleWaiting && due > afterMs && (next == 0 || due < next) {
			next = due
		}
	}
	return next
}

// shown is a schedule as brokers read it.
func (s *store) shown(m *durable.Scheduled) *durable.Scheduled {
	out := *m
	if s.flaw == timesAreEarly && s.flaw.strikes(m.ID) {
		out.DueMs -= 1000
	}
	return &out
}

// waiting finds the schedule that is due next, nil if none waits.
func (s *store) waiting() *durable.Scheduled {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next *durable.Scheduled
	for _, m := range s.schedules {
		if m.Status == durable.ScheduleWaiting && (next == nil || cmp.Or(cmp.Compare(m.DueMs, next.DueMs),
			m.ID.Compare(next.ID)) < 0) {
			next = m
		}
	}
	if next == nil {
		return nil
	}
	out := *next
	return &out
}

// Schedule may take effect after its error, as long as the guard lets it.
func (t storeSeam) Schedule(ctx context.Context, node durable.NodeLease, batch []*durable.Scheduled) []error {
	rows := make([]durable.Scheduled, len(batch))
	for i, m := range batch {
		rows[i] = *m
	}
	var errs []error
	schedule := func() []error {
		results := t.s.schedule(node, slices.Clone(rows))
		for i := range rows {
			t.l.note("schedule", 0, rows[i].ID, fmt.Sprintf("%s: %v", rows[i].Payload, results[i]))
		}
		return results
	}
	err := t.l.do(ctx, call{op: "Schedule", rates: t.l.w.plan.store, away: t.l.w.storeAway.now,
		effect: func() { errs = schedule() }, overdue: func() { schedule() }})
	switch {
	case err == nil:
		return errs
	case happened(err):
		err = errors.Join(durable.ErrOutcomeUnknown, err)
	}
	return slices.Repeat([]error{err}, len(batch))
}

func (t storeSeam) NextDue(ctx context.Context, afterMs int64) (int64, error) {
	return read(ctx, t, "NextDue", 0, func() int64 { return t.s.nextDue(afterMs) })
}

func (t storeSeam) DueSchedules(ctx context.Context, nowMs int64, limit int) ([]durable.Due, error) {
	return read(ctx, t, "DueSchedules", 0, func() []durable.Due { return t.s.due(nowMs, limit) })
}

func (t storeSeam) DueLines(ctx context.Context, nowMs int64) ([]durable.DueLine, error) {
	return read(ctx, t, "DueLines", 0, func() []durable.DueLine { return t.s.dueLines(nowMs) })
}

func (t storeSeam) DueOfLines(ctx context.Context, nowMs int64, turns []durable.DueTurn) ([]durable.Due, error) {
	return read(ctx, t, "DueOfLines", 0, func() []durable.Due { return t.s.dueOfLines(nowMs, turns) })
}

func (t storeSeam) ScheduledRows(ctx context.Context, ids []ident.ID) ([]*durable.Scheduled, error) {
	return read(ctx, t, "ScheduledRows", 0, func() (out []*durable.Scheduled) {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		for _, id := range ids {
			if m := t.s.schedules[id]; m != nil {
				out = append(out, t.s.shown(m))
			}
		}
		return out
	})
}

// Removals and bounds are not simulated: what is over stays.

func (t storeSeam) PostponeScheduled(context.Context, []ident.ID, int64, int64) error { return nil }

func (t storeSeam) DropScheduled(context.Context, ident.ID) error { return nil }

func (t storeSeam) RemoveScheduled(context.Context, uint32, int) (int, error) { return 0, nil }

func (t storeSeam) EndScheduled(context.Context, uint32, int) (int, error) { return 0, nil }

func (t storeSeam) ForgetScheduled(context.Context, int64, int) (int, error) { return 0, nil }

// dispatched checks the message of a schedule that has just been stored.
func (c *checker) dispatched(m durable.Message) {
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
