package durable

// From its commit on, a message either has a job for a consumer or has none. This file has
// the only rule for that, once in Go and once in SQL. Later features become terms of this
// rule: detached consumers, consumers attached from an earlier time, messages addressed to
// some consumers, and replay generations (docs/decisions/017).

// Concerns reports whether the message has a job for the consumer.
func (k *Consumer) Concerns(h Head) bool { return k.Position < h.Audience }

// Head returns the fields that decide which consumers the message concerns, and its
// priority.
func (m *Message) Head() Head { return Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority} }

// concerns is Concerns for a row of messages or prioritised. Its argument is the position
// of the consumer.
const concerns = `audience > ?`
