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

// A storeSeam is the store as one life reaches it. It has the methods of
// durable.Store that the core calls.
type storeSeam struct {
	l *life
	s *store
}

func (t storeSeam) do(ctx context.Context, op string, consumer uint32, effect func()) error {
	w := t.l.w
	return t.l.do(ctx, call{op: op, consumer: consumer, rates: w.plan.store, away: w.storeAway.now, effect: effect})
}

// Insert may take effect after its error, as long as the guard lets it.
func (t storeSeam) Insert(ctx context.Context, node durable.NodeLease, batch []*durable.Message) []error {
	rows := make([]durable.Message, len(batch))
	for i, m := range batch {
		rows[i] = *m
	}
	var errs []error
	insert := func() []error {
		results := t.insertAll(node, rows)
		for i := range rows {
			t.l.note("insert", 0, rows[i].ID, fmt.Sprintf("%s: %v", rows[i].Payload, results[i]))
		}
		return results
	}
	err := t.l.do(ctx, call{op: "Insert", rates: t.l.w.plan.store, away: t.l.w.storeAway.now,
		effect: func() { errs = insert() }, overdue: func() { insert() }})
	switch {
	case err == nil:
		return errs
	case happened(err):
		err = errors.Join(durable.ErrOutcomeUnknown, err)
	}
	errs = make([]error, len(batch))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// insertAll stores messages of producers, and those of schedules.
func (t storeSeam) insertAll(node durable.NodeLease, rows []durable.Message) []error {
	var plain []durable.Message
	var of []int
	results := make([]error, len(rows))
	for i, m := range rows {
		if m.Occurrence == nil {
			plain, of = append(plain, m), append(of, i)
			continue
		}
		if results[i] = t.s.insertOccurrence(node, m); results[i] == nil {
			t.l.w.checker.dispatched(m)
		}
	}
	if len(plain) > 0 {
		for j, err := range t.s.insert(node, plain) {
			results[of[j]] = err
		}
	}
	return results
}

func (t storeSeam) Record(ctx context.Context, outcomes []durable.Outcome) error {
	rows := slices.Clone(outcomes)
	if t.l.w.flaw == ackBeforeRecord && !t.l.dead() {
		t.l.w.server.ackFirst(rows)
	}
	return t.do(ctx, "Record", 0, func() {
		t.s.record(rows)
		t.l.w.checkLost(rows)
		t.l.w.checker.recorded(t.l, rows)
	})
}

func (t storeSeam) RecordLeaseEnds(ctx context.Context, consumerNo uint32, ends []durable.LeaseEnd, atMs int64) error {
	ends = slices.Clone(ends)
	return t.do(ctx, "RecordLeaseEnds", consumerNo, func() { t.s.endLeases(consumerNo, ends, atMs) })
}

// read makes a call that returns a value, which an error leaves empty.
func read[V any](ctx context.Context, t storeSeam, op string, consumer uint32, effect func() V) (V, error) {
	var out, none V
	if err := t.l.do(ctx, call{op: op, consumer: consumer, rates: t.l.w.plan.store, away: t.l.w.storeAway.now,
		effect: func() { out = effect() }, overdue: func() { effect() }}); err != nil {
		return none, err
	}
	return out, nil
}

func (t storeSeam) Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error) {
	return read(ctx, t, "Messages", channelNo, func() []durable.Message { return t.s.messagesByID(channelNo, ids) })
}

// MessagesUpTo has no use for a budget: payloads are small here. It reads less than
// all now and then, as if they were not.
func (t storeSeam) MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, _ int) ([]durable.Message,
	int, error) {
	n := len(ids)
	if n > 1 && ids[0][ident.Size-1]%4 == 0 {
		n = 1 + n/2
	}
	msgs, err := read(ctx, t, "Messages", channelNo, func() []durable.Message {
		return t.s.messagesByID(channelNo, ids[:n])
	})
	return msgs, n, err
}

func (t storeSeam) JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState,
	error) {
	return read(ctx, t, "JobStates", consumerNo, func() map[ident.ID]durable.JobState {
		return t.s.jobStates(consumerNo, ids)
	})
}

// Attempts is not called: no consumer of the simulation has a status URL.
func (t storeSeam) Attempts(ctx context.Context, consumerNo uint32, _ ident.ID, _ int) ([]durable.Attempt, error) {
	return read(ctx, t, "Attempts", consumerNo, func() []durable.Attempt { return nil })
}

