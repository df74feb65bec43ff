package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-broker/penstock/durable"
)

// A storeSeam is the store as one life reaches it. It has the methods of
// durable.Store that the core calls: each is one call of the store, with the faults of the run.
type storeSeam struct {
	l *life
	s *store
}

// asked makes a call. Its context is one that does not end: only the broker gives up, while the server
// goes on.
func asked[V any](ctx context.Context, t storeSeam, c call, f func(ctx context.Context) (V, error)) (V, error) {
	var out, none V
	var refused error
	c.rates, c.away = t.l.w.plan.store, t.l.w.storeAway.now
	c.effect = func() { out, refused = within(t.s, f) }
	if c.overdue == nil {
		c.overdue = func() { _, _ = within(t.s, f) }
	}
	if err := t.l.do(ctx, c); err != nil {
		return none, err
	}
	return out, refused
}

func ask[V any](ctx context.Context, t storeSeam, op string, consumer uint32,
	f func(ctx context.Context) (V, error)) (V, error) {
	return asked(ctx, t, call{op: op, consumer: consumer}, f)
}

// askTwo is ask of a call with two results.
func askTwo[A, B any](ctx context.Context, t storeSeam, op string, consumer uint32,
	f func(ctx context.Context) (A, B, error)) (A, B, error) {
	type answer struct {
		a A
		b B
	}
	out, err := ask(ctx, t, op, consumer, func(ctx context.Context) (out answer, err error) {
		out.a, out.b, err = f(ctx)
		return out, err
	})
	return out.a, out.b, err
}

// do is ask of a call without a result.
func (t storeSeam) do(ctx context.Context, op string, consumer uint32, f func(ctx context.Context) error) error {
	_, err := ask(ctx, t, op, consumer, func(ctx context.Context) (any, error) { return nil, f(ctx) })
	return err
}

// pointers are those to the rows of a call.
func pointers[T any](rows []T) []*T {
	out := make([]*T, len(rows))
	for i := range rows {
		out[i] = &rows[i]
	}
	return out
}

// each returns the results of a call for n rows, which are the same if the call failed.
func each(results []error, err error, n int) []error {
	if err == nil {
		return results
	}
	if happened(err) {
		err = errors.Join(durable.ErrOutcomeUnknown, err)
	}
	return slices.Repeat([]error{err}, n)
}

// Insert may take effect after its error, as long as the guard lets it.
func (t storeSeam) Insert(ctx context.Context, node durable.NodeLease, batch []*durable.Message) []error {
	rows := make([]durable.Message, len(batch))
	for i, m := range batch {
		rows[i] = *m
	}
	results, err := ask(ctx, t, "Insert", 0, func(ctx context.Context) ([]error, error) {
		errs := t.s.Insert(ctx, node, pointers(rows))
		for i := range rows {
			m := &rows[i]
			t.s.healthy(errs[i])
			if m.Occurrence != nil && errs[i] == nil {
				t.l.w.checker.dispatched(m)
			}
			t.l.note("insert", 0, m.ID, fmt.Sprintf("%s: %v", m.Payload, errs[i]))
		}
		return errs, nil
	})
	return each(results, err, len(batch))
}

func (t storeSeam) Record(ctx context.Context, outcomes []durable.Outcome) error {
	rows := slices.Clone(outcomes)
	if t.l.w.flaw == ackBeforeRecord && !t.l.dead() {
		t.l.w.server.ackFirst(rows)
	}
	return t.do(ctx, "Record", 0, func(ctx context.Context) error {
		if err := t.s.Record(ctx, slices.Clone(rows)); err != nil {
			return err
		}
		t.s.ended(rows)
		t.l.w.checkLost(rows)
		t.l.w.checker.recorded(t.l, rows)
		return nil
	})
}

// RecordLeaseEnds charges leases that ended without an outcome.
func (t storeSeam) RecordLeaseEnds(ctx context.Context, consumerNo uint32, ends []durable.LeaseEnd,
	atMs int64) error {
	ends = slices.Clone(ends)
	return t.do(ctx, "RecordLeaseEnds", consumerNo, func(ctx context.Context) error {
		p := t.s.look()
		for _, e := range ends {
			k := jobKey{consumerNo, e.ID}
			if j := p.state(k); !j.Status.Over() && j.Attempts < e.Attempt {
				t.s.loses(attemptKey{k, atMs, e.Attempt})
			}
		}
		return t.s.RecordLeaseEnds(ctx, consumerNo, slices.Clone(ends), atMs)
	})
}

// loses records a lease that ended without a word.
func (s *store) loses(a attemptKey) {
	if s.lost[a.jobKey] == nil {
		s.lost[a.jobKey] = map[attemptKey]bool{}
	}
	s.lost[a.jobKey][a] = true
}

// ended records what outcomes that were stored say of leases and deaths.
func (s *store) ended(rows []durable.Outcome) {
	for _, o := range rows {
		k := jobKey{o.ConsumerNo, o.ID}
		if o.Phase == durable.PhaseLeaseEnded {
			s.loses(attemptKey{k, o.AtMs, o.Attempts})
		}
		if _, dead := s.died[k]; o.Kind != durable.OutcomeDead || dead {
			continue
		}
		if s.look().state(k).Status == durable.Dead {
			s.events++
			s.died[k] = s.events
		}
	}
}
