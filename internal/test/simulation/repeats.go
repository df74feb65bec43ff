package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
)

// A disturbance is a fault that can make a broker give out a job that is in
// flight a second time.
type disturbance struct {
	from, to time.Duration
	life     int // 0: all
}

type disturbances []disturbance

// hit tells whether one of a life, or of all, fell into a stretch of time.
func (ds disturbances) hit(life int, from, to time.Duration) bool {
	return ds.only(life, from, to) || life != 0 && ds.only(0, from, to)
}

// only is hit of that life alone.
func (ds disturbances) only(life int, from, to time.Duration) bool {
	return slices.ContainsFunc(ds, func(d disturbance) bool { return d.life == life && d.from <= to && d.to >= from })
}

// disturb notes a fault of a life, 0: of all.
func (c *checker) disturb(life int, from, to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbed = append(c.disturbed, disturbance{from: from, to: to, life: life})
	if life == 0 {
		c.losses++
	}
}

// cut notes a call of Redis that failed or took long, of a life, 0: a hint that
// may have reached nobody.
func (c *checker) cut(life int, from, to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts = append(c.cuts, disturbance{from: from, to: to, life: life})
}

// wentBack notes a Redis that forgets only what is new.
func (c *checker) wentBack() { c.cut(0, c.w.now(), c.w.now()) }

// hand notes that a job reaches its consumer, and checks whether it may.
func (c *checker) hand(l *life, k durable.Consumer, id ident.ID, attempt int) *handed {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handedOut++
	t := c.trace(jobKey{k.No, id})
	now := c.w.now()
	h := &handed{life: l.no, attempt: attempt, at: now, asked: now}
	g := t.use(l.no, attempt)
	if g == nil {
		c.fail(id, "I6: consumer %d: attempt %d is given out by broker %d without a lease", k.No, attempt, l.no)
	} else {
		h.asked = g.asked
		if t.storedAt > 0 && g.asked > t.storedAt {
			c.fail(id, "I2: consumer %d: given out by broker %d, which asked for it after its success was stored", k.No, l.no)
		}
	}
	if k.Type == durable.Push {
		c.handPush(k, id, t, h)
	}
	t.handed = append(t.handed, h)
	l.note("given out", k.No, id, fmt.Sprintf("attempt %d", attempt))
	return h
}

func (c *checker) handPush(k durable.Consumer, id ident.ID, t *trace, h *handed) {
	for _, e := range t.handed {
		if e.ok {
			if !c.explained(t, e, h) {
				c.fail(id, "I2: consumer %d: given out by broker %d again, and nothing explains it", k.No, h.life)
			}
			c.repeated++
			break
		}
	}
	for _, e := range t.handed {
		if e.attempt == h.attempt && t.reopened == 0 && !c.miscounted(t, e, h) {
			c.fail(id, "I6: consumer %d: attempt %d is sent twice", k.No, h.attempt)
		}
	}
	if len(t.handed)+1 > maxAttempts*(1+t.reopened+c.losses) {
		c.fail(id, "I7: consumer %d: attempt number %d of at most %d", k.No, len(t.handed)+1, maxAttempts)
	}
}

// miscounted tells whether an attempt may have the number of an earlier one: Redis
// lost the count, and one of the two who made them, each with a lease that the other
// did not see, was dead, paused or cut off from Redis and could not give it back.
func (c *checker) miscounted(t *trace, first, again *handed) bool {
	if !c.disturbed.hit(0, t.grants[0].asked, again.at) {
		return false
	}
	from := min(first.asked, again.asked)
	return c.disturbed.only(first.life, from, again.at) || c.disturbed.only(again.life, from, again.at) ||
		c.cuts.hit(first.life, from, again.at) || c.cuts.hit(again.life, from, again.at)
}

// explained tells whether a job that was accepted may be given out again: the
// answer was lost, a fault hit one of the two while it was in flight, or somebody
// redrove the job then, which ends its lease.
func (c *checker) explained(t *trace, first, again *handed) bool {
	end := again.at
	if t.storedAt > 0 {
		end = min(end, t.storedAt)
	}
	return first.lost || t.reopened > 0 && t.opened >= first.asked || c.disturbed.hit(first.life, first.asked, end) || c.disturbed.hit(again.life, again.asked, again.at) ||
		c.shaken(t, first.asked)
}

// shaken tells whether Redis lost state while the job was leased to anybody whose
// lease could still be used at a time. A restored Redis gives the tokens of such
// leases again, so that two brokers hold the same one.
func (c *checker) shaken(t *trace, from time.Duration) bool {
	for _, g := range t.grants {
		if g.until >= from && c.disturbed.hit(0, g.asked, g.until) {
			return true
		}
	}
	return false
}

// accepted notes that the consumer has done its work; lost that its answer will
// not arrive.
func (c *checker) accepted(h *handed, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ok, h.lost = true, lost
}
