package durable

import "github.com/penstock-broker/penstock/internal/model/ident"

// From its commit on, a message either has a job for a consumer or has none. This file has
// the only rule for that, once in Go and once in SQL (docs/decisions/017). A consumer that is
// attached as of a time changes the answer for older messages once, when it is created.

// Concerns reports whether the message has a job for the consumer. The job of a deleted
// consumer is over, see Derive.
//
// What the replay of a redrive has are letters of another consumer, whoever the messages were for.
func (k *Consumer) Concerns(h Head) bool {
	if k.Replay != nil && k.Replay.SourceNo != 0 {
		return true
	}
	return k.meant(h) && (h.LeftOut == "" || !h.LeftOut.Has(k.Position))
}

// meant reports whether the message is for the consumer, unless the filter refuses it.
func (k *Consumer) meant(h Head) bool {
	return (h.covers(k.Position) || k.Joined(h)) && (h.Addressed == "" || h.Addressed.Has(k.Position)) &&
		(k.Until.IsZero() || h.ID.Compare(k.Until) <= 0)
}

// Joined reports whether the message is of the time before the consumer was created that Since
// adds. No filter was evaluated for it when it was stored.
func (k *Consumer) Joined(h Head) bool {
	return !k.Since.IsZero() && h.Audience >= 0 && !h.covers(k.Position) && h.ID.Compare(k.Since) > 0
}

// LeftOut reports whether the message would have a job for the consumer, if the filter of the
// consumer had not refused it. The books count such a message; nothing else happens to it.
func (k *Consumer) LeftOut(h Head) bool {
	return k.meant(h) && h.LeftOut.Has(k.Position)
}

// HasJobAt is Concerns where only the position of the consumer is known: the caller's copy of the
// catalogue may lack the consumer. It does not know Since.
func (h Head) HasJobAt(position int) bool {
	return h.covers(position) && (h.Addressed == "" || h.Addressed.Has(position)) &&
		(h.LeftOut == "" || !h.LeftOut.Has(position))
}

// covers reports whether the position existed when the message was stored. Audience is negative if
// the message is gone.
func (h Head) covers(position int) bool { return position < h.Audience }

// Selective reports whether some positions of the audience have no job.
func (h Head) Selective() bool { return h.Addressed != "" || h.LeftOut != "" }

// Jobs returns the number of jobs that the message has when it is stored.
func (h Head) Jobs() int {
	if !h.Selective() {
		return h.Audience
	}
	n := 0
	for position := range h.Audience {
		if h.HasJobAt(position) {
			n++
		}
	}
	return n
}

// Recipients returns those of a channel's consumers to which the message may be delivered when it
// is stored: it concerns them, and they are not deleted. The consumers are in the order of their
// positions, from 0; the last ones may be missing. some says that some of them are deleted.
func (h Head) Recipients(consumers []*Consumer, some bool) []*Consumer {
	all := consumers[:min(h.Audience, len(consumers))]
	if !some && !h.Selective() {
		return all
	}
	out := make([]*Consumer, 0, len(all))
	for position, k := range all {
		if !k.Deleted() && h.HasJobAt(position) {
			out = append(out, k)
		}
	}
	return out
}

// Head returns the fields that decide which consumers the message concerns, and its
// priority.
func (m *Message) Head() Head {
	return Head{ID: m.ID, Audience: m.Audience, Priority: m.Priority, Addressed: m.Addressed, LeftOut: m.LeftOut}
}

// concernsIn is Concerns for a row of messages or prioritised, of a consumer that is not deleted.
// of is the name of the table with a dot, or empty. The arguments are those of appendConcerns.
func concernsIn(of string) string {
	return meantIn(of) + `
  AND NOT ` + leftOutIn(of)
}

// meantIn is the part of concernsIn that filters have no influence on, with the arguments of
// appendMeant.
func meantIn(of string) string {
	return `(` + of + `audience > ? OR ` + of + `id > ?)
  AND (` + of + `addressed IS NULL OR ` + hasPosition(of+"addressed") + `)`
}

// leftOutIn is true for a row that the filter of the consumer refused. Its arguments are those of
// appendHasPosition.
func leftOutIn(of string) string {
	return `(` + of + `left_out IS NOT NULL AND ` + hasPosition(of+"left_out") + `)`
}

func (k *Consumer) appendConcerns(args []any) []any {
	return appendHasPosition(k.appendMeant(args), k.Position)
}

func (k *Consumer) appendMeant(args []any) []any {
	since := k.Since
	if since.IsZero() {
		since = ident.Max()
	}
	return appendHasPosition(append(args, k.Position, since[:]), k.Position)
}
