package accept

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/journal"
	"github.com/penstock-broker/penstock/internal/problem"
)

const (
	// replayRows and replayBytes bound the messages that are read and stored together.
	replayRows  = 256
	replayBytes = 1 << 20
	// replayPause is the first wait after a failure of the store. It doubles up to replayLongest.
	replayPause, replayLongest = 25 * time.Millisecond, time.Second
	// replayLook is the interval at which a replay looks whether a paused channel is resumed.
	replayLook = 500 * time.Millisecond
	// triedAge is the age from which on an ID can no longer be inserted: the guard refuses it, and
	// a statement that passed the guard before has written its row.
	triedAge = durable.MaxIDAge + 500*time.Millisecond
	// aloneAfter is the number of failed tries after which messages are stored one by one, since one
	// of them may be the reason. hopeless is the number after which such a message is held.
	aloneAfter, hopeless = 5, 20
	poisonedFor          = 10 * time.Second
)

// A ReceiptStore is the part of durable.Store that knows what became of messages of journals.
type ReceiptStore interface {
	StoreReceipts(ctx context.Context, all []durable.Receipt) error
	Receipts(ctx context.Context, ids []durable.ReceiptID) (map[durable.ReceiptID]durable.Receipt, error)
	ConfirmReceipt(ctx context.Context, id durable.ReceiptID) error
}

// A replay stores the messages of one journal, in order, each once.
//
// A message is removed from the journal after its receipt was recorded, and that after the message
// was stored. A crash in between leaves a message that is stored and still in the journal. The next
// replay finds it stored by its identity: its Key, which for a message without one is its receipt.
type replay struct {
	p       *Publisher
	journal *journal.Journal
	log     *slog.Logger

	recheck uint64          // up to this place messages may be over already
	heldAt  uint64          // the first place that is held; 0: none
	held    map[uint32]bool // channels whose messages are held, because they are paused
	looked  time.Time       // for resumed channels
	// poisoned is when a message was held because the store fails for it alone.
	poisoned time.Time

	once            bool // nothing that is held is waited for
	stored, refused int
}

func newReplay(p *Publisher, j *journal.Journal) *replay {
	return &replay{p: p, journal: j, log: p.committer.log, recheck: j.Last(), held: map[uint32]bool{}}
}

// run stores messages until ctx ends, or with untilEmpty until the journal is empty.
func (r *replay) run(ctx context.Context, untilEmpty bool) error {
	for ctx.Err() == nil {
		r.release()
		entries, err := r.journal.Read(replayRows, replayBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			if untilEmpty && (r.heldAt == 0 || r.once) {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-r.journal.More():
			case <-time.After(replayLook):
			}
			continue
		}
		r.store(ctx, entries)
	}
	return nil
}

// release makes held messages due again when their channel is resumed.
func (r *replay) release() {
	if r.heldAt == 0 || time.Since(r.looked) < replayLook {
		return
	}
	r.looked = time.Now()
	again := !r.poisoned.IsZero() && time.Since(r.poisoned) > poisonedFor
	for no := range r.held {
		ch := r.p.catalogue.ChannelByNo(no)
		again = again || ch == nil || !ch.Paused || ch.Deleted
	}
	if again {
		r.recheck = r.journal.Last()
		r.heldAt, r.poisoned = 0, time.Time{}
		clear(r.held)
		r.journal.Rewind()
	}
}

