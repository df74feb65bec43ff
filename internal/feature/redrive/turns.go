package redrive

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// turn bounds the time that the redrives of a channel have in a round. They have equal parts of it, of at least
	// least; those that find none left are first in the next round.
	turn, least = 200 * time.Millisecond, 10 * time.Millisecond
)

// A work is a redrive that may go on.
type work struct {
	k   *durable.Consumer
	u   *run
	row *durable.Redriving
}

// round lets the redrives of this broker go on, a turn for each channel, however many it has. It returns the last
// error, and whether there are any.
func (r *Runner) round(ctx context.Context) (busy bool, failure error) {
	all, err := r.mine(ctx)
	if err != nil {
		return false, err
	}
	seen, channels := map[key]*run{}, map[uint32][]work{}
	for _, w := range all {
		id := w.id()
		if w.u = r.runs[id]; w.u == nil {
			w.u = &run{}
		}
		seen[id] = w.u
		channels[w.k.ChannelNo] = append(channels[w.k.ChannelNo], w)
	}
	r.runs = seen
	for channel, of := range channels {
		if err := r.turn(ctx, channel, of); err != nil {
			failure = err
		}
	}
	maps.DeleteFunc(r.last, func(channel uint32, _ key) bool { return channels[channel] == nil })
	return len(all) > 0, failure
}

// mine returns the redrives of consumers that this broker looks after, by the numbers of consumer and redrive.
func (r *Runner) mine(ctx context.Context) (all []work, err error) {
	for after := (key{}); ; {
		page, err := r.o.Store.BusyRedrivings(ctx, after.consumer, after.no, listed)
		if err != nil {
			return nil, err
		}
		for i := range page {
			after = key{page[i].ConsumerNo, page[i].No}
			k := r.o.Catalogue.ConsumerByNo(after.consumer)
			if k != nil && !k.Deleted() && r.o.Cluster.Owns(k.No) {
				all = append(all, work{k: k, row: &page[i]})
			}
		}
		if len(page) < listed {
			return all, nil
		}
	}
}

func (w *work) id() key { return key{w.row.ConsumerNo, w.row.No} }

// turn lets the redrives of one channel go on, from the one after that which had the last turn.
func (r *Runner) turn(ctx context.Context, channel uint32, of []work) (failure error) {
	first := slices.IndexFunc(of, func(w work) bool { return w.id().after(r.last[channel]) })
	first = max(first, 0)
	end := time.Now().Add(turn)
	for i := range of {
		now := time.Now()
		if i > 0 && !now.Before(end) {
			break
		}
		w := &of[(first+i)%len(of)]
		r.last[channel] = w.id()
		part := max(turn/time.Duration(len(of)), least)
		if err := guard.Do("redrive", func() error { return r.goOn(ctx, w, now.Add(part)) }); err != nil {
			failure = err
		}
	}
	return failure
}

func (k key) after(o key) bool {
	return cmp.Or(cmp.Compare(k.consumer, o.consumer), cmp.Compare(k.no, o.no)) > 0
}
