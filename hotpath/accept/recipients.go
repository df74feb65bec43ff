package accept

import (
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// longestQuote is the number of bytes of an unknown name that a refusal quotes.
const longestQuote = 64

// NoConsumer refuses a message that is addressed to a name.
func NoConsumer(name string) error {
	if !ident.ValidName(name) {
		return problem.Newf(400, "unknown_consumer", "The message is addressed to %q, which is no ID of a consumer; "+
			"nothing was stored.", name[:min(len(name), longestQuote)])
	}
	return problem.Newf(400, "unknown_consumer", "The message is addressed to %s, which is no consumer of the channel; "+
		"nothing was stored.", name)
}

// addressable reports whether none of the positions is that of a deleted consumer.
func addressable(ch *catalogue.Channel, to durable.Positions) bool {
	return !slices.ContainsFunc(ch.Consumers, func(k *durable.Consumer) bool {
		return k != nil && k.Deleted() && to.Has(k.Position)
	})
}

// readdress addresses a message to the consumers that have the IDs now of those that were deleted
// since. A message of a schedule, which was accepted long ago, leaves out IDs that nobody has; any
// other message is refused. The channel of the message may have been deleted, too: old is that one,
// otherwise it is ch.
func (c *committer) readdress(old, ch *catalogue.Channel, m *durable.Message) error {
	if old == ch && addressable(ch, m.Addressed) {
		return nil
	}
	var set durable.PositionSet
	for _, k := range old.Consumers {
		if k == nil || !m.Addressed.Has(k.Position) {
			continue
		}
		if k.Deleted() {
			id := k.ID
			if k = c.catalogue.Consumer(ch.ID, id); k == nil {
				if m.Occurrence != nil {
					continue
				}
				return NoConsumer(id)
			}
		}
		set.Add(k.Position)
	}
	if m.Addressed = set.Positions(); m.Addressed == "" {
		m.Addressed = durable.NoPositions
	}
	m.Audience = 0 // not filtered
	return nil
}

// stillThere returns those of the positions that are not of deleted consumers.
func stillThere(ch *catalogue.Channel, to durable.Positions) durable.Positions {
	if addressable(ch, to) {
		return to
	}
	var set durable.PositionSet
	for _, k := range ch.Consumers {
		if k != nil && !k.Deleted() && to.Has(k.Position) {
			set.Add(k.Position)
		}
	}
	if left := set.Positions(); left != "" {
		return left
	}
	return durable.NoPositions
}
