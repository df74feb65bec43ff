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

// A restoration is what the catalogue knows of restorations. Catalogue.mu guards the first part.
type restoration struct {
	onRestored []func()
	used       durable.Numbers // the highest that the copy ever had
	lower      int64           // version of the store where it is below that of the copy, else 0

	// Only Run uses these.
	audited   int64 // version whose rows were compared with those of the store
	suspected int64 // lower at the last poll
	untouched bool  // the version of a restored catalogue is still to be raised
}

// OnRestored registers a function that is called after the copy was replaced, because the store was
// restored from a backup. f must not block.
func (c *Catalogue) OnRestored(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRestored = append(c.onRestored, f)
}

// suspect notes a version of the store that is lower than that of the copy, which stays as it is.
func (c *Catalogue) suspect(version int64, refresh uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lower, c.finished = version, refresh
}

// audit compares the copy with the store after a change, and replaces it where they differ, or where
// the store has a lower version at two polls. Run calls it at most once in a poll interval, because
// it reads all versions.
func (c *Catalogue) audit(ctx context.Context) error {
	if c.untouched {
		if err := c.touch(ctx); err != nil {
			return err
		}
	}
	c.mu.RLock()
	before, lower := c.version, c.lower
	c.mu.RUnlock()
	suspected := c.suspected
	c.suspected = lower
	switch {
	case lower != 0 && (suspected == 0 || lower < suspected): // one stale read is no restoration
		return nil
	case lower != 0:
		return c.replace(ctx, before, true)
	case before == c.audited:
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
	return c.replace(ctx, before, false)
}

// replace loads the whole copy again. With lower it does so only if the store's version still is.
func (c *Catalogue) replace(ctx context.Context, before int64, lower bool) error {
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
	if lower && changes.Version >= before {
		return nil // the next poll refreshes and compares
	}
	c.apply(changes, this, true)
	c.audited, c.suspected = changes.Version, 0
	return c.restored(ctx, before, changes.Version)
}

// note remembers the highest numbers. mu is held.
func (c *Catalogue) note(changes durable.Changes) {
	for i := range changes.Producers {
		c.used.Producer = max(c.used.Producer, changes.Producers[i].No)
	}
	for i := range changes.Channels {
		c.used.Channel = max(c.used.Channel, changes.Channels[i].No)
	}
	for i := range changes.Consumers {
		c.used.Consumer = max(c.used.Consumer, changes.Consumers[i].No)
	}
	for i := range changes.Replays {
		c.used.Consumer = max(c.used.Consumer, changes.Replays[i].No)
	}
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
	for _, version := range c.byGroup {
		e.Groups.Add(version)
	}
	for no, k := range c.byConsumer {
		if k.Replay == nil && !c.lost[no] {
			e.Consumers.Add(k.Version)
		}
	}
	for _, g := range c.grantsByID() {
		e.Tokens.Add(g.version)
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
		k.State, k.StateReason, k.StateMs = durable.StateDeleted, "not in the backup that was restored",
			time.Now().UnixMilli()
		c.byConsumer[no], c.lost[no] = &k, true
		ended = append(ended, &k)
	}
	return ended
}

// restored tells of a copy that was replaced. It gives the catalogue a version of its own: inserts
// are refused from brokers that know an older one than a deletion of the former history.
func (c *Catalogue) restored(ctx context.Context, from, to int64) error {
	c.log.Warn("the catalogue of the store went back or has other content, as after a restored backup; the broker has "+
		"loaded it again",
		"version", from, "restored", to)
	c.mu.RLock()
	told := c.onRestored
	c.mu.RUnlock()
	for _, f := range told {
		f()
	}
	c.untouched = true
	return c.touch(ctx)
}

// touch raises the version of a catalogue that was restored, and keeps the numbers that the copy had
// from resources to come. audit repeats it until it succeeds.
func (c *Catalogue) touch(ctx context.Context) error {
	c.mu.RLock()
	used := c.used
	c.mu.RUnlock()
	if err := c.source.Touch(ctx, used); err != nil {
		return fmt.Errorf("catalogue: new version after a restoration: %w", err)
	}
	c.untouched = false
	return nil
}
