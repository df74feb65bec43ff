package durable

// A message has a job for a consumer, or has none, from its commit on. This file holds
// the only rule, once in Go and once in SQL. A consumer that is detached, or attached as
// of another time, a message that addresses some consumers, and the generation of a
// replay become terms of it (docs/decisions/017).

// Concerns reports whether the message has a job for the consumer.
func (k *Consumer) Concerns(h Head) bool { return k.Position < h.Audience }

// Head returns what decides whom the message concerns, and its priority.
func (m *Message) Head() Head { return Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority} }

// concerns is Concerns of a row of messages or prioritised. Its argument is the
// position of the consumer.
const concerns = `audience > ?`
