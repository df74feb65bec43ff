package reaper

import (
	"github.com/penstock-broker/penstock/ident"
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