func (t storeSeam) Job(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.StoredJob, error) {
	return read(ctx, t, "Job", k.No, func() durable.StoredJob { return t.s.job(k, id) })
}

func (t storeSeam) ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message,
	error) {
	return read(ctx, t, "ListMessages", channelNo, func() []durable.Message { return t.s.list(channelNo, from, limit) })
}

func (t storeSeam) Heads(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]durable.Head,
	error) {
	return read(ctx, t, "Heads", channelNo, func() []durable.Head {
		t.l.w.checker.walked(t.l, channelNo, through)
		return t.s.heads(channelNo, -1, after, through, limit)
	})
}

func (t storeSeam) LevelHeads(ctx context.Context, channelNo uint32, priority int, after, through ident.ID,
	limit int) ([]durable.Head, error) {
	return read(ctx, t, "LevelHeads", channelNo, func() []durable.Head {
		t.l.w.checker.walked(t.l, channelNo, through)
		return t.s.heads(channelNo, priority, after, through, limit)
	})
}

func (t storeSeam) Levels(ctx context.Context, channelNo uint32) ([]int, error) {
	return read(ctx, t, "Levels", channelNo, func() []int { return t.s.levels(channelNo) })
}

func (t storeSeam) AllDelivered(ctx context.Context, k durable.Consumer, after, through ident.ID) (durable.Tally,
	bool, error) {
	all, err := read(ctx, t, "AllDelivered", k.No, func() bool {
		t.l.w.checker.walked(t.l, k.ChannelNo, through)
		return t.s.allDelivered(k, after, through)
	})
	return durable.Tally{}, all, err // the model keeps no books
}

func (t storeSeam) LevelDelivered(ctx context.Context, k durable.Consumer, priority int, after, through ident.ID,
	limit int) (ident.ID, bool, error) {
	type answer struct {
		last ident.ID
		all  bool
	}
	a, err := read(ctx, t, "LevelDelivered", k.No, func() answer {
		t.l.w.checker.walked(t.l, k.ChannelNo, through)
		last, all := t.s.levelDelivered(k, priority, after, through, limit)
		return answer{last, all}
	})
	return a.last, a.all, err
}

func (t storeSeam) LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error) {
	return read(ctx, t, "LatestMessages", 0, func() []durable.Latest { return t.s.latest(afterChannel, limit) })
}

func (t storeSeam) OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.OpenJob,
	error) {
	return read(ctx, t, "OpenJobs", consumerNo, func() []durable.OpenJob { return t.s.openJobs(consumerNo, from, limit) })
}

func (t storeSeam) Hasten(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error {
	ids = slices.Clone(ids)
	return t.do(ctx, "Hasten", consumerNo, func() { t.s.hasten(consumerNo, ids, nowMs) })
}

func (t storeSeam) DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob,
	error) {
	return read(ctx, t, "DeadJobs", consumerNo, func() []durable.DeadJob { return t.s.deadJobs(consumerNo, from, limit) })
}

func (t storeSeam) Redrive(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob,
	error) {
	return t.reopen(ctx, "Redrive", consumerNo, ids, nowMs, true)
}

func (t storeSeam) RedriveAgain(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]durable.OpenJob,
	error) {
	return t.Redrive(ctx, consumerNo, ids, nowMs)
}

func (t storeSeam) Revive(ctx context.Context, consumerNo uint32, id ident.ID, nowMs int64) (durable.OpenJob, error) {
	moved, err := t.reopen(ctx, "Revive", consumerNo, []ident.ID{id}, nowMs, false)
	if err == nil && len(moved) == 0 {
		err = durable.ErrNotFound
	}
	if err != nil {
		return durable.OpenJob{}, err
	}
	return moved[0], nil
}

func (t storeSeam) reopen(ctx context.Context, op string, consumerNo uint32, ids []ident.ID, nowMs int64,
	again bool) ([]durable.OpenJob, error) {
	return read(ctx, t, op, consumerNo, func() []durable.OpenJob {
		moved := t.s.reopen(consumerNo, ids, nowMs, again)
		for _, j := range moved {
			t.l.note(op, consumerNo, j.ID, "")
			t.l.w.checker.reopened(jobKey{consumerNo, j.ID})
		}
		return moved
	})
}

func (t storeSeam) Watermarks(ctx context.Context) (map[uint32]ident.ID, error) {
	return read(ctx, t, "Watermarks", 0, t.s.readMarks)
}

func (t storeSeam) Settled(ctx context.Context, consumerNo uint32) (ident.ID, error) {
	return read(ctx, t, "Settled", consumerNo, func() ident.ID { return t.s.readMarks()[consumerNo] })
}

