package standby

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A Submission is messages on their way into the store or the journal. Call Wait, then Outcome and
// Receipt, then Release. It is the gate between its messages and the store.
type Submission struct {
	s      *Standby
	ctx    context.Context
	terms  accept.Terms
	since  time.Time
	key    share.Key // of the producer of the first message
	bytes  int64
	all    []fallback
	single [1]fallback // the memory of all, of one message
	budget budget      // at its end the journal takes the messages
	over   chan bool   // has a value then
	store  *accept.Submission
	held   bool // the store was not asked, and the bytes are counted
}

// Submit hands messages over: to the store for as long as the budget lasts, then to the journal. Where
// the store is late, they go to the journal at once. Without room there they ask the store, with the
// patience of a channel without a journal. Terms count no bytes of the messages: their memory may
// outlive the request.
func (s *Standby) Submit(ctx context.Context, t accept.Terms, budget time.Duration,
	msgs []*durable.Message) *Submission {
	sub := s.submission(ctx, t, budget, msgs)
	if patience, direct := sub.plan(budget); !direct {
		sub.submit(patience)
	}
	if sub.store == nil { // the messages may still go to the journal, if there is memory for them
		sub.held = s.bytes.Take(sub.key, sub.bytes)
	}
	return sub
}

func (s *Standby) submission(ctx context.Context, t accept.Terms, budget time.Duration,
	msgs []*durable.Message) *Submission {
	sub := &Submission{s: s, ctx: request.Keep(ctx), terms: t, since: time.Now(), key: share.Producer(msgs[0].ProducerNo),
		over: make(chan bool, 1)}
	if sub.all = sub.single[:]; len(msgs) > 1 {
		sub.all = make([]fallback, len(msgs))
	}
	since := t.Since
	if since.IsZero() {
		since = sub.since
	}
	sub.budget.until, sub.budget.over = since.Add(budget), sub.over
	for i, m := range msgs {
		f := &sub.all[i]
		f.standby, f.own, f.msg = s, m, *m
		sub.bytes += int64(m.Bytes())
	}
	return sub
}

// plan returns how long the messages may wait for admission, or that they go to the journal at once.
func (sub *Submission) plan(budget time.Duration) (patience time.Duration, direct bool) {
	for i := range sub.all {
		m := &sub.all[i].msg
		direct = direct || m.Keyed() && sub.s.behind(m.ChannelNo)
	}
	if direct = direct || sub.s.health.late(budget); direct {
		if _, err := sub.room(); err != nil {
			return sub.terms.Patience, false
		}
	}
	return min(sub.terms.Patience, budget), direct
}

// submit asks the store, and reports whether the messages were admitted.
func (sub *Submission) submit(patience time.Duration) bool {
	t := sub.terms
	t.Patience, t.Gate = patience, sub
	msgs := make([]*durable.Message, len(sub.all))
	for i := range sub.all {
		msgs[i] = sub.all[i].own
	}
	asked := sub.s.submitter.Submit(sub.ctx, t, msgs...)
	if !asked.Admitted() {
		asked.Release()
		return false
	}
	sub.store = asked
	return true
}

// room returns the journal, if it has room for the messages.
func (sub *Submission) room() (*journal.Journal, error) {
	j, err := sub.s.journal()
	if err != nil {
		return nil, err
	}
	return j, j.Room(sub.all[0].msg.ChannelNo, sub.bytes)
}

// Number and Ended are those of a gate.
func (sub *Submission) Number(i int, ids *ident.Generator) (ident.ID, bool) {
	return sub.all[i].number(ids)
}

// Ended is told what the store has made of a message.
func (sub *Submission) Ended(i int, err error) { sub.all[i].ended(err) }

// Wait waits until every message has its answer, or is in the journal because the store took too long
// or failed. Without room in the journal it waits for the store.
func (sub *Submission) Wait() {
	stored := false
	switch {
	case sub.store != nil:
		waits := &sub.s.waits
		waits.begin(&sub.budget)
		stored = sub.store.WaitOr(sub.over)
		waits.end(&sub.budget)
	case !sub.held: // neither has room
		return
	}
	if stored && !sub.anyPassing() {
		return
	}
	err := sub.journal()
	if err == nil {
		return
	}
	if sub.store != nil || sub.ask() {
		sub.store.Wait()
	}
	sub.refuse(err)
}

// ask submits messages to the store that waited for admission no longer than the budget, or were not
// submitted, and that the journal does not take. It reports whether they were admitted.
func (sub *Submission) ask() bool {
	sub.s.bytes.Give(sub.key, sub.bytes)
	sub.held = false
	patience := sub.terms.Patience - time.Since(sub.since)
	return patience > 0 && sub.submit(patience)
}

