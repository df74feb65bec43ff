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
	no    int   // of the message in it
	err   error // the outcome
	// together is the number of messages in the transaction that has stored it; 0: none has.
	together int
	// accepted: its producer was told that it is taken. The deletion of the producer does not take that
	// back.
	accepted bool
}

func (w *write) finish(err error) {
	w.err = err
	if w.of.gate != nil {
		w.of.gate.Ended(w.no, err)
	}
	w.of.finish(1)
}

// number gives the message an ID, or reports that it may have none any more.
func (w *write) number(ids *ident.Generator) (ok bool) {
	if w.of.gate == nil {
		w.msg.ID = ids.Next()
		return true
	}
	id, ok := w.of.gate.Number(w.no, ids)
	if ok {
		w.msg.ID = id
	}
	return ok
}

func messagesOf(writes []*write) []*durable.Message {
	msgs := make([]*durable.Message, len(writes))
	for i, w := range writes {
		msgs[i] = w.msg
	}
	return msgs
}
