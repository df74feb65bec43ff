package publish

import (
	"context"
	"time"
)

// rate takes places in the publish rates for drafts that have none yet. Those for which there is none get
// the refusal as their error. Nothing of a draft is stored before.
func (w *Drafter) rate(ctx context.Context, all []*Draft) {
	if !w.p.rates.Limited(w.ch, w.producer.No) {
		return
	}
	n := 0
	for _, d := range all {
		if d.err == nil && !d.rated {
			n++
		}
	}
	left, refusal := w.p.rates.Take(ctx, w.ch, w.producer, n)
	for _, d := range all {
		switch {
		case d.err != nil || d.rated:
		case left > 0:
			d.rated = true
			left--
		default:
			d.err = refusal
		}
	}
}

// Pace returns for how many of the next rows of a bulk the publish rates have places, which these rows then
// have, and how long to wait where there are none.
func (p *Publisher) Pace(ctx context.Context, channelNo, producerNo uint32, rows int) (n int, wait time.Duration) {
	ch := p.catalogue.ChannelByNo(channelNo)
	if ch == nil {
		return rows, 0
	}
	n, wait, _ = p.rates.Some(ctx, ch, producerNo, rows)
	return n, wait
}
