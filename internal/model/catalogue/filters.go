package catalogue

import (
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// takeFilters sets the filters of a channel that is new or changed, with mu held.
func (c *Catalogue) takeFilters(ch *Channel) {
	for position, k := range ch.Consumers {
		if k == nil || k.Deleted() {
			continue
		}
		if f := policy.FilterOf(k.Policy); f != nil {
			if ch.Filters == nil {
				ch.Filters = make([]*filter.Filter, len(ch.Consumers))
			}
			ch.Filters[position] = f
		}
	}
	if ch.Filters != nil {
		c.filtering[ch.No] = true
	} else {
		delete(c.filtering, ch.No)
	}
	c.filters.Store(len(c.filtering) > 0)
}

// AnyFilters reports whether a consumer of any channel has a filter.
func (c *Catalogue) AnyFilters() bool { return c.filters.Load() }

// Seen returns what filters see of a message, which has its payload and headers.
func (c *Catalogue) Seen(m *durable.Message) filter.Message {
	seen := filter.Message{Payload: m.Payload, Headers: m.Metadata(), Priority: m.Priority, ContentType: m.ContentType,
		Encoding: m.ContentEncoding(), Attributes: strings.HasPrefix(m.ContentType, cloudevents.StructuredType)}
	if p := c.ProducerByNo(m.ProducerNo); p != nil {
		seen.Producer = p.ID
	}
	return seen
}
