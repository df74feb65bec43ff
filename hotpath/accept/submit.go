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
	"github.com/penstock-broker/penstock/internal/tool/intake"
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
	catalogue *catalogue.Catalogue
	quota     *quota.Quota
	metrics   *metrics.Metrics
	standby   *standby // takes messages for which the store is too slow
	receipts  ReceiptStore
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
	Journal   JournalOptions
	Receipts  ReceiptStore
	Quota     *quota.Quota // what producers may store; nil: any amount
	Metrics   *metrics.Metrics
	Log       *slog.Logger
}

// New returns a submitter. Nothing is stored before Run.
func New(o Options) *Submitter {
	c := newCommitter(o, intake.AnswerWithin-commitLeast)
	s := newSubmitter(c, o)
	s.standby = newStandby(o, &c.pulse)
	return s
}

func newSubmitter(c *committer, o Options) *Submitter {
	s := &Submitter{committer: c, admission: o.Admission, bytes: o.Bodies, scheduler: newScheduler(o),
		catalogue: o.Catalogue, quota: o.Quota, metrics: o.Metrics, receipts: o.Receipts}
	s.singles.New = func() any {
		one := &Submission{s: s, done: make(chan bool, 1)}
		one.writes = one.single[:1]
		return one
	}
	return s
}

// Run stores messages until ctx ends and everything that was submitted has its outcome. What is in
// the journal then is left for the next start.
func (s *Submitter) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if s.standby.on() {
		wg.Go(func() { s.keepJournals(ctx) })
	}
	s.committer.Run(ctx)
	wg.Wait()
}

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
	// Budget is how long the store may take until the journal takes the messages; 0: they wait for
	// the store. WaitOrJournal then waits.
	Budget time.Duration
}

// A Submission is messages on their way into the store. Call Wait, then Outcome, then Release.
type Submission struct {
	s       *Submitter
	ctx     context.Context
	key     share.Key // of the producer of the first message
	writes  []write
	single  [1]write // the memory of writes, of one message
	lines   bool
	counted int64        // in the bounds, bytes
	refused error        // of all, before the store was asked
	left    atomic.Int64 // writes without an outcome
	done    chan bool    // true: none is left; false: the budget is over. It has room for both
	waited  bool
	or      *fallbacks // nil: the messages may not go to the journal
}

// Submit hands messages over. The end of ctx ends the wait for admission, and its deadline is
// the last moment for the store: a message that was admitted gets an outcome all the same. The
// caller changes no message before the submission is released.
func (s *Submitter) Submit(ctx context.Context, t Terms, msgs ...*durable.Message) *Submission {
	journal := t.Budget > 0 && s.standby.on()
	sub := s.submission(len(msgs), journal)
	sub.ctx, sub.lines, sub.counted, sub.key = ctx, t.Lines, -t.Counted, share.Producer(msgs[0].ProducerNo)
	for i, m := range msgs {
		sub.writes[i] = write{msg: m, of: sub}
		sub.counted += int64(m.Bytes())
	}
	if journal {
		t.Patience = s.standby.prepare(sub, t)
	}
	if journal && sub.or.direct || !s.admit(ctx, t, sub.key, len(msgs), sub.counted) {
		return sub.notAdmitted()
	}
	sub.commit(t)
	return sub
}

// commit hands messages that were admitted to the committer.
func (sub *Submission) commit(t Terms) {
	s := sub.s
	s.committer.judge.all(sub.writes)
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

// notAdmitted ends the way of a submission to the store. Its messages may still go to the journal,
// if there is memory for them.
func (sub *Submission) notAdmitted() *Submission {
	sub.refused = problem.ErrOverloaded
	if sub.or != nil {
		if sub.or.held = sub.s.bytes.Take(sub.key, sub.counted); !sub.or.held {
			sub.or = nil
		}
	}
	return sub
}

func (s *Submitter) submission(messages int, journal bool) *Submission {
	if messages == 1 && !journal {
		return s.singles.Get().(*Submission)
	}
	sub := &Submission{s: s, writes: make([]write, messages), done: make(chan bool, 2)}
	if journal {
		sub.or = &fallbacks{all: make([]fallback, messages)}
	}
	return sub
}

// admit waits for admission and takes room for the bytes of n messages, both under a key.
func (s *Submitter) admit(ctx context.Context, t Terms, k share.Key, n int, bytes int64) bool {
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
	case sub.or != nil && !sub.or.end(): // its caller has left
		sub.leave()
	default:
		sub.done <- true
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
	if sub.or != nil && sub.or.all[i].decided {
		return sub.or.all[i].outcome
	}
	if sub.refused != nil {
		return sub.refused
	}
	return sub.writes[i].err
}

// Message is message i; its ID is set once it has its outcome.
func (sub *Submission) Message(i int) *durable.Message { return sub.writes[i].msg }

// Release gives the room of the messages back. The submission must not be used after it. Messages
// that the journal has, and the store may have, keep their room until the store has answered.
func (sub *Submission) Release() {
	s, n := sub.s, len(sub.writes)
	switch {
	case sub.or != nil && sub.or.held:
		s.bytes.Give(sub.key, sub.counted)
	case sub.or != nil && sub.refused == nil && sub.or.part(): // the committer still has messages of it
		return
	case sub.refused == nil:
		sub.leave()
	}
	if n == 1 && cap(sub.writes) == 1 && &sub.writes[0] == &sub.single[0] {
		sub.ctx, sub.single[0] = nil, write{}
		sub.refused, sub.waited = nil, false
		s.singles.Put(sub)
	}
}

// leave gives the room of the messages back.
func (sub *Submission) leave() {
	sub.s.leave(sub.key, len(sub.writes), sub.counted)
}

// leave gives the room of n messages back that were admitted.
func (s *Submitter) leave(k share.Key, n int, bytes int64) {
	if bytes > 0 {
		s.bytes.Give(k, bytes)
	}
	s.admission.leave(n)
}
