package catalogue

import (
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A Channel is a channel with its consumers in the order of their positions.
// It is immutable: a change replaces it by a new Channel.
type Channel struct {
	durable.Channel
	Intake    policy.Intake       // what the record of the channel says
	Consumers []*durable.Consumer // index = position, length = Audience; also the deleted ones
	Filters   []*filter.Filter    // index = position, nil without a filter; nil where no consumer has one
	deletions bool                // some of them are deleted
}

// Deletions reports whether consumers of the channel were deleted.
func (ch *Channel) Deletions() bool { return ch.deletions }

// Recipients returns the consumers to which a message may be delivered. A consumer that the
// copy does not contain yet is missing; the insert of a message never relies on the copy.
func (ch *Channel) Recipients(h durable.Head) []*durable.Consumer {
	return h.Recipients(ch.Consumers, ch.deletions)
}

// Concerned is Recipients for a message that was stored before: it adds the consumers that were
// created since and get older messages. One with a filter for these is missing, because the scan that
// loads its jobs decides which ones there are.
func (ch *Channel) Concerned(h durable.Head) []*durable.Consumer {
	out := ch.Recipients(h)
	for _, k := range ch.Consumers[min(h.Audience, len(ch.Consumers)):] {
		if !k.Deleted() && k.Concerns(h) && policy.FilterOf(k.SincePolicy) == nil {
			out = append(out[:len(out):len(out)], k)
		}
	}
	return out
}

// HasJobAt reports whether the message has a job for the consumer at a position, which may be missing
// in this copy.
func (ch *Channel) HasJobAt(h durable.Head, position int) bool {
	if position < len(ch.Consumers) {
		return ch.Consumers[position].Concerns(h)
	}
	return h.HasJobAt(position)
}
