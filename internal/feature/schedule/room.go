package schedule

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/quota"
)

// A message of a recurrence is one more that its producer stores. Where the producer stores as much as
// it may, the message waits: its time is moved, in the store, so every broker leaves it alone until
// then. A schedule of one message had its room when it was accepted.

const (
	// fullAgain is how much later a message that found no room is tried again.
	fullAgain = 10 * time.Second
	// fullTold is the interval of the log lines about one producer, fullKnown the number of producers
	// that are remembered for that.
	fullTold, fullKnown = time.Minute, 1000
)

// takeRoom takes room for the messages of recurrences. Those that have none are postponed; rest are
// the others, with what they took. A crash before the messages are stored gives it back.
func (m *Mover) takeRoom(ctx context.Context, found []*durable.Scheduled, nowMs int64) (rest []*durable.Scheduled,
	taken []quota.Taken, err error) {
	var full []ident.ID
	for _, s := range found {
		var room quota.Taken
		if s.Recurrence != "" {
			if room, err = m.Quota.Take(s.ProducerNo, s.Kept(), 0, 0); err != nil {
				full = append(full, s.ID)
				m.tellFull(s.ProducerNo)
				continue
			}
		}
		rest, taken = append(rest, s), append(taken, room)
	}
	if len(full) == 0 {
		return rest, taken, nil
	}
	m.postponed.Add(float64(len(full)))
	return rest, taken, m.Store.PostponeScheduled(ctx, full, nowMs, nowMs+fullAgain.Milliseconds())
}

// tellFull logs that messages of a producer wait, once in a while.
func (m *Mover) tellFull(producerNo uint32) {
	if !m.tells(producerNo) {
		return
	}
	id := ""
	if p := m.Catalogue.ProducerByNo(producerNo); p != nil {
		id = p.ID
	}
	m.Log.Warn("messages of recurrences wait: their producer stores as much as it may", "producer", id, "code",
		quota.ErrFull.Code)
}

// tells reports whether a line about a producer may be logged again.
func (m *Mover) tells(producerNo uint32) bool {
	if time.Since(m.told[producerNo]) < fullTold {
		return false
	}
	if len(m.told) >= fullKnown {
		clear(m.told)
	}
	m.told[producerNo] = time.Now()
	return true
}

// tookIn tells the quota what became of messages.
func tookIn(taken []quota.Taken, msgs []*durable.Message, errs []error) {
	for i, m := range msgs {
		kept := int64(0)
		if errs[i] == nil {
			kept = m.Kept()
		}
		taken[i].Messages(m.ChannelNo, m.ID, kept)
	}
}

// publish publishes messages. One of a recurrence whose ID belongs to another message is published
// without it.
func (m *Mover) publish(ctx context.Context, msgs []*durable.Message) []error {
	errs := m.Publish(ctx, msgs)
	var which []int
	var anew []*durable.Message
	for i, e := range errs {
		if errors.Is(e, durable.ErrConflict) && msgs[i].Key != "" {
			msgs[i].Key = ""
			which, anew = append(which, i), append(anew, msgs[i])
		}
	}
	if len(anew) == 0 {
		return errs
	}
	for i, e := range m.Publish(ctx, anew) {
		errs[which[i]] = e
	}
	return errs
}
