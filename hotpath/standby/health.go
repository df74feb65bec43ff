package standby

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/hotpath/accept"
)

// healthLasts is how long the end of a transaction tells how the store is doing. After it one message
// asks the store, and another one each time it has passed again: messages for the journal bring no
// transactions, and a journal that is full or held stores none.
const healthLasts = time.Second

// A storeHealth shows how the store is doing, from the transactions of published messages.
type storeHealth struct {
	began   [accept.Committers + 1]atomic.Int64 // of the transactions under way, ns of the process; 0: none
	took    atomic.Int64                        // of the last transaction, ns
	failing atomic.Bool                         // the last transaction failed
	stored  atomic.Int64                        // the time of the last one that stored a message, ns of the process
	known   atomic.Int64                        // the time of took and failing, or of the last probe, ns of the process
}

// draining is the place of the drain among the transactions under way.
const draining = accept.Committers

var start = time.Now()

// Begin records the begin of a transaction.
func (h *storeHealth) Begin(i int) { h.began[i].Store(int64(time.Since(start)) | 1) }

// End records the end of a transaction with the results of its messages.
func (h *storeHealth) End(i int, results []error) {
	took := int64(time.Since(start)) - h.began[i].Swap(0)
	stored, failed := false, false
	for _, err := range results {
		if err == nil {
			stored = true
		} else if !errors.Is(err, accept.ErrWithheld) && passing(err) {
			failed = true
		}
	}
	if stored || failed {
		h.took.Store(took)
		h.failing.Store(!stored)
		now := int64(time.Since(start))
		h.known.Store(now)
		if stored {
			h.stored.Store(now)
		}
	}
}

// late reports whether a message that is submitted now will hardly be committed within a budget:
// the store has failed, or a transaction takes that long. Where the store has shown that more than
// healthLasts ago, one caller gets false: its message is a probe.
func (h *storeHealth) late(budget time.Duration) bool {
	now := int64(time.Since(start))
	for i := range h.began {
		if b := h.began[i].Load(); b > 0 && now-b >= int64(budget) {
			return true
		}
	}
	if !h.failing.Load() && h.took.Load() < int64(budget) {
		return false
	}
	known := h.known.Load()
	return now-known < int64(healthLasts) || !h.known.CompareAndSwap(known, now)
}
