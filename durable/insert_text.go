package durable

import (
	"sync"
	"unsafe"
)

// A builder assembles hot statements of MySQL in a buffer that is used again.
type builder struct{ b []byte }

// Buffers above this size are left to the garbage collector: one batch of large
// messages must not keep memory for ever.
const maxPooledBytes = 4 << 20

var builders = sync.Pool{New: func() any { return &builder{b: make([]byte, 0, 64<<10)} }}

func newBuilder() *builder { return builders.Get().(*builder) }

// release gives the buffer back. No text of it may be in use.
func (w *builder) release() {
	if cap(w.b) <= maxPooledBytes {
		w.b = w.b[:0]
		builders.Put(w)
	}
}

// text returns the statement without copying it: valid until the builder is
// changed or released. The driver copies it into its own buffer before it
// returns, and keeps nothing.
func (w *builder) text() string { return unsafe.String(unsafe.SliceData(w.b), len(w.b)) }

// messages builds the insert of sorted entries. The first row of each channel
// (and of each audience, should a batch disagree with itself) carries the guard:
// its audience is read from the channel if everything the batch was built from
// still holds, and else NULL, which the server refuses with error 1048 for the
// whole statement. SYSDATE, not NOW: NOW stands still from the arrival of the
// statement, SYSDATE counts a wait before the row is written.
func (w *builder) messages(node NodeLease, part []entry) string {
	b := append(w.b[:0], `INSERT INTO messages (channel_no, id, producer_no, priority, audience, msg_key, content_type, headers, payload) VALUES `...)
	for i, e := range part {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ',')
		b = appendUint(b, uint64(e.ProducerNo))
		b = append(b, ',')
		b = appendInt(b, int64(e.Priority))
		b = append(b, ',')
		if i == 0 || part[i-1].ChannelNo != e.ChannelNo || part[i-1].Audience != e.Audience {
			b = appendGuard(b, node, e)
		} else {
			b = appendInt(b, int64(e.Audience))
		}
		b = append(b, ',')
		b = appendBytes(b, unsafe.Slice(unsafe.StringData(e.Key), len(e.Key)))
		b = append(b, ',')
		b = appendBytes(b, unsafe.Slice(unsafe.StringData(e.ContentType), len(e.ContentType)))
		b = append(b, ',')
		b = appendBytes(b, e.Headers)
		b = append(b, ',')
		b = appendBytes(b, e.Payload)
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

func appendGuard(b []byte, node NodeLease, e entry) []byte {
	b = append(b, `(SELECT c.audience FROM channels c JOIN nodes n ON n.no = `...)
	b = appendUint(b, uint64(node.No))
	b = append(b, ` WHERE c.no = `...)
	b = appendUint(b, uint64(e.ChannelNo))
	b = append(b, ` AND c.audience = `...)
	b = appendInt(b, int64(e.Audience))
	b = append(b, ` AND n.token = `...)
	b = appendHex(b, node.Token[:])
	b = append(b, ` AND n.expires_ms > UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AND `...)
	b = appendInt(b, e.ID.Millis()+MaxIDAge.Milliseconds())
	return append(b, ` >= UNIX_TIMESTAMP(SYSDATE(3)) * 1000)`...)
}

// keys builds the insert of the producers' message IDs. Entries are sorted by
// channel and key.
func (w *builder) keys(part []entry) string {
	b := append(w.b[:0], `INSERT INTO message_keys (channel_no, msg_key, id) VALUES `...)
	for i, e := range part {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendBytes(b, unsafe.Slice(unsafe.StringData(e.Key), len(e.Key)))
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

// prioritised builds the insert of the index of prioritised messages. Entries
// are sorted by its key.
func (w *builder) prioritised(part []entry) string {
	b := append(w.b[:0], `INSERT INTO prioritised (channel_no, inv_priority, id, audience) VALUES `...)
	for i, e := range part {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendInt(b, int64(maxPriority-e.Priority))
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ',')
		b = appendInt(b, int64(e.Audience))
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

// deliveries builds the insert of sorted outcomes that are all Delivered.
func (w *builder) deliveries(part []Outcome) string {
	b := append(w.b[:0], `INSERT INTO deliveries (consumer_no, message_id, attempts, at_ms, status_code) VALUES `...)
	for i := range part {
		o := &part[i]
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendUint(b, uint64(o.ConsumerNo))
		b = append(b, ',')
		b = appendID(b, o.ID)
		b = append(b, ',')
		b = appendInt(b, int64(o.Attempts))
		b = append(b, ',')
		b = appendInt(b, o.AtMs)
		b = append(b, ',')
		b = appendInt(b, int64(o.StatusCode))
		b = append(b, ')')
	}
	// A job that is delivered stays as it was delivered first.
	b = append(b, ` ON DUPLICATE KEY UPDATE attempts = attempts`...)
	w.b = b
	return w.text()
}
