package durable

import (
	"slices"
	"sync"
	"unsafe"
)

// A builder assembles frequent MySQL statements in a reusable buffer: one at a time, or, after join,
// one behind the other.
type builder struct {
	b      []byte
	joined bool
}

// Buffers above this size are left to the garbage collector, so that one batch of large
// messages does not keep its memory.
const maxPooledBytes = 4 << 20

var builders = sync.Pool{New: func() any { return &builder{b: make([]byte, 0, 64<<10)} }}

func newBuilder() *builder { return builders.Get().(*builder) }

// release returns the buffer to the pool. No text of the builder may be in use.
func (w *builder) release() {
	if cap(w.b) <= maxPooledBytes {
		w.b, w.joined = w.b[:0], false
		builders.Put(w)
	}
}

// join makes the builder keep what it has, and put the following statements behind it.
func (w *builder) join() { w.joined = true }

// begin returns the buffer for the next statement.
func (w *builder) begin(text string) []byte {
	switch {
	case !w.joined:
		w.b = w.b[:0]
	case len(w.b) > 0:
		w.b = append(w.b, ";\n"...)
	}
	return append(w.b, text...)
}

// text returns the statement, or all that are joined, without a copy. It is valid until the builder
// changes or is released. The driver copies the text into its own buffer before it returns.
func (w *builder) text() string { return unsafe.String(unsafe.SliceData(w.b), len(w.b)) }

// messages builds the insert of sorted entries. The first row of each channel contains the
// guard, as does the first row of each audience or shape if a batch has several for one channel. The
// guard is a subquery for the audience: it returns the audience of the channel if all facts
// of the batch are still true, and NULL otherwise. For NULL the server refuses the whole
// statement with error 1048. The guard uses SYSDATE, which includes a wait before the row is
// written; NOW is fixed at the arrival of the statement. Like the rows of the node and the channel,
// it reads that of the clock with a lock, so a floor that was committed holds. Its last line is the
// rule of clockReading.now.
func (w *builder) messages(node NodeLease, part []entry) string {
	mortal := slices.ContainsFunc(part, func(e entry) bool { return e.TTLMs > 0 })
	selective := slices.ContainsFunc(part, entry.selective)
	b := w.begin(
		`INSERT INTO messages (channel_no, id, producer_no, priority, audience, msg_key, content_type, headers, payload`)
	if mortal {
		b = append(b, `, ttl_ms`...)
	}
	if selective {
		b = append(b, `, addressed, left_out`...)
	}
	b = append(b, `) VALUES `...)
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
		if i == 0 || part[i-1].ChannelNo != e.ChannelNo || part[i-1].Audience != e.Audience || part[i-1].Shape != e.Shape {
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
		if mortal {
			b = append(b, ',')
			b = appendInt(b, e.TTLMs)
		}
		if selective {
			b = e.appendRecipients(b)
		}
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

// keys builds the insert of the producers' message IDs. The entries are sorted by channel and
// key.
func (w *builder) keys(part []entry) string {
	b := w.begin(`INSERT INTO message_keys (channel_no, msg_key, id) VALUES `)
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

// prioritised builds the insert into the index of prioritised messages. The entries are
// sorted by its key.
func (w *builder) prioritised(part []entry) string {
	selective := slices.ContainsFunc(part, entry.selective)
	b := w.begin(`INSERT INTO prioritised (channel_no, inv_priority, id, audience`)
	if selective {
		b = append(b, `, addressed, left_out`...)
	}
	b = append(b, `) VALUES `...)
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
		if selective {
			b = e.appendRecipients(b)
		}
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

// selective reports whether some consumers have no job of the message.
func (e entry) selective() bool { return e.Addressed != "" || e.LeftOut != "" }

// appendRecipients appends the values of addressed and left_out.
func (e entry) appendRecipients(b []byte) []byte {
	b = e.Addressed.appendColumn(append(b, ','))
	return e.LeftOut.appendColumn(append(b, ','))
}

// expiring builds the insert of the expiries of messages that have their own.
func (w *builder) expiring(part []entry) string {
	b := w.begin(`INSERT INTO expiring (expires_ms, channel_no, id) VALUES `)
	for i, e := range part {
		if i > 0 {
			b = append(b, ",\n"...)
		}
		b = append(b, '(')
		b = appendInt(b, e.ID.Millis()+e.TTLMs)
		b = append(b, ',')
		b = appendUint(b, uint64(e.ChannelNo))
		b = append(b, ',')
		b = appendID(b, e.ID)
		b = append(b, ')')
	}
	w.b = b
	return w.text()
}

// deliveries builds the insert of sorted outcomes that are all Delivered.
func (w *builder) deliveries(part []Outcome) string {
	// Few workers say who they are: without one the text is as short as it can be.
	named := false
	for i := range part {
		named = named || part[i].Worker != ""
	}
	insert := `INSERT INTO deliveries (consumer_no, message_id, attempts, at_ms, status_code, node, duration_ms) VALUES `
	if named {
		insert = `INSERT INTO deliveries (consumer_no, message_id, attempts, at_ms, status_code, node, duration_ms, ` +
			`worker) VALUES `
	}
	b := w.begin(insert)
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
		b = append(b, ',')
		b = appendNullable(b, o.node())
		b = append(b, ',')
		b = appendNullable(b, o.duration())
		if named {
			b = append(b, ',')
			b = appendOptional(b, o.Worker)
		}
		b = append(b, ')')
	}
	// A delivered job keeps its first row.
	b = append(b, ` ON DUPLICATE KEY UPDATE attempts = attempts`...)
	w.b = b
	return w.text()
}
