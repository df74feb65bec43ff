package push

import (
	"slices"
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// largeFrom is the size from which payloads of deliveries are counted, bytes. The number of
	// slots bounds smaller payloads, which are not counted.
	largeFrom = 64 << 10
	// verifyBytes bounds the payloads that one claim loads from the store.
	verifyBytes = 8 << 20
)

// A largePayloads bounds the bytes of large payloads that deliveries hold. A payload counts from
// its load or its hit in the cache until the consumer has answered. A message that goes to many
// consumers is in memory, and counted, once. A job whose payload finds no room is given back to
// Redis, and its lane waits until bytes are free.
//
// A lane may hold at most as many bytes as it leaves free for others. A consumer that hangs with
// all its payloads therefore holds at most half of the bytes.
type largePayloads struct {
	most int64

	mu    sync.Mutex
	bytes int64
	byID  map[ident.ID]*largeMessage
	short []*lane // lanes without room since the last release of bytes
}

// A largeMessage is held by at least one delivery.
type largeMessage struct {
	msg     *durable.Message
	holders []*lane // of each delivery; the first one is charged
}

// take counts a message for a delivery of the lane. It returns the copy of the message that the
// delivery must hold, or false where there is no room.
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
	if h.bytes > 0 && l.large+n > h.most-h.bytes { // a single message of any size is let through
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

// give undoes take. It returns the lanes that may find room now.
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
			e.holders[0].large += n // the next holder keeps the message in memory and is charged
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
