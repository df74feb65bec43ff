package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// settleEvery is how often the settled marks are moved. What is newer than
	// the mark is walked again after a restart.
	settleEvery = 10 * time.Second
	// settlePages bounds one consumer's share of one round.
	settlePages = 500
)

func (r *Reaper) settleLoop(ctx context.Context) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.settle(ctx); err != nil && ctx.Err() == nil {
			r.Log.Debug("settled marks cannot be moved", "error", err)
		}
	}
}

// settle moves the mark of each consumer up to the first message whose job the
// store knows nothing about.
func (r *Reaper) settle(ctx context.Context) error {
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
				mark, changed, err := r.settleOne(ctx, k, minID(latest.ID, through))
				if err != nil {
					return err
				}
				if changed {
					moved[k.No] = mark
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
	for consumer, mark := range moved {
		if l := r.ledgers[consumer]; l != nil {
			l.settled = mark
		}
	}
	return nil
}

func (r *Reaper) settleOne(ctx context.Context, k *durable.Consumer, through ident.ID) (mark ident.ID, changed bool, err error) {
	r.mu.Lock()
	l := r.ledgers[k.No]
	if l != nil {
		mark = l.settled
	}
	r.mu.Unlock()
	if l == nil {
		return mark, false, nil
	}
	start := mark
	for range settlePages {
		if mark.Compare(through) >= 0 {
			break
		}
		over, err := r.allDelivered(ctx, k, mark, through)
		if err != nil {
			return start, false, err
		}
		if over {
			mark = through
			break
		}
		heads, err := r.Store.Heads(ctx, k.ChannelNo, mark, through, pageSize)
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
			mark = h.ID
		}
		if blocked {
			break
		}
		if len(heads) < pageSize {
			mark = through
		}
	}
	return mark, mark != start, nil
}

func minID(a, b ident.ID) ident.ID {
	if a.Compare(b) < 0 {
		return a
	}
	return b
}
