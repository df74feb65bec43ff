package accept

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A Submitter is the way into the store below every route: whatever brings messages, over HTTP
// or not, hands them to Submit. It bounds what waits for the store in messages and in bytes,
// shares the transactions, and holds back producers where deliveries would starve.
//
// Of a submitted message two identities stay apart: the public one (PublicID) and the one under
// which a repeat is found (Key). The time when a message is due belongs to its schedule
// (durable.Scheduled). The commit makes the IDs.
type Submitter struct {
	committer *committer
	admission *Admission
	bytes     *share.Bound // of what waits for the store, and of bodies that come; by producer
	// singles are submissions of one message. Submitters do not share them: a channel belongs to
	// the synctest bubble that made it.
	singles   sync.Pool
	scheduler scheduler
	quota     *quota.Quota
	metrics   *metrics.Metrics
}

// Options assemble a submitter.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Node      Node
	Admission *Admission
	// Committed is told of stored messages before their callers are answered.
	Committed func([]*durable.Message)
	// Scheduled, if not nil, is told when a scheduled message that was stored is due.
	Scheduled func(dueMs int64)
	Bodies    *share.Bound // bytes of what waits for the store, and of bodies that come
	Quota     *quota.Quota // what producers may store; nil: any amount
	Metrics   *metrics.Metrics
	Log       *slog.Logger
}

// New returns a submitter. Nothing is stored before Run.
func New(o Options) *Submitter {
	return newSubmitter(newCommitter(o, Within), o)
}

func newSubmitter(c *committer, o Options) *Submitter {
	s := &Submitter{committer: c, admission: o.Admission, bytes: o.Bodies, scheduler: newScheduler(o),
		quota: o.Quota, metrics: o.Metrics}
	s.singles.New = func() any {
		one := &Submission{s: s, done: make(chan struct{}, 1)}
		one.writes = one.single[:1]
		return one
	}
	return s
}

// Run stores messages until ctx ends and everything that was submitted has its outcome.
func (s *Submitter) Run(ctx context.Context) { s.committer.Run(ctx) }

const (
	// Patience is the longest wait of a publish for admission before it is refused. A publish that is
	// admitted at the end of this wait is normally delivered within a second of its sending.
	Patience = 800 * time.Millisecond
	// LinePatience is the longest wait of a part of a larger request for room in a full broker before it
	// is refused. Its sender is held back in the meantime.
	LinePatience = 10 * time.Second
)

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
	// Gate, if not nil, is asked before the store has the messages.
	Gate Gate
	// Account is whose share of the bounds the messages use, where their producer stands for several users. The
	// zero key: the producer of the first message.
	Account share.Key
}

func (t *Terms) account(producer uint32) share.Key {
	if t.Account != (share.Key{}) {
		return t.Account
	}
	return share.Producer(producer)
}

// A Submission is messages on their way into the store. Call Wait, then Outcome, then Release.
type Submission struct {
	s       *Submitter
	ctx     context.Context
	key     share.Key // see Terms.Account
	writes  []write
	single  [1]write // the memory of writes, of one message
	lines   bool
	counted int64         // in the bounds, bytes
	refused error         // of all, before the store was asked
	left    atomic.Int64  // writes without an outcome
	done    chan struct{} // of capacity 1: none is left
	waited  bool
	gate    Gate        // nil: none
	parted  atomic.Bool // with a gate: the caller has left, or none is left
}

// Submit hands messages over. The end of ctx ends the wait for admission, and its deadline is
// the last moment for the store: a message that was admitted gets an outcome all the same. The
// caller changes no message before the submission is released.
func (s *Submitter) Submit(ctx context.Context, t Terms, msgs ...*durable.Message) *Submission {
	sub := s.submission(len(msgs), t.Gate)
	sub.ctx, sub.lines, sub.counted, sub.key = ctx, t.Lines, -t.Counted, t.account(msgs[0].ProducerNo)
	for i, m := range msgs {
		sub.writes[i] = write{msg: m, of: sub, no: i}
		sub.counted += int64(m.Bytes())
	}
	if !s.Admit(ctx, t, sub.key, len(msgs), sub.counted) {
		sub.refused = problem.ErrOverloaded
		return sub
	}
	sub.commit(t)
	return sub
}

