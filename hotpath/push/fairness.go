package push

import "time"

// The slots of the process are shared so that however many consumers hang, others find a free one:
//
//   - Lanes that are not known to be quick, because they answer slowly, have stalled or have not
//     answered yet, share three quarters of the slots, in equal parts.
//   - The last eighth is for lanes that have few slots: an eighth of what is free. It is what is left
//     where consumers that were quick hang at once, before anybody can know it.
//
// A claim takes at most half of the free slots. A lane without a slot gets one as long as there is one.

// stalledAfter is the time without the end of a request after which a consumer counts as slow.
const stalledAfter = 4 * fastService

// busySlots returns the number of slots that the lane has.
func (l *lane) busySlots() int {
	held, _ := l.standing()
	return held
}

// standing returns the number of slots that the lane has, and whether its consumer answers quickly.
func (l *lane) standing() (held int, quick bool) {
	service := l.service.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	stalled := l.posting > 0 && time.Since(l.moved) > stalledAfter
	return l.claims + len(l.waiting) + l.posting, service > 0 && service <= int64(fastService) && !stalled
}

// grant returns how many of n slots a lane may take. The caller holds d.mu.
func (d *Dispatcher) grant(l *lane, n int) int {
	held, quick := l.standing()
	most := d.settings.Concurrency
	n = min(n, max(d.slots/2, 1), max(d.slots-most/8, d.slots/8-held))
	if !quick && d.slots < most-most/4 { // else there is no need to look at the others
		n = min(n, d.part(l, held))
	}
	if held == 0 {
		n = max(n, 1)
	}
	return max(min(n, d.slots), 0)
}

// part returns how many more slots a lane that is not quick may take of the part for such lanes.
func (d *Dispatcher) part(l *lane, held int) int {
	most, others, all := d.settings.Concurrency*3/4, 1, held
	for _, other := range d.lanes {
		if other == l {
			continue
		}
		if n, quick := other.standing(); n > 0 && !quick {
			others++
			all += n
		}
	}
	return min(most/others-held, most-all)
}
