package accept

import (
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A write is one message on its way into the store.
type write struct {
	msg   *durable.Message
	until time.Time // deadline for the store's answer
	of    *Submission
	err   error     // the outcome
	or    *fallback // to the journal; nil: the message waits for the store, however long it takes
	// accepted: it comes from the journal, so its producer was answered 202. The deletion of the producer
	// does not take that back.
	accepted bool
}

func (w *write) finish(err error) {
	w.err = err
	if w.or != nil {
		w.or.ended(w, err)
	}
	w.of.finish(1)
}

// number gives the message an ID, or reports that it may have none any more.
func (w *write) number(ids *ident.Generator) bool {
	if w.or != nil {
		return w.or.number(w, ids)
	}
	w.msg.ID = ids.Next()
	return true
}

func messagesOf(writes []*write) []*durable.Message {
	msgs := make([]*durable.Message, len(writes))
	for i, w := range writes {
		msgs[i] = w.msg
	}
	return msgs
}