// commit hands messages that were admitted to the committer.
func (sub *Submission) commit(t Terms) {
	s := sub.s
	s.committer.filters.all(sub.writes)
	since := t.Since
	if since.IsZero() {
		since = time.Now()
	}
	until := since.Add(s.committer.timeout)
	if d, ok := sub.ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	for i := range sub.writes {
		sub.writes[i].until = until
	}
	sub.left.Store(int64(len(sub.writes)))
	s.committer.add(sub.writes)
}

func (s *Submitter) submission(messages int, gate Gate) *Submission {
	if messages == 1 && gate == nil {
		return s.singles.Get().(*Submission)
	}
	sub := &Submission{s: s, gate: gate, done: make(chan struct{}, 1)}
	if sub.writes = sub.single[:]; messages > 1 {
		sub.writes = make([]write, messages)
	}
	return sub
}

// Admit waits for admission and takes room for the bytes of n messages, both under a key.
func (s *Submitter) Admit(ctx context.Context, t Terms, k share.Key, n int, bytes int64) bool {
	patience, begun := t.Patience, time.Time{}
	if t.Lines {
		begun = time.Now()
	}
	if bytes > 0 && !s.room(ctx, t, k, bytes) {
		return false
	}
	if t.Lines {
		patience -= time.Since(begun)
	}
	if s.admission.enter(k, n, patience, ctx.Done()) {
		return true
	}
	if bytes > 0 {
		s.bytes.Give(k, bytes)
	}
	return false
}

// room counts bytes. Lines wait for it.
func (s *Submitter) room(ctx context.Context, t Terms, k share.Key, bytes int64) bool {
	if s.bytes.Take(k, bytes) {
		return true
	}
	if !t.Lines {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	return s.bytes.Wait(ctx, k, bytes) == nil
}

// finish is told of writes that have their outcome.
func (sub *Submission) finish(n int64) {
	switch {
	case sub.left.Add(-n) > 0:
	case sub.gate != nil && sub.parted.Swap(true): // its caller has left
		sub.leave()
	default:
		sub.done <- struct{}{}
	}
}

// Admitted reports whether the store is asked.
func (sub *Submission) Admitted() bool { return sub.refused == nil }

// Wait waits until every message has its outcome.
func (sub *Submission) Wait() {
	if sub.refused == nil && !sub.waited {
		<-sub.done
		sub.waited = true
	}
}

// WaitOr waits until every message has its outcome, or over has a value. It reports the former.
func (sub *Submission) WaitOr(over <-chan bool) bool {
	if sub.refused == nil && !sub.waited {
		select {
		case <-sub.done:
			sub.waited = true
		case <-over:
			return false
		}
	}
	return true
}

// Outcome is what became of message i: nil where it is on disk. durable.ErrOutcomeUnknown means
// that it may be; any other error means that it is not stored.
func (sub *Submission) Outcome(i int) error {
	if sub.refused != nil {
		return sub.refused
	}
	return sub.writes[i].err
}

// Together is the number of messages in the transaction of message i; 0: it had none.
func (sub *Submission) Together(i int) int { return sub.writes[i].together }

// Message is message i; its ID is set once it has its outcome.
func (sub *Submission) Message(i int) *durable.Message { return sub.writes[i].msg }

// Release gives the room of the messages back. The submission must not be used after it. One with a gate
// may be released before its messages have their outcomes: they keep their room until then.
func (sub *Submission) Release() {
	switch {
	case sub.refused != nil:
	case sub.gate != nil && !sub.parted.Swap(true): // the committer still has messages of it
	default:
		sub.leave()
	}
	if sub.gate == nil && len(sub.writes) == 1 {
		sub.ctx, sub.single[0] = nil, write{}
		sub.refused, sub.waited = nil, false
		sub.s.singles.Put(sub)
	}
}

// leave gives the room of the messages back.
func (sub *Submission) leave() {
	sub.s.Leave(sub.key, len(sub.writes), sub.counted)
}

// Leave gives the room of n messages back that were admitted.
func (s *Submitter) Leave(k share.Key, n int, bytes int64) {
	if bytes > 0 {
		s.bytes.Give(k, bytes)
	}
	s.admission.leave(n)
}
