package standby

import (
	"errors"
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A fallback is the way into the journal of one message under way. It decides whether the committer or
// the journal stores the message: as long as it is not journalled the committer may give it IDs. From
// then on it gets none, so the store has the message under the last of them or not at all, and the
// journal knows which.
type fallback struct {
	standby *Standby
	own     *durable.Message // of the committer, which changes it
	msg     durable.Message  // as it was submitted

	mu         sync.Mutex
	tried      ident.ID // the last ID
	over       bool     // it has an answer of the store
	err        error
	journalled bool
	entering   bool
	receipt    journal.Receipt // once it is in the journal

	decided bool  // of the caller: the answer is this one, not that of the store
	answer  error // nil: it is in the journal
}

// number is the ID of a gate. A message with an ordering key is not stored while earlier ones may wait
// in the journal.
func (f *fallback) number(ids *ident.Generator) (id ident.ID, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.journalled || f.msg.Keyed() && f.standby.behind(f.msg.ChannelNo) {
		return id, false
	}
	f.tried = ids.Next()
	return f.tried, true
}

// ended records the answer of the store.
func (f *fallback) ended(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over, f.err = true, err
	switch {
	case !f.journalled && f.msg.Keyed() && passing(err):
		f.enterLimbo()
	case f.receipt != (journal.Receipt{}):
		f.tell()
	}
}

func (f *fallback) enterLimbo() {
	f.entering = true
	f.standby.count(f.msg.ChannelNo, 1)
}

func (f *fallback) leaveLimbo() {
	if f.entering {
		f.entering = false
		f.standby.count(f.msg.ChannelNo, -1)
	}
}

// tell reports an answer that came after the message was in the journal.
func (f *fallback) tell() {
	if errors.Is(f.err, durable.ErrOutcomeUnknown) {
		return // the drain asks the store
	}
	s := f.standby
	s.mu.Lock()
	if len(s.early) < mostEarly {
		s.early[f.receipt] = earlyAnswer{f.tried, f.err}
	}
	s.mu.Unlock()
}
