package standby

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// drainRows and drainBytes bound the messages that are read and stored together.
	drainRows  = 256
	drainBytes = 1 << 20
	// drainPause is the first wait after a failure of the store. It doubles up to drainLongest.
	drainPause, drainLongest = 25 * time.Millisecond, time.Second
	// drainLook is the interval at which a drain looks whether a paused channel is resumed.
	drainLook = 500 * time.Millisecond
	// triedAge is the age from which on an ID can no longer be inserted: the guard refuses it, and
	// a statement that passed the guard before has written its row.
	triedAge = durable.MaxIDAge + 500*time.Millisecond
	// aloneAfter is the number of failed tries after which messages are stored one by one, since one
	// of them may be the reason. Such a message is held after suspicious tries where the store has
	// taken another one meanwhile, and after hopeless tries where it only answers.
	aloneAfter, suspicious, hopeless = 5, 7, 20
	// poisonedFor is the first time for which such a message is held. It doubles up to
	// poisonedLongest.
	poisonedFor, poisonedLongest = 10 * time.Second, time.Minute
)

// A drain stores the messages of one journal, in order, each once.
//
// A message is removed from the journal after its receipt was recorded, and that after the message
// was stored. A crash in between leaves a message that is stored and still in the journal. The next
// drain finds it stored by its identity: its Key, which for a message without one is its receipt.
type drain struct {
	s       *Standby
	journal *journal.Journal
	log     *slog.Logger
	left    bool // by another broker, and not the one that this broker writes
	begun   bool // guarded by the mutex of the standby

	recheck uint64 // up to this place messages may be over already
	// channels whose messages are held, because they are paused; written under the mutex of the standby
	held   map[uint32]bool
	looked time.Time     // for channels whose messages are due again
	began  time.Duration // when the entries at hand were read, of the process
	seen   durable.Clock // the store's at that time
	alone  bool          // one of them is stored alone
	// poisoned are messages that are held because the store fails for them alone.
	poisoned map[journal.Receipt]*poison

	once                  bool // nothing that is held is waited for
	stored, refused, lost int
}

// A poison is a message for which the store fails alone.
type poison struct {
	channel uint32
	due     time.Time
	wait    time.Duration
}

func newDrain(s *Standby, j *journal.Journal) *drain {
	return &drain{s: s, journal: j, log: s.log, recheck: j.Last(), held: map[uint32]bool{},
		poisoned: map[journal.Receipt]*poison{}}
}

// run stores messages until ctx ends, or with untilEmpty until the journal is empty.
func (r *drain) run(ctx context.Context, untilEmpty bool) error {
	for ctx.Err() == nil {
		r.release()
		entries, err := r.journal.Read(drainRows, drainBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			if untilEmpty && (r.once || r.journal.State().Held == 0) {
				return nil
			}
			r.journal.Move()
			select {
			case <-ctx.Done():
			case <-r.journal.More():
			case <-time.After(drainLook):
			}
			continue
		}
		r.store(ctx, entries)
		r.journal.Move()
	}
	return nil
}

// release makes held messages due again: those of a channel that is resumed, and those for which the
// store has failed.
func (r *drain) release() {
	if len(r.held)+len(r.poisoned) == 0 || time.Since(r.looked) < drainLook {
		return
	}
	r.looked = time.Now()
	for no := range r.held {
		if !r.paused(no) {
			r.again(no)
			r.keepHeld(no, false)
		}
	}
	for _, p := range r.poisoned {
		if !r.held[p.channel] && r.looked.After(p.due) {
			p.due = r.looked.Add(p.wait)
			r.again(p.channel)
		}
	}
}

func (r *drain) again(channel uint32) {
	r.recheck = r.journal.Last()
	r.journal.Release(channel)
}

func (r *drain) paused(channel uint32) bool {
	ch := r.s.catalogue.ChannelByNo(channel)
	return ch != nil && ch.Closed() && !ch.Deleted
}