// store stores entries, tries again until each has its fate, and advances the journal.
func (r *replay) store(ctx context.Context, entries []*journal.Entry) {
	all := make([]fate, len(entries))
	for i, e := range entries {
		all[i].Entry = e
	}
	wait := replayPause
	for try := 0; ctx.Err() == nil; try++ {
		r.holdPaused(all)
		err := r.step(ctx, all, try)
		if err == nil && !slices.ContainsFunc(all, func(f fate) bool { return !f.done }) {
			if err = r.record(ctx, all); err == nil {
				r.advance(all)
				return
			}
		}
		if err != nil && try == 0 && ctx.Err() == nil {
			r.log.Debug("the journal waits for the store", "waiting", r.journal.Waiting(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, replayLongest)
		}
	}
}

// step brings entries closer to their fate. An error means that the store failed.
func (r *replay) step(ctx context.Context, all []fate, try int) error {
	ctx, cancel := context.WithTimeout(ctx, r.p.committer.timeout)
	defer cancel()
	if err := r.findKnown(ctx, all); err != nil {
		return err
	}
	if err := r.findTried(ctx, all); err != nil {
		return err
	}
	todo := open(all)
	if try < aloneAfter {
		return r.insert(ctx, todo)
	}
	var failed error
	for _, f := range todo {
		if err := r.insert(ctx, []*fate{f}); err != nil {
			failed = err
			if !r.storeAnswers(ctx) {
				return err
			}
		}
	}
	if failed != nil && try >= hopeless && r.storeAnswers(ctx) {
		r.log.Error("the store fails for a message of the journal; it is held and tried again every ten seconds", "error", failed)
		r.poisoned = time.Now()
		for _, f := range open(all) {
			f.done, f.hold = true, true
		}
	}
	return failed
}

// storeAnswers reports whether the store works, so a failure is that of the message.
func (r *replay) storeAnswers(ctx context.Context) bool {
	return r.p.catalogue.Refresh(ctx) == nil
}

// holdPaused holds the entries of paused channels. Later ones of the channel are held as well, so
// their order stays.
func (r *replay) holdPaused(all []fate) {
	for i := range all {
		f := &all[i]
		if ch := r.p.catalogue.ChannelByNo(f.Msg.ChannelNo); !f.done && (r.held[f.Msg.ChannelNo] || ch != nil && ch.Paused && !ch.Deleted) {
			f.done, f.hold = true, true
			r.held[f.Msg.ChannelNo] = true
		}
	}
}

// insert stores entries under new IDs, in one transaction where the store can.
func (r *replay) insert(ctx context.Context, todo []*fate) error {
	if len(todo) == 0 {
		return nil
	}
	writes := make([]*write, len(todo))
	bytes := int64(0)
	for i, f := range todo {
		m := *f.Msg
		if m.Key == "" {
			m.Key = durable.ReceiptKey(durable.ReceiptID(f.Receipt))
		}
		writes[i] = &write{msg: &m, of: &Submission{ctx: ctx}}
		bytes += int64(m.Bytes())
	}
	p := r.p
	if !p.admit(ctx, Terms{Patience: batchRoom, Lines: true}, int64(len(writes)), bytes) {
		return problem.ErrOverloaded
	}
	c := p.committer
	c.pulse.begin(replaying)
	results := c.insertGuarded(ctx, writes)
	c.pulse.end(replaying, results)
	c.handOver(writes, results)
	p.leave(int64(len(writes)), bytes)
	var failed error
	for i, err := range results {
		switch f := todo[i]; {
		case errors.Is(err, problem.ErrChannelPaused): // holdPaused sees it now, or it is resumed
			failed = err
		case passing(err), errors.Is(err, problem.ErrInternal), err != nil && problem.From(err).Status == 500:
			failed = err
		default:
			f.conclude(r, writes[i].msg.ID, err)
		}
	}
	return failed
}

// record records receipts. A crash before it leaves messages that are stored, and that the next
// replay finds stored.
func (r *replay) record(ctx context.Context, all []fate) error {
	failpoint.At(failpoint.JournalReplayed)
	var fresh []durable.Receipt
	for _, f := range all {
		if !f.known && !f.hold {
			fresh = append(fresh, f.receipt)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.p.committer.timeout)
	defer cancel()
	return r.p.receipts.StoreReceipts(ctx, fresh)
}

// advance removes entries from the journal, except from the first that is held.
func (r *replay) advance(all []fate) {
	for _, f := range all {
		switch {
		case f.hold && r.heldAt == 0:
			r.heldAt = f.Seq
		case f.hold:
		case f.receipt.Message == "":
			r.refused++
		default:
			r.stored++
		}
	}
	last := all[len(all)-1].Seq
	settled := last
	if r.heldAt > 0 {
		settled = r.heldAt - 1
	}
	r.journal.Advance(last, settled, len(all))
}
