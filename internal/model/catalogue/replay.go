package catalogue

import "github.com/penstock-broker/penstock/durable"

// The copy has a consumer for each replay: its consumer, with the number of the replay. Watchers
// learn of it like of any other. It is in no list, and the channel does not name it.

// takeReplay puts a replay into the copy, with mu held. It returns nil if the copy lacks its
// consumer, which is impossible in one snapshot.
func (c *Catalogue) takeReplay(r *durable.Replay) *durable.Consumer {
	k := c.byConsumer[r.ConsumerNo]
	if k == nil {
		return nil
	}
	g := k.Generation(r)
	c.byConsumer[g.No] = g
	if g.Deleted() {
		if present := c.replays[k.No]; present != nil && present.No == g.No {
			delete(c.replays, k.No)
		}
	} else {
		if c.replays == nil {
			c.replays = map[uint32]*durable.Consumer{}
		}
		c.replays[k.No] = g
	}
	c.replaying.Store(len(c.replays) > 0)
	return g
}

// Account returns the consumer that a number belongs to: that of a replay, else the number itself.
func (c *Catalogue) Account(no uint32) uint32 {
	if !c.replaying.Load() {
		return no
	}
	if k := c.ConsumerByNo(no); k != nil {
		return k.Account()
	}
	return no
}

// ReplayOf returns the consumer of the replay that a consumer has now, or nil.
func (c *Catalogue) ReplayOf(consumer uint32) *durable.Consumer {
	if !c.replaying.Load() {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.replays[consumer]
}

// Replays returns the consumers of all replays that have not ended, in no order.
func (c *Catalogue) Replays() []*durable.Consumer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*durable.Consumer, 0, len(c.replays))
	for _, g := range c.replays {
		out = append(out, g)
	}
	return out
}