// store stores entries, tries again until each is done, and advances the journal.
func (r *drain) store(ctx context.Context, entries []*journal.Entry) {
	all := make([]drainedEntry, len(entries))
	for i, e := range entries {
		all[i].Entry = e
		if !e.Lost {
			r.s.names.add(e.Msg.ChannelNo, e.Msg.Key)
		}
	}
	r.began, r.seen = time.Since(start), r.s.node.Clock()
	wait := drainPause
	for try := 0; ctx.Err() == nil; try++ {
		r.holdPaused(all)
		err := r.step(ctx, all, try)
		if err == nil && !slices.ContainsFunc(all, func(f drainedEntry) bool { return !f.done }) {
			if err = r.record(ctx, all); err == nil {
				r.advance(all)
				return
			}
			if errors.Is(err, durable.ErrStale) {
				r.storeAgain(ctx, all)
			}
		}
		if err != nil && try == 0 && ctx.Err() == nil {
			r.log.Debug("the journal waits for the store", "waiting", r.journal.Waiting(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, drainLongest)
		}
	}
}

// storeAgain forgets what became of entries: the store went back to an earlier state since, which may
// not have them. The journal still does.
func (r *drain) storeAgain(ctx context.Context, all []drainedEntry) {
	r.log.Warn("the store went back to an earlier state while messages of the journal were stored; they are stored again",
		"folder", r.journal.Dir(), "messages", len(all))
	for i := range all {
		all[i] = drainedEntry{Entry: all[i].Entry}
	}
	r.recheck = r.journal.Last()
	_ = r.s.node.Renew(ctx) // else the node notices within a second
	r.began, r.seen = time.Since(start), r.s.node.Clock()
}

// step brings entries closer to their end. An error means that the store failed.
func (r *drain) step(ctx context.Context, all []drainedEntry, try int) error {
	ctx, cancel := context.WithTimeout(ctx, accept.Within)
	defer cancel()
	if err := r.findKnown(ctx, all); err != nil {
		return err
	}
	r.findLost(all)
	together, alone := open(all), []*drainedEntry(nil)
	if try >= aloneAfter {
		together, alone = nil, together
	} else if len(r.poisoned) > 0 {
		together = slices.DeleteFunc(together, func(f *drainedEntry) bool {
			if r.poisoned[f.Receipt] != nil {
				alone = append(alone, f)
			}
			return r.poisoned[f.Receipt] != nil
		})
	}
	if err := r.storeAll(ctx, together); err != nil {
		return err
	}
	return r.storeAlone(ctx, alone, try)
}

// storeAll stores entries that the store does not have.
func (r *drain) storeAll(ctx context.Context, todo []*drainedEntry) error {
	if err := r.findTried(ctx, todo); err != nil {
		return err
	}
	return r.insert(ctx, slices.DeleteFunc(todo, func(f *drainedEntry) bool { return f.done }))
}

// storeAlone stores entries one by one, so that one for which the store fails keeps no other. It is
// held: at once if that is known of it.
func (r *drain) storeAlone(ctx context.Context, todo []*drainedEntry, try int) (failed error) {
	r.alone = true
	defer func() { r.alone = false }()
	for _, f := range todo {
		err := r.storeAll(ctx, []*drainedEntry{f})
		if err == nil {
			delete(r.poisoned, f.Receipt)
			continue
		}
		if !r.storeAnswers(ctx) {
			return err
		}
		if r.poisoned[f.Receipt] == nil && try < hopeless && !(try >= suspicious && r.takesOthers(err)) {
			failed = err
			continue
		}
		r.poison(f, err)
	}
	return failed
}

// takesOthers reports whether a failure is that of one message: the store has taken another one
// since, and the message was not refused because the broker or the store is slow.
func (r *drain) takesOthers(err error) bool {
	slow := errors.Is(err, problem.ErrOverloaded) || errors.Is(err, durable.ErrStale) ||
		errors.Is(err, durable.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
	return !slow && r.s.health.stored.Load() > int64(r.began)
}

// poison holds an entry for which the store fails.
func (r *drain) poison(f *drainedEntry, err error) {
	p := r.poisoned[f.Receipt]
	if p == nil {
		p = &poison{channel: f.Msg.ChannelNo, wait: poisonedFor}
		r.poisoned[f.Receipt] = p
		r.log.Error("the store fails for a message of the journal; it is held and tried again", "receipt", f.Receipt.String(),
			"error", err)
	} else {
		p.wait = min(2*p.wait, poisonedLongest)
	}
	p.due = time.Now().Add(p.wait)
	f.done, f.hold = true, true
}

// storeAnswers reports whether the store works, so a failure is that of the message.
func (r *drain) storeAnswers(ctx context.Context) bool {
	return r.s.catalogue.Refresh(ctx) == nil
}

// holdPaused holds the entries of paused channels. Later ones of the channel are held as well, so
// their order stays.
func (r *drain) holdPaused(all []drainedEntry) {
	for i := range all {
		f := &all[i]
		if !f.done && !f.Lost && (r.held[f.Msg.ChannelNo] || r.paused(f.Msg.ChannelNo)) {
			f.done, f.hold = true, true
			r.keepHeld(f.Msg.ChannelNo, true)
		}
	}
}

// keepHeld says whether messages of a channel are held. Until they are due again, those with an
// ordering key that come after its resumption are behind them.
func (r *drain) keepHeld(channel uint32, held bool) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if held {
		r.held[channel] = true
	} else {
		delete(r.held, channel)
	}
}

// insert stores entries under new IDs, in one transaction where the store can.
func (r *drain) insert(ctx context.Context, todo []*drainedEntry) error {
	if len(todo) == 0 {
		return nil
	}
	msgs := make([]*durable.Message, len(todo))
	bytes := int64(0)
	for i, f := range todo {
		m := *f.Msg
		if m.Key == "" {
			m.Key = durable.ReceiptKey(durable.ReceiptID(f.Receipt))
		}
		msgs[i] = &m
		bytes += int64(m.Bytes())
	}
	store, health := r.s.submitter, r.s.health
	if !store.Admit(ctx, accept.Terms{Patience: accept.LinePatience, Lines: true}, share.Broker, len(msgs), bytes) {
		return problem.ErrOverloaded
	}
	health.Begin(draining)
	results := store.StoreAccepted(ctx, msgs)
	shown := results
	if r.alone && results[0] != nil { // it says nothing of other messages
		shown = nil
	}
	health.End(draining, shown)
	store.Leave(share.Broker, len(msgs), bytes)
	var failed error
	for i, err := range results {
		switch f := todo[i]; {
		case problem.Paused(err): // holdPaused sees it now, or it is resumed
			failed = err
		case passing(err), errors.Is(err, problem.ErrInternal), err != nil && problem.From(err).Status == 500:
			failed = err
		default:
			f.conclude(r, msgs[i].ID, err)
		}
	}
	return failed
}

// record records receipts. A crash before it leaves messages that are stored, and that the next
// drain finds stored.
func (r *drain) record(ctx context.Context, all []drainedEntry) error {
	failpoint.At(failpoint.JournalReplayed)
	if !slices.ContainsFunc(all, func(f drainedEntry) bool { return !f.hold }) {
		return nil
	}
	var fresh []durable.Receipt
	gone := 0
	for _, f := range all {
		if !f.known && !f.hold {
			fresh = append(fresh, f.receipt)
			if f.Lost {
				gone++
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, accept.Within)
	defer cancel()
	if err := r.s.receipts.StoreReceipts(ctx, r.seen, fresh); err != nil || gone == 0 {
		return err
	}
	r.s.metrics.JournalLost.Add(float64(gone))
	r.log.Error("messages of the journal are lost unless their producers send them again: the disk returns other bytes "+
		"than were written",
		"folder", r.journal.Dir(), "messages", gone)
	return nil
}

// advance removes entries from the journal, except those that are held.
func (r *drain) advance(all []drainedEntry) {
	entries := make([]*journal.Entry, len(all))
	for i, f := range all {
		entries[i] = f.Entry
		switch f.Held = f.hold; {
		case f.hold, f.Elsewhere:
		case f.receipt.Reason == lost:
			r.lost++
		case f.receipt.Message == "":
			r.refused++
		default:
			r.stored++
		}
		if !f.hold {
			delete(r.poisoned, f.Receipt)
		}
		if !f.hold && !f.Lost {
			r.s.names.remove(f.Msg.ChannelNo, f.Msg.Key)
		}
	}
	r.journal.Settle(entries)
}
