package standby

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/hotpath/accept"
)

// pulseLasts is how long the end of a transaction tells how the store is doing. After it one message
// asks the store, and another one each time it has passed again: messages for the journal bring no
// transactions, and a journal that is full or held stores none.
const pulseLasts = time.Second

// A pulse shows how the store is doing, from the transactions of published messages.
type pulse struct {
	began   [accept.Committers + 1]atomic.Int64 // of the transactions under way, ns of the process; 0: none
	took    atomic.Int64                        // of the last transaction, ns
	failing atomic.Bool                         // the last transaction failed
	stored  atomic.Int64                        // the time of the last one that stored a message, ns of the process
	known   atomic.Int64                        // the time of took and failing, or of the last probe, ns of the process
}

// replaying is the place of the replay among the transactions under way.
const replaying = accept.Committers

var start = time.Now()

// Begin records the begin of a transaction.
func (p *pulse) Begin(i int) { p.began[i].Store(int64(time.Since(start)) | 1) }

// End records the end of a transaction with the results of its messages.
func (p *pulse) End(i int, results []error) {
	took := int64(time.Since(start)) - p.began[i].Swap(0)
	stored, failed := false, false
	for _, err := range results {
		if err == nil {
			stored = true
		} else if !errors.Is(err, accept.ErrWithheld) && passing(err) {
			failed = true
		}
	}
	if stored || failed {
		p.took.Store(took)
		p.failing.Store(!stored)
		now := int64(time.Since(start))
		p.known.Store(now)
		if stored {
			p.stored.Store(now)
		}
	}
}

// late reports whether a message that is submitted now will hardly be committed within a budget:
// the store has failed, or a transaction takes that long. Where the store has shown that more than
// pulseLasts ago, one caller gets false: its message is a probe.
func (p *pulse) late(budget time.Duration) bool {
	now := int64(time.Since(start))
	for i := range p.began {
		if b := p.began[i].Load(); b > 0 && now-b >= int64(budget) {
			return true
		}
	}
	if !p.failing.Load() && p.took.Load() < int64(budget) {
		return false
	}
	known := p.known.Load()
	return now-known < int64(pulseLasts) || !p.known.CompareAndSwap(known, now)
}
