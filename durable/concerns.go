package durable

// From its commit on, a message either has a job for a consumer or has none. This file has
// the only rule for that, once in Go and once in SQL. Later features become terms of this
// rule: detached consumers, consumers attached from an earlier time, messages addressed to
// some consumers, and replay generations (docs/decisions/017).

// Concerns reports whether the message has a job for the consumer.
func (k *Consumer) Concerns(h Head) bool { return h.HasJobAt(k.Position) }

// HasJobAt is Concerns where only the position of the consumer is known, from the ID of a
// job: the caller's copy of the catalogue may lack the consumer.
func (h Head) HasJobAt(position int) bool { return position < h.Audience }

// Concerned returns those of a channel's consumers that the message concerns. The consumers
// are in the order of their positions, from 0; the last ones may be missing.
func (h Head) Concerned(consumers []*Consumer) []*Consumer {
	return consumers[:min(h.Audience, len(consumers))]
}

// Head returns the fields that decide which consumers the message concerns, and its
// priority.
func (m *Message) Head() Head { return Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority} }

// concerns is Concerns for a row of messages or prioritised. Its argument is the position
// of the consumer.
const concerns = `audience > ?`
