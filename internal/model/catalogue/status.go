package catalogue

import (
	"maps"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// StatusEvents returns which events producers want to hear of, by the numbers of the producers. It
// is empty where none of them wants any. The map is never changed.
func (c *Catalogue) StatusEvents() map[uint32]durable.StatusKind {
	if m := c.wanted.Load(); m != nil {
		return *m
	}
	return nil
}

// takeStatusEvents is a part of takeProducer.
func (c *Catalogue) takeStatusEvents(p *durable.Producer) {
	var wants durable.StatusKind
	if !p.Deleted && p.Settings != "" {
		wants = durable.StatusKind(policy.SenderOf(p.Settings).StatusEvents)
	}
	old := c.StatusEvents()
	if old[p.No] == wants {
		return
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[uint32]durable.StatusKind{}
	}
	if next[p.No] = wants; wants == 0 {
		delete(next, p.No)
	}
	c.wanted.Store(&next)
}
