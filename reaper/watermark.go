package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// watermarkTick is the interval at which the settled watermarks advance. A restart
	// scans the messages that are newer than the watermark again.
	watermarkTick = 10 * time.Second
	// watermarkPages bounds the pages that one round reads for one consumer.
	watermarkPages = 500
)

func (r *Reaper) watermarkLoop(ctx context.Context) {
	tick := time.NewTicker(watermarkTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.advanceWatermarks(ctx); err != nil && ctx.Err() == nil {
			r.Log.Debug("the settled watermarks cannot advance", "error", err)
		}
	}
}

// advanceWatermarks moves the settled watermark of each consumer forward, to just before
// the first message whose job has no outcome and no open_jobs row.
func (r *Reaper) advanceWatermarks(ctx context.Context) error {
	through := r.through()
	moved := map[uint32]ident.ID{}
	for after := uint32(0); ; {
		page, err := r.Store.LatestMessages(ctx, after, channelPage)
		if err != nil {
			return err
		}
		for _, latest := range page {
			after = latest.ChannelNo
			ch := r.Catalogue.ChannelByNo(latest.ChannelNo)
			if ch == nil || latest.ID.IsZero() {
				continue
			}
			for _, k := range ch.Consumers {
				if !r.Cluster.Owns(k.No) {
					continue
				}
				watermark, changed, err := r.advanceOne(ctx, k, minID(latest.ID, through))
				if err != nil {
					return err
				}
				if changed {
					moved[k.No] = watermark
				}
			}
		}
		if len(page) < channelPage {
			break
		}
	}
	if len(moved) == 0 {
		return nil
	}
	if err := r.Store.SaveWatermarks(ctx, moved); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for consumer, watermark := range moved {
		if l := r.ledgers[consumer]; l != nil {
			l.settled = watermark
		}
	}
	return nil
}

// advanceOne returns the new settled watermark of one consumer and reports whether it
// changed. It writes nothing.
func (r *Reaper) advanceOne(ctx context.Context, k *durable.Consumer, through ident.ID) (watermark ident.ID, changed bool, err error) {
	r.mu.Lock()
	l := r.ledgers[k.No]
	if l != nil {
		watermark = l.settled
	}
	r.mu.Unlock()
	if l == nil {
		return watermark, false, nil
	}
	start := watermark
	for range watermarkPages {
		if watermark.Compare(through) >= 0 {
			break
		}
		over, err := r.allDelivered(ctx, k, watermark, through)
		if err != nil {
			return start, false, err
		}
		if over {
			watermark = through
			break
		}
		heads, err := r.Store.Heads(ctx, k.ChannelNo, watermark, through, pageSize)
		if err != nil {
			return start, false, err
		}
		ids := make([]ident.ID, 0, len(heads))
		for _, h := range heads {
			if k.Concerns(h) {
				ids = append(ids, h.ID)
			}
		}
		states := map[ident.ID]durable.JobState{}
		if len(ids) > 0 {
			if states, err = r.Store.JobStates(ctx, k.No, ids); err != nil {
				return start, false, err
			}
		}
		blocked := false
		for _, h := range heads {
			if k.Concerns(h) && states[h.ID].Status == durable.Waiting {
				blocked = true
				break
			}
			watermark = h.ID
		}
		if blocked {
			break
		}
		if len(heads) < pageSize {
			watermark = through
		}
	}
	return watermark, watermark != start, nil
}

func minID(a, b ident.ID) ident.ID {
	if a.Compare(b) < 0 {
		return a
	}
	return b
}
