package push

import (
	"slices"
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// largeFrom is the size from which payloads of deliveries are counted, bytes.
	// Those below it are bounded by the number of slots, and cost nothing here.
	largeFrom = 64 << 10
	// verifyBytes bounds the payloads that one claim loads from the store.
	verifyBytes = 8 << 20
)

// A largePayloads bounds the bytes of large payloads that deliveries hold, from the
// moment they are loaded or taken from the cache until the consumer has answered.
// A message that goes to many consumers is in memory, and counted, once. What
// finds no room is given back to Redis, and its lane waits until there is some.
//
// A lane gets no more than it leaves to others: a consumer that hangs on all that
// it has holds half of the bytes at most.
type largePayloads struct {
	most int64

	mu    sync.Mutex
	bytes int64
	byID  map[ident.ID]*largeMessage
	short []*lane // found no room since the last bytes were given back
}

// A largeMessage is held by at least one delivery.
type largeMessage struct {
	msg     *durable.Message
	holders []*lane // of each delivery; the first one is charged
}

// take counts a message for a delivery of the lane, unless there is no room. It
// returns the copy of the message that the delivery must hold.
func (h *largePayloads) take(l *lane, m *durable.Message) (*durable.Message, bool) {
	n := int64(len(m.Payload))
	if n < largeFrom {
		return m, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byID[m.ID]; e != nil {
		e.holders = append(e.holders, l)
		return e.msg, true
	}
	if h.bytes > 0 && l.large+n > h.most-h.bytes { // alone, the largest message goes through
		if !l.short.Swap(true) {
			h.short = append(h.short, l)
		}
		return nil, false
	}
	if h.byID == nil {
		h.byID = map[ident.ID]*largeMessage{}
	}
	h.byID[m.ID] = &largeMessage{msg: m, holders: []*lane{l}}
	h.bytes += n
	l.large += n
	return m, true
}

// give is the end of take. It returns the lanes that may find room now.
func (h *largePayloads) give(l *lane, m *durable.Message) (woken []*lane) {
	n := int64(len(m.Payload))
	if n < largeFrom {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[m.ID]
	i := slices.Index(e.holders, l)
	e.holders = slices.Delete(e.holders, i, i+1)
	if i == 0 {
		l.large -= n
		if len(e.holders) > 0 {
			e.holders[0].large += n // it is the one that keeps the message in memory
			return nil
		}
	}
	if len(e.holders) > 0 {
		return nil
	}
	delete(h.byID, m.ID)
	h.bytes -= n
	woken, h.short = h.short, nil
	for _, s := range woken {
		s.short.Store(false)
	}
	return woken
}

// room returns how many bytes the lane may load now.
func (h *largePayloads) room(l *lane) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes == 0 {
		return verifyBytes
	}
	return int(min(verifyBytes, max(largeFrom, h.most-h.bytes-l.large)))
}
