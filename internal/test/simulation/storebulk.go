package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The bulks of the store.

// A storedBulk is a bulk and its body.
type storedBulk struct {
	durable.Bulk
	chunks [][]byte
}

func (s *store) createBulk(b durable.Bulk, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bulks[b.ID] != nil { // after a lost answer
		return
	}
	row := &storedBulk{Bulk: b}
	row.ChangedMs = s.nowMs()
	if len(body) > 0 {
		row.chunks, row.Chunks, row.Bytes = [][]byte{body}, 1, int64(len(body))
	}
	s.bulks[b.ID] = row
}

// nextBulkQueue returns the next producer with bulks of a state, and whether one of them is due.
func (s *store) nextBulkQueue(after durable.BulkQueue, nowMs int64) (q durable.BulkQueue, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.State = after.State
	for _, b := range s.bulks {
		if b.State == q.State && !b.Paused && b.ProducerNo > after.ProducerNo &&
			(q.ProducerNo == 0 || b.ProducerNo < q.ProducerNo) {
			q.ProducerNo = b.ProducerNo
		}
	}
	for _, b := range s.bulks {
		due = due || b.isDue(q, nowMs)
	}
	return q, due
}

// isDue reports whether a bulk of a queue may be claimed.
func (b *storedBulk) isDue(q durable.BulkQueue, nowMs int64) bool {
	return b.State == q.State && b.ProducerNo == q.ProducerNo && !b.Paused && b.LeaseMs <= nowMs && b.NextMs <= nowMs
}

// claimBulk gives a bulk of a queue that has no owner, or one whose lease has ended, to an owner.
func (s *store) claimBulk(owner [16]byte, of durable.BulkQueue) *durable.Bulk {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowMs()
	due := slices.SortedFunc(maps.Values(s.bulks), func(a, b *storedBulk) int {
		return cmp.Or(cmp.Compare(a.NextMs, b.NextMs), a.ID.Compare(b.ID))
	})
	for _, b := range due {
		if b.isDue(of, now) {
			b.Owner, b.Fence = owner, b.Fence+1
			out := b.Bulk
			b.LeaseMs = now + durable.BulkLease.Milliseconds()
			return &out
		}
	}
	return nil
}

// withBulk changes a bulk that its owner holds.
func (s *store) withBulk(h durable.BulkOwner, change func(b *storedBulk, nowMs int64) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bulks[h.ID]
	if b == nil || (b.Owner != h.Owner || b.Fence != h.Fence || b.Paused) && s.flaw != stepsAreUnguarded ||
		b.State.Over() {
		return durable.ErrBulkLost
	}
	return change(b, s.nowMs())
}

// addBulkChunk appends a chunk to the body of a bulk.
func (s *store) addBulkChunk(h durable.BulkOwner, no int64, body []byte) error {
	return s.withBulk(h, func(b *storedBulk, nowMs int64) error {
		switch {
		case b.Chunks == no+1:
			return nil
		case b.Chunks != no || b.State == durable.BulkRunning:
			return fmt.Errorf("simulation: chunk %d of a bulk with %d", no, b.Chunks)
		}
		b.chunks, b.Chunks, b.Bytes = append(b.chunks, body), b.Chunks+1, b.Bytes+int64(len(body))
		b.LeaseMs = nowMs + durable.BulkLease.Milliseconds()
		return nil
	})
}

