package accept

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// JournalOptions say where the journal is. The zero value is a broker without one, whose channels
// with ack=journal are like those with ack=durable.
type JournalOptions struct {
	// Open opens the journal that this broker writes. It is called with the first message.
	Open func() (*journal.Journal, error)
	// Left opens the journals that other brokers have left in the data folder.
	Left func() ([]*journal.Journal, error)
	Sign journal.Signer
}

// A standby takes messages for which the store is too slow into the journal of the broker.
type standby struct {
	o     JournalOptions
	pulse *pulse
	log   *slog.Logger
	waits budgets

	mu     sync.Mutex
	limbo  map[uint32]int   // messages with an ordering key that are on their way into the journal, by channel
	own    *journal.Journal // nil: none was opened or taken over yet
	failed time.Time        // when it could not be opened
	ended  bool             // the broker has stopped: none is opened any more
	all    []*replay        // of every journal that is not empty
	opened chan *journal.Journal
	early  map[journal.Receipt]earlyOutcome
}

// An earlyOutcome is what the store answered about a message after the journal had it.
type earlyOutcome struct {
	id  ident.ID
	err error
}

// mostEarly bounds the early outcomes. The replay asks the store about the others.
const mostEarly = 1 << 16

func newStandby(o Options, p *pulse) *standby {
	return &standby{o: o.Journal, pulse: p, log: o.Log, opened: make(chan *journal.Journal, 1),
		early: map[journal.Receipt]earlyOutcome{}, limbo: map[uint32]int{}}
}

// StoreWentBack forgets what an earlier state of the store is not known to have: outcomes of messages
// that the journal still has. The replay asks the store.
func (p *Submitter) StoreWentBack() {
	if s := p.standby; s.on() {
		s.mu.Lock()
		clear(s.early)
		s.mu.Unlock()
	}
}

// fallbacks are those of a submission.
type fallbacks struct {
	all    []fallback
	budget budget // at its end the journal takes the messages
	direct bool   // they are not submitted to the store
	terms  Terms  // of a submission that asks the store after all
	since  time.Time
	held   bool // they are not, and their bytes are counted
	state  atomic.Int32
}

// The states of fallbacks: the caller and the committer leave in either order.
const (
	together int32 = iota
	ended          // the committer has left
	parted         // the caller has left
)

// end reports whether the caller still waits.
func (f *fallbacks) end() bool { return f.state.CompareAndSwap(together, ended) }

// part reports whether the committer still has messages of the submission.
func (f *fallbacks) part() bool { return f.state.CompareAndSwap(together, parted) }

// on reports whether there may be a journal.
func (s *standby) on() bool { return s != nil && s.o.Open != nil }

// prepare makes the fallbacks of a submission, and returns how long it waits for admission. Where
// the store is late, the messages go to the journal at once. Without room there they ask the store,
// with the patience of a channel without a journal.
func (s *standby) prepare(sub *Submission, t Terms) (patience time.Duration) {
	since := t.Since
	if since.IsZero() {
		since = time.Now()
	}
	or := sub.or
	or.budget = budget{until: since.Add(t.Budget), over: sub.done}
	or.terms, or.since = t, time.Now()
	for i := range sub.writes {
		f := &or.all[i]
		f.standby, f.msg = s, *sub.writes[i].msg
		sub.writes[i].or = f
		or.direct = or.direct || f.msg.Keyed() && s.behind(f.msg.ChannelNo)
	}
	if or.direct = or.direct || s.pulse.late(t.Budget); or.direct {
		if _, err := s.room(or); err != nil {
			or.direct = false
			return t.Patience
		}
	}
	return min(t.Patience, t.Budget)
}

// room returns the journal, if it has room for messages.
func (s *standby) room(f *fallbacks) (*journal.Journal, error) {
	j, err := s.journal()
	if err != nil {
		return nil, err
	}
	var bytes int64
	for i := range f.all {
		bytes += int64(f.all[i].msg.Bytes())
	}
	return j, j.Room(f.all[0].msg.ChannelNo, bytes)
}

