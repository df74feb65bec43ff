package catalogue

import (
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The copy keeps deleted resources under their numbers, which messages name. Under an ID it has
// the resource that has the ID now.

// deletions are what the copy has of deleted resources.
type deletions struct {
	producers, channels []uint32 // numbers
}

// takeProducer puts a producer into the copy, with mu held.
func (c *Catalogue) takeProducer(p *durable.Producer) {
	old := c.byProducer[p.No]
	if p.Deleted && (old == nil || !old.Deleted) {
		c.deleted.producers = append(c.deleted.producers, p.No)
	}
	c.byProducer[p.No] = p
	c.takeStatusEvents(p)
	c.takeBounds(p)
	present := c.producers[p.ID]
	switch {
	case !p.Deleted:
		if present == nil {
			c.order.producers = nil
		}
		c.producers[p.ID] = p
	case present != nil && present.No == p.No:
		c.order.producers = nil
		delete(c.producers, p.ID)
	}
}

// takeChannel is takeProducer for a channel.
func (c *Catalogue) takeChannel(ch *Channel) {
	c.takeFilters(ch)
	ch.deletions = slices.ContainsFunc(ch.Consumers, func(k *durable.Consumer) bool { return k != nil && k.Deleted() })
	if ch.Deleted && !slices.Contains(c.deleted.channels, ch.No) {
		c.deleted.channels = append(c.deleted.channels, ch.No)
	}
	c.byChannel[ch.No] = ch
	present := c.channels[ch.ID]
	switch {
	case !ch.Deleted:
		if present == nil {
			c.order.channels = nil
		}
		c.channels[ch.ID] = ch
	case present != nil && present.No == ch.No:
		c.order.channels = nil
		delete(c.channels, ch.ID)
		delete(c.order.consumers, ch.No)
	}
}

// takeConsumer is takeProducer for a consumer.
func (c *Catalogue) takeConsumer(k *durable.Consumer) {
	c.byConsumer[k.No] = k
	delete(c.lost, k.No)
	key := consumerKey{k.ChannelNo, k.ID}
	present := c.consumers[key]
	switch {
	case !k.Deleted():
		if present == nil {
			delete(c.order.consumers, k.ChannelNo)
		}
		c.consumers[key] = k
	case present != nil && present.No == k.No:
		delete(c.order.consumers, k.ChannelNo)
		delete(c.consumers, key)
	}
}

// Version returns the version of the store's catalogue that the copy shows.
func (c *Catalogue) Version() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// DeletedProducers reports whether the copy has any deleted producer.
func (c *Catalogue) DeletedProducers() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.deleted.producers) > 0
}

// ReplyChannels returns the channels of replies to producers, which may be deleted.
func (c *Catalogue) ReplyChannels() (out []*Channel) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id, ch := range c.channels {
		if ident.RepliesTo(id) != 0 {
			out = append(out, ch)
		}
	}
	return out
}

// DeletedProducerNos returns the internal numbers of the deleted producers in the copy.
func (c *Catalogue) DeletedProducerNos() []uint32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.deleted.producers)
}

// DeletedChannels returns the internal numbers of the deleted channels in the copy.
func (c *Catalogue) DeletedChannels() []uint32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.deleted.channels)
}
