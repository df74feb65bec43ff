package push

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// An inFlight is the set of the deliveries whose leases this process holds.
type inFlight struct {
	mu     sync.Mutex
	byLane map[*lane]map[*delivery]struct{}
}

func (h *inFlight) add(v *delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.byLane[v.lane]
	if set == nil {
		set = map[*delivery]struct{}{}
		h.byLane[v.lane] = set
	}
	set[v] = struct{}{}
}

func (h *inFlight) remove(v *delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byLane[v.lane], v)
}

// older returns the leases claimed before a time, by lane.
func (h *inFlight) older(than time.Time) map[*lane][]redisq.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[*lane][]redisq.Lease{}
	for l, set := range h.byLane {
		for v := range set {
			if v.at.Before(than) {
				out[l] = append(out[l], v.lease)
			}
		}
		if len(set) == 0 {
			delete(h.byLane, l)
		}
	}
	return out
}

// of returns the deliveries of a lane. Where one job has several, it returns only the latest
// attempt: the leases of the others were lost before.
func (h *inFlight) of(l *lane) []*delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	latest := make(map[ident.ID]*delivery, len(h.byLane[l]))
	for v := range h.byLane[l] {
		if w := latest[v.lease.ID]; w == nil || w.lease.Attempt < v.lease.Attempt {
			latest[v.lease.ID] = v
		}
	}
	return slices.Collect(maps.Values(latest))
}

// heartbeat extends the leases of slow deliveries and of outcomes that wait for the store. A lost
// lease is not claimed back. A late success is still stored; a late failure finds its token
// refused.
func (d *Dispatcher) heartbeat(ctx context.Context) {
	every := d.settings.Lease / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for l, leases := range d.inFlight.older(time.Now().Add(-every)) {
			op, cancel := context.WithTimeout(ctx, every)
			if _, err := d.queue.Extend(op, l.no, leases, d.lease(l.consumer.Load())); err != nil && ctx.Err() == nil {
				d.log.Warn("leases cannot be extended", "consumer", l.no, "jobs", len(leases), "error", err)
			}
			cancel()
		}
	}
}
