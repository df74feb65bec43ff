package push

import "time"

// A Load is how busy this broker is with the requests of one push consumer.
type Load struct {
	Slots    int       // requests that the consumer may have in flight at this broker
	InFlight int       // those that it has, or that are about to begin
	Oldest   time.Time // when the oldest of them was claimed; zero: there is none
	Full     bool      // the consumer gets no slot, because others have those of the process
	Behind   bool      // outcomes wait for the store, so nothing is claimed
	Short    bool      // a large payload found no room
}

// Load returns how busy this broker is with a consumer. The zero value is that of one without a lane.
func (d *Dispatcher) Load(consumer uint32) Load {
	l := d.lane(consumer)
	if l == nil {
		return Load{}
	}
	out := Load{Slots: l.limit, Behind: d.outcomes.Room() < claimMax, Short: l.short.Load()}
	out.InFlight, out.Oldest = d.inFlight.count(l)
	held, _ := l.standing()
	d.mu.Lock()
	defer d.mu.Unlock()
	out.Full = held < l.limit && d.grant(l, 1) == 0
	return out
}

// count returns the number of the deliveries of a lane, and when the oldest was claimed.
func (h *inFlight) count(l *lane) (n int, oldest time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for v := range h.byLane[l] {
		if oldest.IsZero() || v.at.Before(oldest) {
			oldest = v.at
		}
	}
	return len(h.byLane[l]), oldest
}
