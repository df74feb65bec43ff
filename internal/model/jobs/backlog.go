package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// counted bounds what Backlog reads of the store: a count stops there.
const counted = 100_000

// A Backlog is the jobs of a consumer that are not delivered.
type Backlog struct {
	Queued   int // without those in flight
	Delayed  int // of these, those of which Redis knows that they are due later
	InFlight int
	Dead     int
	Oldest   time.Time // when the message of the oldest open job was stored; zero: no job is queued
}

// Backlog counts the jobs of a consumer. Redis counts, in flight or queued, where it has every job;
// where jobs are outside the window, or a scan of the store has not ended since the state in Redis
// began, the store counts, and Redis may know some of them before.
func (d *Service) Backlog(ctx context.Context, k durable.Consumer) (Backlog, error) {
	stats, err := d.Queue.Stats(ctx, k.No)
	if err != nil {
		return Backlog{}, err
	}
	stored, err := d.Store.Backlog(ctx, k, counted)
	if err != nil {
		return Backlog{}, err
	}
	b := Backlog{Queued: stats.Ready + stats.Delayed, InFlight: stats.Leased, Dead: stored.Dead}
	switch open := max(stored.Open-stats.Leased, 0); {
	case stats.SpilledPriority >= 0, b.Queued == 0, stored.Open == 0:
		b.Queued = open
	case !stats.Whole:
		b.Queued = max(b.Queued, open)
	}
	b.Delayed = min(stats.Delayed, b.Queued)
	if b.Queued > 0 {
		b.Oldest = time.UnixMilli(stored.Oldest.Millis()).UTC()
	}
	return b, nil
}