// behind reports whether messages of a channel wait in a journal or are held there, or are on their way
// into one.
func (s *standby) behind(channel uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limbo[channel] > 0 || s.own != nil && s.own.Waits(channel) ||
		slices.ContainsFunc(s.all, func(r *replay) bool { return r.held[channel] || r.journal.Waits(channel) })
}

// passing reports whether an outcome says only that the store did not take the message now.
func passing(err error) bool {
	if err == nil || errors.Is(err, problem.ErrChannelPaused) {
		return false
	}
	var p *problem.Problem
	if errors.As(err, &p) {
		return p.Code == problem.ErrOverloaded.Code || p.Code == problem.ErrUnavailable.Code ||
			p.Code == problem.ErrDraining.Code || p.Code == problem.ErrOutcomeUnknown.Code
	}
	return errors.Is(err, durable.ErrOutcomeUnknown) || errors.Is(err, durable.ErrFailed) ||
		errors.Is(err, errWithdrawn) || errors.Is(err, durable.ErrStale) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// WaitOrJournal waits until every message has its outcome, or is in the journal because the store
// took too long or failed. Without a journal, or room in it, it waits for the store.
func (sub *Submission) WaitOrJournal() {
	or := sub.or
	if or == nil {
		sub.Wait()
		return
	}
	if sub.refused == nil {
		waits := &sub.s.standby.waits
		waits.begin(&or.budget)
		sub.waited = <-sub.done
		waits.end(&or.budget)
	}
	if sub.waited && !or.anyPassing() {
		return
	}
	err := sub.journal()
	if err == nil {
		return
	}
	if sub.refused == nil || sub.ask() {
		sub.Wait()
	}
	or.refuse(sub, err)
}

// ask submits messages to the store that waited for admission no longer than the budget, or were not
// submitted, and that the journal does not take. It reports whether they were admitted.
func (sub *Submission) ask() bool {
	or, s := sub.or, sub.s
	s.bytes.Give(sub.key, sub.counted)
	or.held = false
	t := or.terms
	if t.Patience = t.Patience - time.Since(or.since); t.Patience <= 0 || !s.admit(sub.ctx, t, sub.key, len(sub.writes),
		sub.counted) {
		return false
	}
	sub.refused = nil
	sub.commit(t)
	return true
}

// anyPassing reports whether the store did not take a message now, after all have an outcome.
func (f *fallbacks) anyPassing() bool {
	for i := range f.all {
		if passing(f.all[i].err) {
			return true
		}
	}
	return false
}

// refuse gives an outcome to messages that neither the store nor the journal took.
func (f *fallbacks) refuse(sub *Submission, why error) {
	for i := range f.all {
		one := &f.all[i]
		one.mu.Lock()
		if err := one.err; !one.decided && (sub.refused != nil || passing(err) &&
			!errors.Is(err, durable.ErrOutcomeUnknown)) {
			one.decided, one.outcome = true, journalProblem(why, ident.ID{})
		}
		one.leaveLimbo()
		one.mu.Unlock()
	}
}

func (f *fallback) leaveLimbo() {
	if f.inLimbo {
		f.inLimbo = false
		f.standby.count(f.msg.ChannelNo, -1)
	}
}

// count counts messages of a channel in limbo.
func (s *standby) count(channel uint32, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limbo[channel] += n; s.limbo[channel] == 0 {
		delete(s.limbo, channel)
	}
}

// journal puts the messages without a final outcome into the journal. An error means that the
// journal has no room, or cannot be opened or written, and that nothing has changed.
func (sub *Submission) journal() error {
	or := sub.or
	j, err := sub.s.standby.room(or)
	if err != nil {
		return err
	}
	records, index := or.take()
	if len(records) == 0 {
		return nil
	}
	receipts, err := j.Append(records)
	if err != nil && sub.refused != nil && !errors.Is(err, journal.ErrUnsure) {
		or.giveBack(index) // nothing is on disk, and the committer never had them
		return err
	}
	for k, i := range index {
		f := &or.all[i]
		f.mu.Lock()
		f.leaveLimbo()
		f.decided, f.outcome = true, journalProblem(err, records[k].Tried)
		if err == nil {
			f.receipt = receipts[k]
			if f.over {
				f.tell(f.tried)
			}
		}
		f.mu.Unlock()
	}
	return nil
}

// take returns the messages without a final outcome. The committer gives them no ID any more.
func (f *fallbacks) take() (records []journal.Record, index []int) {
	for i := range f.all {
		one := &f.all[i]
		one.mu.Lock()
		if !one.over || passing(one.err) {
			r := journal.Record{Msg: &one.msg, Tried: one.tried}
			if one.over && !errors.Is(one.err, durable.ErrOutcomeUnknown) && !errors.Is(one.err, errWithdrawn) {
				r.Tried = ident.ID{} // the store has none of the IDs
			}
			if one.msg.Keyed() && !one.inLimbo {
				one.enterLimbo()
			}
			one.journalled = true
			records, index = append(records, r), append(index, i)
		}
		one.mu.Unlock()
	}
	return records, index
}

// giveBack undoes take.
func (f *fallbacks) giveBack(index []int) {
	for _, i := range index {
		one := &f.all[i]
		one.mu.Lock()
		one.journalled = false
		one.leaveLimbo()
		one.mu.Unlock()
	}
}

// journalProblem is the answer where the journal did not take a message.
func journalProblem(err error, tried ident.ID) error {
	switch {
	case err == nil:
		return nil
	case !tried.IsZero(), errors.Is(err, journal.ErrUnsure): // the store or the disk may have it
		return problem.ErrOutcomeUnknown.Because(err)
	case errors.Is(err, journal.ErrFull), errors.Is(err, journal.ErrOld):
		return problem.ErrJournalFull.Because(err)
	}
	return problem.ErrJournalFailed.Because(err)
}

// Receipt returns the receipt of message i, if it is in the journal.
func (sub *Submission) Receipt(i int) (r journal.Receipt, ok bool) {
	if sub.or == nil || !sub.or.all[i].decided || sub.or.all[i].outcome != nil {
		return r, false
	}
	return sub.or.all[i].receipt, true
}

// has reports whether a message surely waits in a journal of this broker.
func (s *standby) has(r journal.Receipt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.journal.Has(r) {
			return true
		}
	}
	return s.own != nil && s.own.Has(r)
}

