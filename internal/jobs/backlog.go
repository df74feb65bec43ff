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
	InFlight int
	Dead     int
	Oldest   time.Time // when the message of the oldest open job was stored; zero: no job is queued
}

// Backlog counts the jobs of a consumer. Redis counts what it has, in flight or queued; where
// the store has more open jobs, because they are outside the window or not offered yet, the store
// counts.
func (d *Desk) Backlog(ctx context.Context, k durable.Consumer) (Backlog, error) {
	stats, err := d.Queue.Stats(ctx, k.No)
	if err != nil {
		return Backlog{}, err
	}
	stored, err := d.Store.Backlog(ctx, k, counted)
	if err != nil {
		return Backlog{}, err
	}
	b := Backlog{Queued: stats.Ready + stats.Delayed, InFlight: stats.Leased, Dead: stored.Dead}
	if stats.SpilledPriority >= 0 || b.Queued == 0 || stored.Open == 0 {
		b.Queued = max(stored.Open-stats.Leased, 0)
	}
	if b.Queued > 0 {
		b.Oldest = time.UnixMilli(stored.Oldest.Millis()).UTC()
	}
	return b, nil
}
