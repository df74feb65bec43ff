package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// An OverviewStore is the part of durable.Store that an Overview needs.
type OverviewStore interface {
	OldestOpen(ctx context.Context) (map[uint32]ident.ID, error)
	DeadOfAll(ctx context.Context) (map[uint32]int, error)
}

// An OverviewQueue is the part of redisq.Queue that an Overview needs.
type OverviewQueue interface {
	StatsMany(ctx context.Context, consumers []uint32) ([]redisq.Stats, []error)
	OldestReady(ctx context.Context, consumers []uint32) ([]int64, error)
}

// An Overview counts the jobs of many consumers at once: Redis is asked in pipelines, the store in one
// statement for all dead letters and one for the oldest jobs of those that were attempted. It reads no
// message, so it costs the same however many are stored.
type Overview struct {
	Store OverviewStore
	Queue OverviewQueue
}

// A Count is the jobs of one consumer.
type Count struct {
	Backlog
	Delayed int  // of Queued, those that are not due yet
	Known   bool // Redis has answered; else Dead alone counts
	// AtLeast says that jobs are outside of the window of Redis, or that a scan of the store has not ended
	// since its state began: Queued has those that Redis knows.
	AtLeast bool
}

// Counts returns the counts of consumers in their order. Oldest is that of the jobs that wait. An error is
// that of the store: without Redis there are the dead letters.
func (o *Overview) Counts(ctx context.Context, consumers []uint32) ([]Count, error) {
	out := make([]Count, len(consumers))
	if len(consumers) == 0 {
		return out, nil
	}
	dead, err := o.Store.DeadOfAll(ctx)
	if err != nil {
		return nil, err
	}
	open, err := o.Store.OldestOpen(ctx)
	if err != nil {
		return nil, err
	}
	heads, headless := o.Queue.OldestReady(ctx, consumers)
	stats, errs := o.Queue.StatsMany(ctx, consumers)
	for i, no := range consumers {
		out[i].Dead = dead[no]
		if errs[i] != nil || headless != nil {
			continue
		}
		s, c := &stats[i], &out[i]
		c.Known, c.AtLeast = true, !s.Whole
		c.Queued, c.InFlight = s.Ready+s.Delayed, s.Leased
		c.Delayed = s.Delayed
		if c.Queued == 0 {
			continue
		}
		oldest := heads[i]
		if id, ok := open[no]; ok && (oldest == 0 || id.Millis() < oldest) {
			oldest = id.Millis()
		}
		if oldest > 0 {
			c.Oldest = time.UnixMilli(oldest).UTC()
		}
	}
	return out, nil
}
