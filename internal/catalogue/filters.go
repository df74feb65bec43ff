package catalogue

import (
	"github.com/penstock-broker/penstock/internal/filter"
	"github.com/penstock-broker/penstock/internal/policy"
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
