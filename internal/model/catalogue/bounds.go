package catalogue

import (
	"maps"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// Bounds are what a producer has set itself.
type Bounds struct {
	Stored, Scheduled policy.Most
	Publish           policy.Rate
}

// Bounds returns the bounds that producers have set, by the numbers of the producers. It is empty
// where none has. The map is never changed.
func (c *Catalogue) Bounds() map[uint32]Bounds {
	if m := c.bounds.Load(); m != nil {
		return *m
	}
	return nil
}

// takeBounds is a part of takeProducer.
func (c *Catalogue) takeBounds(p *durable.Producer) {
	var set Bounds
	if !p.Deleted && p.Settings != "" {
		s := policy.SenderOf(p.Settings)
		set = Bounds{s.MaxStoredBytes, s.MaxScheduled, s.PublishRate}
	}
	old := c.Bounds()
	if old[p.No] == set {
		return
	}
	next := maps.Clone(old)
	if next == nil {
		next = map[uint32]Bounds{}
	}
	if next[p.No] = set; set == (Bounds{}) {
		delete(next, p.No)
	}
	c.bounds.Store(&next)
}
