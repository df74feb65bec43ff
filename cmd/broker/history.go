package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
)

// Brokers that were all stopped when the store went back to an earlier state have no memory of their
// own. Redis remembers the history and the beat of the store's clock, with the jobs of that time.

// recallHistory compares the store with what Redis remembers of it.
func (b *broker) recallHistory(ctx context.Context) error {
	history, beat, err := b.queue.RememberedHistory(ctx)
	if err != nil { // Redis may be away: then it has no jobs either, or its return is noticed
		b.log.Debug("Redis does not tell which history of the store it knows", "error", err)
		return nil
	}
	seen := durable.Clock{History: history, Beat: beat}
	now, err := b.store.CheckHistory(ctx, seen)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	b.outdated = seen != (durable.Clock{}) && now.History != seen.History
	return nil
}

// rememberHistory keeps in Redis what recallHistory asks for, and in the folder of an embedded store what
// checkFolder reads, until ctx ends.
func (b *broker) rememberHistory(ctx context.Context) {
	tick := time.NewTicker(cluster.RenewEvery)
	defer tick.Stop()
	var told durable.Clock
	for {
		if c := b.node.Clock(); c != told {
			if err := b.keepSeen(c); err != nil {
				b.log.Debug("the folder does not take the clock of the store", "error", err)
			}
			if b.tellHistory(ctx, c) == nil {
				told = c
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tellHistory tells a real Redis. The embedded one ends with this process.
func (b *broker) tellHistory(ctx context.Context, c durable.Clock) error {
	if b.embedded != nil {
		return nil
	}
	if b.redisAway.Load() { // awaitRedis asks it first
		return errors.New("the queue has not been asked yet")
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.RenewEvery)
	defer cancel()
	return b.queue.RememberHistory(ctx, c.History, c.Beat)
}
