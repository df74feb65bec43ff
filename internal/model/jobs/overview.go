package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// An OverviewStore is the part of durable.Store that an Overview needs.
type OverviewStore interface {
	OldestOpen(ctx context.Context) (map[uint32]ident.ID, error)
	DeadOfAll(ctx context.Context) (map[uint32]int, error)
	Watermarks(ctx context.Context) (map[uint32]ident.ID, error)
	LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error)
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
	o.ask(ctx, consumers, dead, open, out)
	return out, nil
}

// latestPage is the number of channels whose newest message one statement finds.
const latestPage = 1000

// CountsOfAll is Counts at regular times, for all consumers that exist: Redis is asked only about those that
// may have a job. The others have no row of a job, and are settled up to the newest message of their channel.
func (o *Overview) CountsOfAll(ctx context.Context, consumers []*durable.Consumer) ([]Count, error) {
	dead, err := o.Store.DeadOfAll(ctx)
	if err != nil {
		return nil, err
	}
	open, err := o.Store.OldestOpen(ctx)
	if err != nil {
		return nil, err
	}
	settled, err := o.Store.Watermarks(ctx)
	if err != nil {
		return nil, err
	}
	newest := map[uint32]ident.ID{}
	for after := uint32(0); ; {
		page, err := o.Store.LatestMessages(ctx, after, latestPage)
		if err != nil {
			return nil, err
		}
		for _, l := range page {
			newest[l.ChannelNo], after = l.ID, l.ChannelNo
		}
		if len(page) < latestPage {
			break
		}
	}
	out := make([]Count, len(consumers))
	var busy []uint32
	var places []int
	for i, k := range consumers {
		if _, has := open[k.No]; !has && newest[k.ChannelNo].Compare(settled[k.No]) <= 0 {
			out[i].Dead, out[i].Known = dead[k.No], true
			continue
		}
		busy, places = append(busy, k.No), append(places, i)
	}
	if len(busy) > 0 {
		counts := make([]Count, len(busy))
		o.ask(ctx, busy, dead, open, counts)
		for j, i := range places {
			out[i] = counts[j]
		}
	}
	return out, nil
}

// ask counts the jobs of consumers, with what the store says of them.
func (o *Overview) ask(ctx context.Context, consumers []uint32, dead map[uint32]int, open map[uint32]ident.ID,
	out []Count) {
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
}