// Lookup reads a receipt, and reports whether its message surely waits in a journal of this broker.
// A text that is no receipt, and any in a broker without a journal, is not ok.
func (s *Submitter) Lookup(text string) (r journal.Receipt, here, ok bool) {
	if !s.standby.on() {
		return r, false, false
	}
	if r, ok = journal.ParseReceipt(text, s.standby.o.Sign); !ok {
		return r, false, false
	}
	return r, s.standby.has(r), true
}

// take makes a journal that was left the one that this broker writes, unless it has one.
func (s *standby) take(j *journal.Journal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		return false
	}
	s.own = j
	return true
}

// reopenAfter is the time for which a journal that cannot be opened is left alone.
const reopenAfter = 2 * time.Second

// journal returns the journal that this broker writes.
func (s *standby) journal() (*journal.Journal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		return s.own, nil
	}
	if s.ended {
		return nil, journal.ErrClosed
	}
	if time.Since(s.failed) < reopenAfter {
		return nil, journal.ErrFailed
	}
	j, err := s.o.Open()
	if err != nil {
		s.failed = time.Now()
		s.log.Error("the journal cannot be opened: channels with ack=journal are refused while the store is slow",
			"error", err)
		return nil, errors.Join(journal.ErrFailed, err)
	}
	s.own = j
	s.opened <- j // of capacity 1, and there is one
	return j, nil
}
