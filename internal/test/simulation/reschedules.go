package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// Changes of schedules. They have other times and the same content, by which the checker knows them.

// reschedule is a producer that changes the times of its schedules, earlier and later, while brokers
// send them.
func (w *world) reschedule() {
	if !w.plan.schedules {
		return
	}
	r := draw(w.seed, word("reschedule"))
	for w.faulty() || w.plan.calm && w.now() < w.plan.active {
		time.Sleep(r.between(100*time.Millisecond, 900*time.Millisecond))
		b, was := w.broker(r.below(w.plan.brokers)), w.store.waiting()
		delay := r.between(200*time.Millisecond, 3*time.Second)
		if b == nil || was == nil {
			continue
		}
		w.mu.Lock()
		p := w.byPayload[string(was.Payload)]
		settled := slices.ContainsFunc(p.tries, try.stored) // a repeat of its request would be another one
		before := p.dueMs
		if settled {
			p.dueMs = min(before, w.store.nowMs()+delay.Milliseconds()) // until it is known
		}
		w.mu.Unlock()
		if !settled {
			continue
		}
		rc := request(nil, map[string]string{"X-Broker-Delay": delay.String()}, "")
		now, err := b.plane.Reschedule(rc, catalogue.Standing{}, was, durable.ScheduleChange{ID: was.ID})
		w.told("changed", fmt.Sprintf("%q: %v", was.Payload, err))
		w.mu.Lock()
		switch {
		case err == nil && b.life.awake():
			p.dueMs = now.DueMs
		case errors.Is(err, durable.ErrDispatched):
			p.dueMs = before
		}
		w.mu.Unlock()
	}
}
