package standby

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A drainedEntry is an entry of the journal with what became of it.
type drainedEntry struct {
	*journal.Entry
	done    bool // it has a receipt, or is held
	known   bool // its receipt was recorded before
	hold    bool
	checked bool // the store does not have it under the ID that was tried
	receipt durable.Receipt
}

// open returns the entries that are not done.
func open(all []drainedEntry) (todo []*drainedEntry) {
	for i := range all {
		if !all[i].done {
			todo = append(todo, &all[i])
		}
	}
	return todo
}

// findLost ends entries that the disk does not return as they were written. What became of one that the
// journal has elsewhere is told there.
func (r *drain) findLost(all []drainedEntry) {
	for _, f := range open(all) {
		if f.Lost && f.Elsewhere {
			f.done, f.known = true, true
		} else if f.Lost {
			f.done = true
			f.receipt = durable.Receipt{ID: durable.ReceiptID(f.Receipt), Reason: lost}
		}
	}
}

// lost is the reason of the receipt of a message that the journal had and the disk lost.
const lost = "lost"

// findKnown finds entries that were over before this process read them.
func (r *drain) findKnown(ctx context.Context, all []drainedEntry) error {
	var ids []durable.ReceiptID
	for _, f := range open(all) {
		if f.Seq <= r.recheck {
			ids = append(ids, durable.ReceiptID(f.Receipt))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	known, err := r.s.receipts.Receipts(ctx, ids)
	if err != nil {
		return err
	}
	for _, f := range open(all) {
		if got, ok := known[durable.ReceiptID(f.Receipt)]; ok {
			f.done, f.known, f.receipt = true, true, got
		}
	}
	return nil
}

// findTried finds entries that the store has under the ID that was tried when they went into the
// journal. Those with a Key need no look: their Key tells.
func (r *drain) findTried(ctx context.Context, todo []*drainedEntry) error {
	var look []*drainedEntry
	for _, f := range todo {
		if f.done {
			continue
		}
		if f.Tried.IsZero() || f.checked {
			continue
		}
		if early, ok := r.s.takeEarly(f.Receipt); ok {
			f.checked = true
			if early.err == nil {
				f.conclude(r, early.id, nil)
			}
			continue
		}
		if f.Msg.Key != "" {
			f.checked = true
			continue
		}
		look = append(look, f)
	}
	if len(look) == 0 {
		return nil
	}
	for _, f := range look {
		if wait := f.Tried.Millis() + triedAge.Milliseconds() - r.s.node.PastMs(); wait > 0 {
			select {
			case <-time.After(time.Duration(min(wait, triedAge.Milliseconds())) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return r.lookUp(ctx, look)
}

// lookUp asks the store for messages under the IDs that were tried. An insert with an ID that is too
// old stores nothing, and returns nil where the message is stored.
func (r *drain) lookUp(ctx context.Context, look []*drainedEntry) error {
	msgs := make([]*durable.Message, len(look))
	for i, f := range look {
		m := *f.Msg
		m.ID = f.Tried
		msgs[i] = &m
	}
	results, err := r.s.submitter.Again(ctx, msgs)
	if err != nil {
		return err
	}
	for i, err := range results {
		switch f := look[i]; {
		case err == nil:
			if early, ok := r.s.takeEarly(f.Receipt); !ok || early.err != nil { // the committer did not count it
				r.s.submitter.Count(f.Msg)
			}
			f.conclude(r, f.Tried, nil)
		case errors.Is(err, durable.ErrStale), errors.Is(err, durable.ErrRejected):
			f.checked = true
		default:
			return err
		}
	}
	return nil
}

// conclude gives an entry its receipt: id is that of the message unless it was stored before, or
// could not be stored.
func (f *drainedEntry) conclude(r *drain, id ident.ID, err error) {
	f.done = true
	f.receipt = durable.Receipt{ID: durable.ReceiptID(f.Receipt), ChannelNo: f.Msg.ChannelNo}
	var dup *durable.DuplicateError
	switch {
	case err == nil:
	case errors.As(err, &dup):
		id = dup.ID
	default:
		f.receipt.Reason = problem.From(err).Code
		r.log.Warn("a message of the journal cannot be stored", "receipt", f.Receipt.String(), "reason", f.receipt.Reason)
		return
	}
	stored := durable.Message{ID: id, Key: f.Msg.Key}
	f.receipt.Message = stored.PathID()
}
