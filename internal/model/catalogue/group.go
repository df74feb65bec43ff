package catalogue

import (
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Group is a group of channels. It is immutable: a change replaces it by a new Group.
type Group struct {
	durable.Group
	Limits policy.GroupLimits // what the record of the group says
}

// takeGroups puts groups into the copy, with mu held.
func (c *Catalogue) takeGroups(groups []durable.Group) {
	for _, g := range groups {
		c.byGroup[g.No] = g.Version
		present := c.groups[g.ID]
		switch {
		case !g.Deleted:
			if present == nil {
				c.order.groups = nil
			}
			c.groups[g.ID] = &Group{Group: g, Limits: policy.GroupOf(g.Settings)}
		case present != nil && present.No == g.No:
			c.order.groups = nil
			delete(c.groups, g.ID)
		}
	}
}

// Group returns the group with that ID, nil when the copy has none.
func (c *Catalogue) Group(id string) *Group {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.groups[id]
}

// Groups returns up to n groups with an ID of at least from, by ID.
func (c *Catalogue) Groups(from string, n int) []*Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order.groups == nil {
		c.order.groups = sortedKeys(c.groups)
	}
	return page(c.order.groups, from, n, func(id string) *Group { return c.groups[id] })
}

// GroupIDs returns the IDs of all groups, in no order.
func (c *Catalogue) GroupIDs() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.groups))
}

// DeletedGroups reports whether the copy has seen any deleted group.
func (c *Catalogue) DeletedGroups() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byGroup) > len(c.groups)
}

// InGroup returns how many channels carry a group.
func (c *Catalogue) InGroup(id string) (n int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, ch := range c.channels {
		if ch.Group == id {
			n++
		}
	}
	return n
}

// ChannelsOf returns up to n channels that carry a group, with an ID of at least from, by ID.
func (c *Catalogue) ChannelsOf(group, from string, n int) (out []*Channel) {
	const step = 1000
	for {
		chunk := c.Channels(from, step)
		for _, ch := range chunk {
			if ch.Group == group {
				if out = append(out, ch); len(out) == n {
					return out
				}
			}
		}
		if len(chunk) < step {
			return out
		}
		from = chunk[len(chunk)-1].ID + "\x00" // the next possible ID
	}
}

// Refusal is why the channel accepts no messages now, nil where it does.
func (ch *Channel) Refusal() error {
	switch {
	case ch.Paused:
		return problem.ErrChannelPaused
	case ch.GroupPaused:
		return problem.ErrGroupPaused
	}
	return nil
}
