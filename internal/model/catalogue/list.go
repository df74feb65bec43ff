package catalogue

import (
	"sort"

	"github.com/penstock-broker/penstock/durable"
)

// orders are the IDs in ascending order. A list route sorts them when they are missing.
type orders struct {
	producers, channels, groups []string
	consumers                   map[uint32][]string
}

// Producers returns up to n producers with an ID of at least from, by ID.
func (c *Catalogue) Producers(from string, n int) []*durable.Producer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order.producers == nil {
		c.order.producers = sortedKeys(c.producers)
	}
	return page(c.order.producers, from, n, func(id string) *durable.Producer { return c.producers[id] })
}

// Channels returns up to n channels with an ID of at least from, by ID.
func (c *Catalogue) Channels(from string, n int) []*Channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order.channels == nil {
		c.order.channels = sortedKeys(c.channels)
	}
	return page(c.order.channels, from, n, func(id string) *Channel { return c.channels[id] })
}

// Consumers returns up to n consumers of a channel with an ID of at least from,
// by ID; none for an unknown channel.
func (c *Catalogue) Consumers(channelID, from string, n int) []*durable.Consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.channels[channelID]
	if ch == nil {
		return nil
	}
	ids := c.order.consumers[ch.No]
	if ids == nil {
		ids = make([]string, 0, len(ch.Consumers))
		for _, k := range ch.Consumers {
			if !k.Deleted() {
				ids = append(ids, k.ID)
			}
		}
		sort.Strings(ids)
		c.order.consumers[ch.No] = ids
	}
	return page(ids, from, n, func(id string) *durable.Consumer { return c.consumers[consumerKey{ch.No, id}] })
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func page[V any](ids []string, from string, n int, value func(string) V) []V {
	start := sort.SearchStrings(ids, from)
	end := min(start+n, len(ids))
	out := make([]V, 0, max(end-start, 0))
	for _, id := range ids[start:end] {
		out = append(out, value(id))
	}
	return out
}
