package push

import "time"

// Slow consumers share three quarters of the slots of the process, in equal parts. The rest is for
// consumers that answer quickly: however many consumers hang, these find a free slot.

// stalledAfter is the time without the end of a request after which a consumer counts as slow.
const stalledAfter = 4 * fastService

// slow reports whether the consumer answers slowly, or has not answered for a while.
func (l *lane) slow() bool {
	if l.service.Load() > int64(fastService) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.posting > 0 && time.Since(l.moved) > stalledAfter
}

// busySlots returns the number of slots that the lane has.
func (l *lane) busySlots() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims + len(l.waiting) + l.posting
}

// share returns how many more slots a slow lane may take; a lane without a slot gets one. The caller
// holds d.mu.
func (d *Dispatcher) share(l *lane) int {
	taken := l.busySlots()
	slow := 1
	for _, other := range d.lanes {
		if other != l && other.slow() && other.busySlots() > 0 {
			slow++
		}
	}
	return max(d.settings.Concurrency*3/4/slow, 1) - taken
}

// fair returns how many of n slots a lane may take.
func (d *Dispatcher) fair(l *lane, n int) int {
	if !l.slow() {
		return n
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(n, d.share(l))
}
