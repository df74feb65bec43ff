package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/ident"
)

// A ledger is what the reconciler knows about one consumer. It lives in memory:
// a broker that starts, or takes a consumer over, begins at the settled mark.
type ledger struct {
	// settled: every message up to it has an outcome or an open_jobs row. Stored.
	settled ident.ID
	// checked: every message up to it was seen in Redis or is over, since Redis
	// last lost state.
	checked ident.ID
	// lost is set when Redis lost state: begin again.
	lost bool
	// levels is not nil while the backlog does not fit the window: one checked
	// mark per priority, so that the highest priority comes first.
	levels map[int]ident.ID
	// spilled is set when a claim was told that jobs are outside the window.
	spilled bool
	// fullAt is the priority at which the last walk found no more room; it means
	// nothing while levels has no marks.
	fullAt int
	// heldAt is when hold began to hold less urgent jobs back, by the store's
	// clock in Unix ms, 0: it does not; heldFor is the highest priority that had
	// jobs outside then.
	heldAt  int64
	heldFor int
	// openFrom is how far the open_jobs rows were offered to Redis in this round;
	// openDone says that the round is over.
	openFrom ident.ID
	openDone bool
}

// restart puts the marks back to what is known without Redis. Loading begins by
// priority: after a loss the most urgent jobs should be the first to be back.
func (l *ledger) restart() {
	l.lost = false
	l.checked = l.settled
	l.levels, l.heldAt = map[int]ident.ID{}, 0
	l.openFrom, l.openDone = ident.ID{}, false
}

// level returns the mark of a priority: a level without one begins where the
// common walk had come to.
func (l *ledger) level(priority int) ident.ID {
	if mark, ok := l.levels[priority]; ok {
		return mark
	}
	return l.checked
}

// rereadMarks takes over, after brokers came or went, how far others have settled
// their consumers since: what they leave to us is then walked from there on, and
// not from where it stood when this process began.
func (r *Reaper) rereadMarks(ctx context.Context) error {
	r.mu.Lock()
	reread := r.reread
	r.reread = false
	r.mu.Unlock()
	if !reread {
		return nil
	}
	err := r.readMarks(ctx)
	if err != nil {
		r.mu.Lock()
		r.reread = true
		r.mu.Unlock()
	}
	return err
}

func (r *Reaper) readMarks(ctx context.Context) error {
	marks, err := r.Store.Watermarks(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for consumer, mark := range marks {
		l := r.ledgers[consumer]
		if l == nil {
			l = &ledger{settled: mark}
			l.restart()
			r.ledgers[consumer] = l
		}
		if mark.Compare(l.settled) > 0 {
			l.settled = mark
		}
	}
	return nil
}

func (r *Reaper) loadMarks(ctx context.Context) bool {
	for {
		err := r.readMarks(ctx)
		if err == nil {
			return true
		}
		r.Log.Warn("settled marks cannot be read; trying again", "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(r.tick()):
		}
	}
}

// forget drops the ledger of a consumer that another broker looks after.
func (r *Reaper) forget(consumer uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.resting, consumer)
	if l := r.ledgers[consumer]; l != nil {
		l.lost = true
	}
}
