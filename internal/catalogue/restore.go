package catalogue

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// A backup of the store may be restored while brokers run. The version of the catalogue is then
// lower than that of the copy. Or it is higher, because a change came after the restoration: its
// rows alone would leave the copy with a mixture of both. The version is the time of the last
// change, so two histories have no version in common, and a comparison of the rows tells them apart.

// OnRestored registers a function that is called after the copy was replaced, because the store was
// restored from a backup. f must not block.
func (c *Catalogue) OnRestored(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRestored = append(c.onRestored, f)
}

// audit compares the copy with the store after a change, and replaces it where they differ. Run
// calls it at most once in a poll interval, because it reads all versions.
func (c *Catalogue) audit(ctx context.Context) error {
	before := c.Version()
	if before == c.audited {
		return nil
	}
	stored, err := c.source.Extent(ctx)
	if err != nil {
		return fmt.Errorf("catalogue: compare the copy: %w", err)
	}
	switch mine := c.extent(); {
	case stored.Version != mine.Version: // a change came between; the next poll compares
		return nil
	case stored == mine:
		c.audited = mine.Version
		return nil
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer func() { <-c.refreshing }()
	c.mu.Lock()
	c.started++
	this := c.started
	c.mu.Unlock()
	changes, err := c.source.Changes(ctx, 0)
	if err != nil {
		return fmt.Errorf("catalogue: load all: %w", err)
	}
	c.apply(changes, this, true)
	c.audited = changes.Version
	return c.restored(ctx, before, changes.Version)
}

// extent returns what the copy has, as durable.Store.Extent counts it.
func (c *Catalogue) extent() durable.Extent {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := durable.Extent{Version: c.version}
	for _, p := range c.byProducer {
		e.Producers.Add(p.Version)
	}
	for _, ch := range c.byChannel {
		e.Channels.Add(ch.Version)
	}
	for no, k := range c.byConsumer {
		if k.Replay == nil && !c.lost[no] {
			e.Consumers.Add(k.Version)
		}
	}
	return e
}

// lose ends the consumers that the copy had before, and that the store has no row of. They stay
// under their numbers as deleted ones, because claims and deliveries of them may be under way. mu
// is held.
func (c *Catalogue) lose(before map[uint32]*durable.Consumer) (ended []*durable.Consumer) {
	for no, old := range before {
		if c.byConsumer[no] != nil {
			continue
		}
		k := *old
		k.Token, k.Policy = "", ""
		k.State, k.StateReason, k.StateMs = durable.StateDeleted, "not in the backup that was restored", time.Now().UnixMilli()
		c.byConsumer[no], c.lost[no] = &k, true
		ended = append(ended, &k)
	}
	return ended
}

// restored tells of a copy that was replaced. It gives the catalogue a version of its own: inserts
// are refused from brokers that know an older one than a deletion of the former history.
func (c *Catalogue) restored(ctx context.Context, from, to int64) error {
	c.log.Warn("the catalogue of the store went back or has other content, as after a restored backup; the broker has loaded it again",
		"version", from, "restored", to)
	c.mu.RLock()
	told := c.onRestored
	c.mu.RUnlock()
	for _, f := range told {
		f()
	}
	if err := c.source.Touch(ctx); err != nil {
		return fmt.Errorf("catalogue: new version after a restoration: %w", err)
	}
	return nil
}