// runBulk says that the body of a bulk is whole.
func (s *store) runBulk(h durable.BulkOwner, total int64) error {
	err := s.withBulk(h, func(b *storedBulk, nowMs int64) error {
		b.State, b.Total, b.NextMs, b.Tries, b.ChangedMs, b.Reason = durable.BulkRunning, total, 0, 0, nowMs, ""
		b.disown()
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bulks[h.ID]; b != nil && b.State >= durable.BulkRunning && b.Total == total { // perhaps by an earlier try
		return nil
	}
	return err
}

// disown ends the right of the owner of a bulk.
func (b *storedBulk) disown() { b.Owner, b.LeaseMs = [16]byte{}, 0 }

// pauseBulk pauses a bulk or resumes it.
func (s *store) pauseBulk(id ident.ID, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bulks[id]; b != nil && !b.State.Over() && b.Paused != paused {
		b.Paused, b.ChangedMs = paused, s.nowMs()
		b.disown()
	}
}

// stepBulk stores a step: rows are its messages, with the IDs that they had when it was sent.
func (s *store) stepBulk(node durable.NodeLease, step *durable.BulkStep, rows []durable.Message) (results []error,
	err error) {
	err = s.withBulk(step.By, func(b *storedBulk, nowMs int64) error {
		switch {
		case s.flaw == stepsAreUnguarded:
		case b.At == step.To && step.To != step.From:
			return nil // after a lost answer
		case b.At != step.From || b.State != durable.BulkRunning:
			return durable.ErrBulkLost
		}
		for i := range rows {
			if !s.guard(node, &rows[i]) {
				return durable.ErrStale
			}
		}
		results = s.insertHere(node, rows)
		for _, err := range results {
			switch {
			case err == nil:
				b.Published++
			case errors.Is(err, durable.ErrDuplicate):
				b.Duplicates++
			default:
				b.Rejected++
			}
		}
		b.Rejected += int64(len(step.Bad))
		if s.flaw == checkpointIsForgotten && len(rows) > 0 && s.flaw.strikes(rows[0].ID) {
			return nil
		}
		b.At, b.Total, b.Speed, b.ChangedMs = step.To, max(b.Total, step.To.Row), step.Speed, nowMs
		b.LeaseMs, b.NextMs = nowMs+durable.BulkLease.Milliseconds(), nowMs+step.PauseMs
		if step.Last {
			b.State, b.Total, b.LeaseMs, b.NextMs = durable.BulkDone, step.To.Row, 0, 0
		}
		return nil
	})
	return results, err
}

// expanding finds a bulk that is not over.
func (s *store) expanding() (durable.Bulk, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bulks {
		if !b.State.Over() {
			return b.Bulk, true
		}
	}
	return durable.Bulk{}, false
}

// changeBulk makes a call that changes a bulk. A failure of the call is one of the store.
func (t storeSeam) changeBulk(ctx context.Context, op string, change func() error) error {
	answer, err := read(ctx, t, op, 0, change)
	if err != nil {
		return errors.Join(durable.ErrFailed, err)
	}
	return answer
}

func (t storeSeam) CreateBulk(ctx context.Context, b *durable.Bulk, body []byte) error {
	row, whole := *b, slices.Clone(body)
	return t.changeBulk(ctx, "CreateBulk", func() error {
		t.s.createBulk(row, whole)
		return nil
	})
}

func (t storeSeam) AddBulkChunk(ctx context.Context, h durable.BulkOwner, no int64, body []byte) error {
	whole := slices.Clone(body)
	return t.changeBulk(ctx, "AddBulkChunk", func() error { return t.s.addBulkChunk(h, no, whole) })
}

func (t storeSeam) RestartBulkBody(ctx context.Context, h durable.BulkOwner) error {
	return t.changeBulk(ctx, "RestartBulkBody", func() error {
		return t.s.withBulk(h, func(b *storedBulk, _ int64) error {
			b.chunks, b.Chunks, b.Bytes = nil, 0, 0
			return nil
		})
	})
}

func (t storeSeam) RunBulk(ctx context.Context, h durable.BulkOwner, total int64) error {
	return t.changeBulk(ctx, "RunBulk", func() error { return t.s.runBulk(h, total) })
}

func (t storeSeam) BulkChunk(ctx context.Context, id ident.ID, no int64) ([]byte, error) {
	body, err := read(ctx, t, "BulkChunk", 0, func() []byte {
		t.s.mu.Lock()
		defer t.s.mu.Unlock()
		if b := t.s.bulks[id]; b != nil && no < int64(len(b.chunks)) {
			return b.chunks[no]
		}
		return nil
	})
	if err == nil && body == nil {
		err = durable.ErrNotFound
	}
	return body, err
}

func (t storeSeam) NextBulkQueue(ctx context.Context, after durable.BulkQueue, nowMs int64) (q durable.BulkQueue,
	due bool, err error) {
	type next struct {
		q   durable.BulkQueue
		due bool
	}
	n, err := read(ctx, t, "NextBulkQueue", 0, func() next {
		q, due := t.s.nextBulkQueue(after, nowMs)
		return next{q, due}
	})
	return n.q, n.due, err
}

func (t storeSeam) ClaimBulk(ctx context.Context, owner [16]byte, of durable.BulkQueue) (*durable.Bulk, error) {
	return read(ctx, t, "ClaimBulk", 0, func() *durable.Bulk {
		b := t.s.claimBulk(owner, of)
		if b != nil {
			t.l.note("bulk claimed", 0, b.ID, fmt.Sprintf("fence %d, row %d", b.Fence, b.At.Row))
		}
		return b
	})
}

func (t storeSeam) RenewBulk(ctx context.Context, h durable.BulkOwner) error {
	return t.changeBulk(ctx, "RenewBulk", func() error {
		return t.s.withBulk(h, func(b *storedBulk, nowMs int64) error {
			b.LeaseMs = nowMs + durable.BulkLease.Milliseconds()
			return nil
		})
	})
}

func (t storeSeam) ReleaseBulk(ctx context.Context, h durable.BulkOwner, waitMs int64, tries int, reason string) error {
	err := t.changeBulk(ctx, "ReleaseBulk", func() error {
		return t.s.withBulk(h, func(b *storedBulk, nowMs int64) error {
			b.NextMs, b.Tries, b.Reason = max(b.NextMs, nowMs+waitMs), tries, reason
			b.disown()
			return nil
		})
	})
	if errors.Is(err, durable.ErrBulkLost) {
		return nil
	}
	return err
}

func (t storeSeam) FailBulk(ctx context.Context, h durable.BulkOwner, reason string) error {
	return t.changeBulk(ctx, "FailBulk", func() error {
		return t.s.withBulk(h, func(b *storedBulk, nowMs int64) error {
			b.State, b.ChangedMs, b.NextMs, b.Reason = durable.BulkFailed, nowMs, 0, reason
			b.disown()
			return nil
		})
	})
}

// SweepBulks removes nothing: what is over stays.
func (t storeSeam) SweepBulks(context.Context, int64, int64) (bool, error) { return false, nil }

// StepBulk may take effect after its error, as long as the owner has the bulk.
func (t storeSeam) StepBulk(ctx context.Context, node durable.NodeLease, step *durable.BulkStep) error {
	sent, rows := *step, make([]durable.Message, len(step.Messages))
	for i, m := range step.Messages {
		rows[i] = *m
	}
	var results []error
	store := func() (all []error, err error) {
		all, err = t.s.stepBulk(node, &sent, slices.Clone(rows))
		t.l.note("bulk step", 0, sent.By.ID, fmt.Sprintf("rows %d to %d: %v", sent.From.Row, sent.To.Row, err))
		return all, err
	}
	var refused error
	err := t.l.do(ctx, call{op: "StepBulk", rates: t.l.w.plan.store, away: t.l.w.storeAway.now,
		effect: func() { results, refused = store() }, overdue: func() { _, _ = store() }})
	if err != nil {
		return errors.Join(durable.ErrFailed, err)
	}
	step.Results = results
	return refused
}
