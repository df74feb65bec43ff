package accept

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
)

// A Submitter is the way into the store below every route: whatever brings messages, over HTTP
// or not, hands them to Submit. It bounds what waits for the store in messages and in bytes,
// shares the transactions, and holds back producers where deliveries would starve.
//
// Of a submitted message three things stay apart: its public identity (Key, else its ID), the
// identity under which a repeat is found (today the Key as well), and the time when it is due
// (today always now). The IDs are made by the commit.
type Submitter struct {
	committer *committer
	admission *Admission
	bytes     *intake.Bound
	maxWrites int64
	writes    atomic.Int64 // messages that wait for the store
	// singles are submissions of one message. Submitters do not share them: a channel belongs to
	// the synctest bubble that made it.
	singles sync.Pool
}

func newSubmitter(c *committer, a *Admission, bytes *intake.Bound, maxWrites int64) *Submitter {
	s := &Submitter{committer: c, admission: a, bytes: bytes, maxWrites: maxWrites}
	s.singles.New = func() any {
		one := &Submission{s: s, done: make(chan struct{}, 1)}
		one.writes = one.single[:1]
		return one
	}
	return s
}

// Terms say how a submission waits and what of it is counted already.
type Terms struct {
	// Patience is how long the messages may wait for admission. After it they are refused with
	// problem.ErrOverloaded.
	Patience time.Duration
	// Since is when the request was complete: from here on the time runs in which it has to be
	// answered. Zero: since the admission, of a sender that is held back until then.
	Since time.Time
	// Counted are bytes of the messages that the caller has counted in the bound already.
	Counted int64
	// Lines are messages of a larger request. They wait for room in the bounds as well, at most
	// for Patience, and the reason why the store rejects one is logged: its answer cannot say it.
	Lines bool
}

// A Submission is messages on their way into the store. Call Wait, then Outcome, then Release.
type Submission struct {
	s       *Submitter
	ctx     context.Context
	writes  []write
	single  [1]write // the memory of writes, of one message
	lines   bool
	counted int64         // in the bounds, bytes
	refused error         // of all, before the store was asked
	left    atomic.Int64  // writes without an outcome
	done    chan struct{} // capacity 1: none is left
	waited  bool
}

// Submit hands messages over. The end of ctx ends the wait for admission, and its deadline is
// the last moment for the store: a message that was admitted gets an outcome all the same. The
// caller changes no message before the submission is released.
func (s *Submitter) Submit(ctx context.Context, t Terms, msgs ...*durable.Message) *Submission {
	sub := s.submission(len(msgs))
	sub.ctx, sub.lines, sub.counted = ctx, t.Lines, -t.Counted
	for i, m := range msgs {
		sub.writes[i] = write{msg: m, of: sub}
		sub.counted += int64(m.Bytes())
	}
	if !s.admit(ctx, t, int64(len(msgs)), sub.counted) {
		sub.refused = problem.ErrOverloaded
		return sub
	}
	since := t.Since
	if since.IsZero() {
		since = time.Now()
	}
	until := since.Add(s.committer.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	for i := range sub.writes {
		sub.writes[i].until = until
	}
	sub.left.Store(int64(len(msgs)))
	s.committer.add(sub.writes)
	return sub
}

func (s *Submitter) submission(messages int) *Submission {
	if messages == 1 {
		return s.singles.Get().(*Submission)
	}
	return &Submission{s: s, writes: make([]write, messages), done: make(chan struct{}, 1)}
}

// admit waits for admission and takes room in the bounds.
func (s *Submitter) admit(ctx context.Context, t Terms, writes, bytes int64) bool {
	end := time.Now().Add(t.Patience)
	if !s.admission.enter(int(writes), t.Patience, ctx.Done()) {
		return false
	}
	for !s.take(writes, bytes) {
		if t.Lines && time.Now().Before(end) && pause(ctx) {
			continue
		}
		s.admission.leave(int(writes))
		return false
	}
	return true
}

// pause waits a moment, and reports whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(2 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// take counts messages that will wait for the store, unless that would be too many.
func (s *Submitter) take(writes, bytes int64) bool {
	if s.writes.Add(writes) <= s.maxWrites && s.bytes.Take(bytes) {
		return true
	}
	s.writes.Add(-writes)
	return false
}

// finish is told of writes that have their outcome.
func (sub *Submission) finish(n int64) {
	if sub.left.Add(-n) == 0 {
		sub.done <- struct{}{}
	}
}

// Wait waits until every message has its outcome.
func (sub *Submission) Wait() {
	if sub.refused == nil && !sub.waited {
		<-sub.done
		sub.waited = true
	}
}

// Outcome is what became of message i: nil where it is on disk. durable.ErrOutcomeUnknown means
// that it may be; any other error means that it is not stored.
func (sub *Submission) Outcome(i int) error {
	if sub.refused != nil {
		return sub.refused
	}
	return sub.writes[i].err
}

// Message is message i; its ID is set once it has its outcome.
func (sub *Submission) Message(i int) *durable.Message { return sub.writes[i].msg }

// Release gives the room of the messages back. The submission must not be used after it.
func (sub *Submission) Release() {
	s, n := sub.s, len(sub.writes)
	if sub.refused == nil {
		s.writes.Add(int64(-n))
		s.bytes.Give(sub.counted)
		s.admission.leave(n)
	}
	if n == 1 {
		sub.ctx, sub.single[0] = nil, write{}
		sub.refused, sub.waited = nil, false
		s.singles.Put(sub)
	}
}