// anyPassing reports whether the store did not take a message now, after all have an answer.
func (sub *Submission) anyPassing() bool {
	for i := range sub.all {
		if passing(sub.all[i].err) {
			return true
		}
	}
	return false
}

// refuse gives an answer to messages that neither the store nor the journal took.
func (sub *Submission) refuse(why error) {
	for i := range sub.all {
		one := &sub.all[i]
		one.mu.Lock()
		if err := one.err; !one.decided && (sub.store == nil || passing(err) &&
			!errors.Is(err, durable.ErrOutcomeUnknown)) {
			one.decided, one.answer = true, journalProblem(why, ident.ID{})
		}
		one.leaveLimbo()
		one.mu.Unlock()
	}
}

// journal puts the messages without a final answer into the journal. An error means that the
// journal has no room, or cannot be opened or written, and that nothing has changed.
func (sub *Submission) journal() error {
	j, err := sub.room()
	if err != nil {
		return err
	}
	records, index := sub.take()
	if len(records) == 0 {
		return nil
	}
	named := &sub.s.names
	for _, r := range records {
		named.add(r.Msg.ChannelNo, r.Msg.Key) // before a drain can settle it
	}
	receipts, err := j.Append(records)
	if err != nil {
		for _, r := range records {
			named.remove(r.Msg.ChannelNo, r.Msg.Key)
		}
	}
	if err != nil && sub.store == nil && !errors.Is(err, journal.ErrUnsure) {
		sub.giveBack(index) // nothing is on disk, and the committer never had them
		return err
	}
	for k, i := range index {
		f := &sub.all[i]
		f.mu.Lock()
		f.leaveLimbo()
		f.decided, f.answer = true, journalProblem(err, records[k].Tried)
		if err == nil {
			f.receipt = receipts[k]
			if f.over {
				f.tell()
			}
		}
		f.mu.Unlock()
	}
	return nil
}

// take returns the messages without a final answer. The committer gives them no ID any more.
func (sub *Submission) take() (records []journal.Record, index []int) {
	for i := range sub.all {
		one := &sub.all[i]
		one.mu.Lock()
		if !one.over || passing(one.err) {
			r := journal.Record{Msg: &one.msg, Tried: one.tried}
			if one.over && !errors.Is(one.err, durable.ErrOutcomeUnknown) && !errors.Is(one.err, accept.ErrWithheld) {
				r.Tried = ident.ID{} // the store has none of the IDs
			}
			if one.msg.Keyed() && !one.entering {
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
func (sub *Submission) giveBack(index []int) {
	for _, i := range index {
		one := &sub.all[i]
		one.mu.Lock()
		one.journalled = false
		one.leaveLimbo()
		one.mu.Unlock()
	}
}

// Outcome is what became of message i: nil where it is on disk, in the store or in the journal.
// durable.ErrOutcomeUnknown means that it may be; any other error means that it is nowhere.
func (sub *Submission) Outcome(i int) error {
	switch {
	case sub.all[i].decided:
		return sub.all[i].answer
	case sub.store == nil:
		return problem.ErrOverloaded
	}
	return sub.store.Outcome(i)
}

// Receipt returns the receipt of message i, if it is in the journal.
func (sub *Submission) Receipt(i int) (r journal.Receipt, ok bool) {
	if !sub.all[i].decided || sub.all[i].answer != nil {
		return r, false
	}
	return sub.all[i].receipt, true
}

// Release gives the room of the messages back. Those that the journal has, and the store may have, keep
// their room until the store has answered.
func (sub *Submission) Release() {
	if sub.held {
		sub.s.bytes.Give(sub.key, sub.bytes)
	}
	if sub.store != nil {
		sub.store.Release()
	}
}

// passing reports whether an answer says only that the store did not take the message now.
func passing(err error) bool {
	if err == nil || problem.Paused(err) {
		return false
	}
	var p *problem.Problem
	if errors.As(err, &p) {
		return p.Code == problem.ErrOverloaded.Code || p.Code == problem.ErrUnavailable.Code ||
			p.Code == problem.ErrDraining.Code || p.Code == problem.ErrOutcomeUnknown.Code
	}
	return errors.Is(err, durable.ErrOutcomeUnknown) || errors.Is(err, durable.ErrFailed) ||
		errors.Is(err, accept.ErrWithheld) || errors.Is(err, durable.ErrStale) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
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