func (t storeSeam) TrimBooks(ctx context.Context, consumerNo uint32, _ ident.ID) error {
	return t.do(ctx, "TrimBooks", consumerNo, func() {})
}

func (t storeSeam) SaveWatermarks(ctx context.Context, seen durable.Clock,
	settled []durable.Settled) (map[uint32]ident.ID, error) {
	settled = slices.Clone(settled)
	others, err := read(ctx, t, "SaveWatermarks", 0, func() map[uint32]ident.ID {
		others := t.s.saveMarks(seen, settled)
		t.l.w.checker.marked(t.l)
		return others
	})
	if err == nil && others == nil {
		err = durable.ErrStale
	}
	return others, err
}

func (t storeSeam) CheckHistory(ctx context.Context, seen durable.Clock) (durable.Clock, error) {
	return read(ctx, t, "CheckHistory", 0, func() durable.Clock {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		return t.s.raise(seen, 0)
	})
}

func (t storeSeam) RewindWatermarks(ctx context.Context, to ident.ID) error {
	return t.do(ctx, "RewindWatermarks", 0, func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		for no, at := range t.s.marks {
			if at.Compare(to) > 0 {
				t.s.marks[no] = to
			}
		}
	})
}

func (t storeSeam) RewindWatermark(ctx context.Context, consumerNo uint32, to ident.ID) error {
	return t.do(ctx, "RewindWatermark", consumerNo, func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		if t.s.marks[consumerNo].Compare(to) > 0 {
			t.s.marks[consumerNo] = to
		}
	})
}

func (t storeSeam) FirstSheet(ctx context.Context, consumerNo uint32, after ident.ID) (ident.ID, bool, error) {
	return after, true, nil
}

// Books balance: the model keeps none, and final counts.
func (t storeSeam) Books(ctx context.Context, k durable.Consumer, _, _ ident.ID) (durable.Books, error) {
	return read(ctx, t, "Books", k.No, func() durable.Books { return durable.Books{} })
}

// RemoveStrays and RaiseAlert are not called, because the books balance.
func (t storeSeam) RemoveStrays(context.Context, durable.Consumer, ident.ID, ident.ID, int) (int, error) {
	panic("simulation: strays are removed although the books balance")
}

func (t storeSeam) RaiseAlert(context.Context, durable.Alert) error {
	panic("simulation: an alert is raised although the books balance")
}

func (t storeSeam) ForgetWatermarks(ctx context.Context) error {
	return t.do(ctx, "ForgetWatermarks", 0, func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		clear(t.s.marks)
	})
}

func (t storeSeam) Changes(ctx context.Context, after int64) (durable.Changes, error) {
	return read(ctx, t, "Changes", 0, func() durable.Changes { return t.s.changes(after) })
}

func (t storeSeam) Extent(ctx context.Context) (durable.Extent, error) {
	return read(ctx, t, "Extent", 0, t.s.extent)
}

func (t storeSeam) Touch(ctx context.Context, _ durable.Numbers) error {
	return t.do(ctx, "Touch", 0, func() {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		t.s.version++
	})
}

func (t storeSeam) LeaseNode(ctx context.Context, name string, ttl time.Duration) (durable.NodeLease, error) {
	return read(ctx, t, "LeaseNode", 0, func() durable.NodeLease { return t.s.leaseNode(name, ttl) })
}

func (t storeSeam) RenewNode(ctx context.Context, lease durable.NodeLease, ttl time.Duration) (durable.NodeLease,
	error) {
	type answer struct {
		lease durable.NodeLease
		err   error
	}
	a, err := read(ctx, t, "RenewNode", 0, func() (a answer) {
		a.lease, a.err = t.s.renewNode(lease, ttl)
		return a
	})
	if err != nil {
		return durable.NodeLease{}, err
	}
	return a.lease, a.err
}

func (t storeSeam) ReleaseNode(ctx context.Context, lease durable.NodeLease) error {
	return t.do(ctx, "ReleaseNode", 0, func() { _, _ = t.s.renewNode(lease, 0) })
}

func (t storeSeam) Nodes(ctx context.Context) ([]durable.Node, error) {
	return read(ctx, t, "Nodes", 0, t.s.readNodes)
}

// LeaveOut is for filters, which the simulation does not have.
func (t storeSeam) LeaveOut(context.Context, durable.Consumer, []ident.ID) error {
	panic("simulation: a message is left out, and no consumer has a filter")
}
