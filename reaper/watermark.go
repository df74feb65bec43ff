package reaper

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// watermarkTick is the interval at which the settled watermarks advance. A restart
	// scans the messages that are newer than the watermark again.
	watermarkTick = 10 * time.Second
	// watermarkFirst is the time of the first round after a start, which has what the brokers
	// before left behind.
	watermarkFirst = time.Second
	// watermarkPages bounds the pages that one round reads for one consumer.
	watermarkPages = 500
)

func (r *Reaper) watermarkLoop(ctx context.Context) {
	next := time.NewTimer(watermarkFirst)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(watermarkTick)
		}
		if err := r.advanceWatermarks(ctx); err != nil && ctx.Err() == nil {
			r.Log.Debug("the settled watermarks cannot advance", "error", err)
		}
	}
}

// Leave advances the settled watermarks once more, after Run has returned. What the next start scans
// is then what came in the last seconds.
func (r *Reaper) Leave(ctx context.Context) {
	if err := guard.Do("watermarks", func() error { return r.advanceWatermarks(ctx) }); err != nil {
		r.Log.Debug("the settled watermarks stay where they are; the next start scans more", "error", err)
	}
}

// advanceWatermarks moves the settled watermark of each consumer forward, to just before
// the first message whose job has no outcome and no open_jobs row.
func (r *Reaper) advanceWatermarks(ctx context.Context) error {
	if err := r.cleanWatermarks(ctx); err != nil {
		return err
	}
	history, through := r.history(), r.through()
	seen := r.Cluster.Clock()
	now, err := r.Store.CheckHistory(ctx, seen)
	if err != nil || now.History != seen.History { // the next renewal of the lease tells of another one
		return err
	}
	var moved []durable.Settled
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
				if k.Deleted() || !r.Cluster.Owns(k.No) {
					continue
				}
				m, err := r.advanceOne(ctx, k, minID(latest.ID, through))
				if err != nil {
					return err
				}
				if m.Through != m.After {
					moved = append(moved, m)
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
	var others map[uint32]ident.ID
	saved, err := r.inHistory(ctx, history, func() (err error) {
		others, err = r.Store.SaveWatermarks(ctx, now, moved)
		return err
	})
	if !saved {
		return err
	}
	ends := make(map[uint32]ident.ID, len(moved))
	for _, m := range moved {
		if _, other := others[m.ConsumerNo]; !other {
			ends[m.ConsumerNo] = m.Through
		}
	}
	r.advanced(history, ends)
	r.adopt(history, others)
	return nil
}

// advanceOne returns the stretch by which the settled watermark of one consumer moves. It
// writes nothing.
func (r *Reaper) advanceOne(ctx context.Context, k *durable.Consumer, through ident.ID) (durable.Settled, error) {
	m := durable.Settled{ConsumerNo: k.No}
	r.mu.Lock()
	l := r.scanStates[k.No]
	if l != nil {
		m.After = l.settled
	}
	r.mu.Unlock()
	m.Through = m.After
	if l == nil {
		return m, nil
	}
	for range watermarkPages {
		if m.Through.Compare(through) >= 0 {
			break
		}
		tally, over, err := r.allDelivered(ctx, k, m.Through, through)
		if err != nil {
			return m, err
		}
		if over {
			m.Accepted, m.Filtered = m.Accepted+tally.Owed+tally.Filtered, m.Filtered+tally.Filtered
			m.Delivered, m.Through = m.Delivered+tally.Owed, through
			break
		}
		heads, err := r.Store.Heads(ctx, k.ChannelNo, m.Through, through, pageSize)
		if err != nil {
			return m, err
		}
		blocked, err := r.settle(ctx, k, heads, &m)
		if err != nil {
			return m, err
		}
		if blocked {
			break
		}
		if len(heads) < pageSize {
			m.Through = through
		}
	}
	return m, nil
}

// settle moves the end of a stretch over heads, up to the first one whose job waits.
func (r *Reaper) settle(ctx context.Context, k *durable.Consumer, heads []durable.Head,
	m *durable.Settled) (blocked bool, err error) {
	ids := make([]ident.ID, 0, len(heads))
	for _, h := range heads {
		if k.Concerns(h) {
			ids = append(ids, h.ID)
		}
	}
	states := map[ident.ID]durable.JobState{}
	if len(ids) > 0 {
		if states, err = r.Store.JobStates(ctx, k.No, ids); err != nil {
			return false, err
		}
	}
	for _, h := range heads {
		if k.Concerns(h) {
			switch states[h.ID].Status {
			case durable.Waiting:
				return true, nil
			case durable.Delivered:
				m.Delivered++
			}
			m.Accepted++
		} else if k.LeftOut(h) {
			m.Accepted++
			m.Filtered++
		}
		m.Through = h.ID
	}
	return false, nil
}

func minID(a, b ident.ID) ident.ID {
	if a.Compare(b) < 0 {
		return a
	}
	return b
}
