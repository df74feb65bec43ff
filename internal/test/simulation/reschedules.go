package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Changes of schedules. They have other times and the same content, by which the checker knows them.

// changeSchedule changes a schedule as durable.Store.ChangeScheduled does.
func (s *store) changeSchedule(c durable.ScheduleChange) (*durable.Scheduled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.schedules[c.ID]
	switch {
	case m == nil:
		return nil, durable.ErrNotFound
	case m.Status != durable.ScheduleWaiting || m.DueMs <= s.nowMs():
		return nil, durable.ErrDispatched
	}
	m.ChangedMs = max(s.nowMs(), (m.ChangedAt().Unix()+1)*1000)
	if t := c.Times; t != nil {
		m.SentBefore, m.No = m.SentBefore+m.No, 0
		m.DueMs, m.DelayMs = t.DueMs, t.DelayMs
	}
	if n := c.Content; n != nil {
		m.Priority, m.TTLMs, m.ContentType, m.Headers, m.Payload, m.Addressed = n.Priority, n.TTLMs, n.ContentType, n.Headers,
			n.Payload, n.Addressed
	}
	out := *m
	return &out, nil
}

// revision returns when a schedule was changed last, and its number.
func (s *store) revision(id ident.ID) (changedMs int64, no int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.schedules[id]; m != nil {
		changedMs, no = m.ChangedMs, m.No
	}
	return changedMs, no
}

// ChangeScheduled may take effect after its error, unless another change came between: the row is
// locked from the look at it to the commit.
func (t storeSeam) ChangeScheduled(ctx context.Context, c durable.ScheduleChange) (now *durable.Scheduled, err error) {
	change := func() (*durable.Scheduled, error) {
		now, err := t.s.changeSchedule(c)
		t.l.note("change of a schedule", 0, c.ID, fmt.Sprint(err))
		return now, err
	}
	changed, no := t.s.revision(c.ID)
	late := func() {
		if now, n := t.s.revision(c.ID); now == changed && n == no {
			_, _ = change()
		}
	}
	failed := t.l.do(ctx, call{op: "ChangeScheduled", rates: t.l.w.plan.store, away: t.l.w.storeAway.now,
		effect: func() { now, err = change() }, overdue: late})
	switch {
	case failed == nil:
		return now, err
	case happened(failed):
		failed = errors.Join(durable.ErrOutcomeUnknown, failed)
	}
	return nil, failed
}

// reschedule is a producer that changes the times of its schedules, earlier and later, while brokers
// send them.
func (w *world) reschedule() {
	if !w.plan.schedules {
		return
	}
	r := draw(w.seed, word("reschedule"))
	for w.faulty() || w.plan.calm && w.now() < w.plan.active {
		time.Sleep(r.between(100*time.Millisecond, 900*time.Millisecond))
		b, was := w.broker(r.below(w.plan.brokers)), w.store.waiting()
		delay := r.between(200*time.Millisecond, 3*time.Second)
		if b == nil || was == nil {
			continue
		}
		w.mu.Lock()
		p := w.byPayload[string(was.Payload)]
		settled := slices.ContainsFunc(p.tries, try.stored) // a repeat of its request would be another one
		before := p.dueMs
		if settled {
			p.dueMs = min(before, w.store.nowMs()+delay.Milliseconds()) // until it is known
		}
		w.mu.Unlock()
		if !settled {
			continue
		}
		rc := request(nil, map[string]string{"X-Broker-Delay": delay.String()}, "")
		now, err := b.plane.Reschedule(rc, catalogue.Standing{}, was, durable.ScheduleChange{ID: was.ID})
		w.told("changed", fmt.Sprintf("%q: %v", was.Payload, err))
		w.mu.Lock()
		switch {
		case err == nil && b.life.awake():
			p.dueMs = now.DueMs
		case errors.Is(err, durable.ErrDispatched):
			p.dueMs = before
		}
		w.mu.Unlock()
	}
}
