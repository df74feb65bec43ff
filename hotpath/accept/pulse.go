package accept

import (
	"errors"
	"sync/atomic"
	"time"
)

// A pulse shows how the store is doing, from the transactions of published messages.
type pulse struct {
	began   [committers + 1]atomic.Int64 // of the transactions under way, ns of the process; 0: none
	took    atomic.Int64                 // of the last transaction, ns
	failing atomic.Bool                  // the last transaction failed
}

// replaying is the place of the replay among the transactions under way.
const replaying = committers

var start = time.Now()

func (p *pulse) begin(i int) { p.began[i].Store(int64(time.Since(start)) | 1) }

// end records the end of a transaction with the results of its messages.
func (p *pulse) end(i int, results []error) {
	took := int64(time.Since(start)) - p.began[i].Swap(0)
	stored, failed := false, false
	for _, err := range results {
		if err == nil {
			stored = true
		} else if !errors.Is(err, errWithdrawn) && passing(err) {
			failed = true
		}
	}
	if stored || failed {
		p.took.Store(took)
		p.failing.Store(!stored)
	}
}

// late reports whether a message that is submitted now will hardly be committed within a budget:
// the store has failed, or a transaction takes that long. While it does, the replay of the journal
// tries the store, so this ends by itself.
func (p *pulse) late(budget time.Duration) bool {
	if p.failing.Load() || p.took.Load() >= int64(budget) {
		return true
	}
	now := int64(time.Since(start))
	for i := range p.began {
		if b := p.began[i].Load(); b > 0 && now-b >= int64(budget) {
			return true
		}
	}
	return false
}
