package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A disturbance is a fault that can make a broker deliver a job in flight a second time.
type disturbance struct {
	from, to time.Duration
	life     int // 0: all
}

type disturbances []disturbance

// hit reports whether a disturbance of a life, or of all, is in a period of time.
func (ds disturbances) hit(life int, from, to time.Duration) bool {
	return ds.only(life, from, to) || life != 0 && ds.only(0, from, to)
}

// only is hit for that life alone.
func (ds disturbances) only(life int, from, to time.Duration) bool {
	return slices.ContainsFunc(ds, func(d disturbance) bool { return d.life == life && d.from <= to && d.to >= from })
}

// disturb records a fault of a life; life 0 is all lives.
func (c *checker) disturb(life int, from, to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbed = append(c.disturbed, disturbance{from: from, to: to, life: life})
	if life == 0 {
		c.losses++
	}
}

// cut records a call to Redis that failed or took long, of a life; life 0 is a hint that may have
// reached no broker.
func (c *checker) cut(life int, from, to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts = append(c.cuts, disturbance{from: from, to: to, life: life})
}

// asking records that a call of a life to Redis begins. The caller calls ended at its end.
func (c *checker) asking(life int) (ended func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &disturbance{from: c.w.now(), life: life}
	c.calls[d] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.calls, d)
	}
}

// cutOff reports whether a life did not reach Redis in time in a period that ends now. A call that
// is under way for too long counts: its effect may come before its end.
func (c *checker) cutOff(life int, from time.Duration) bool {
	now := c.w.now()
	if c.cuts.hit(life, from, now) {
		return true
	}
	for d := range c.calls {
		if d.life == life && now-d.from > longCall {
			return true
		}
	}
	return false
}

// wentBack records a Redis that has lost only its latest writes.
func (c *checker) wentBack() { c.cut(0, c.w.now(), c.w.now()) }

// hand records that a job reaches its consumer, and checks whether it may.
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
		if t.purgedAt > 0 && g.asked > t.purgedAt {
			c.fail(id, "I25: consumer %d: given out by broker %d, which asked for it after it was purged", k.No, l.no)
		}
	}
	if k.Type == durable.Push {
		c.handPush(k, id, t, h)
	}
	t.handed = append(t.handed, h)
	l.note("given out", k.No, id, fmt.Sprintf("attempt %d", attempt))
	return h
}

// uncharged records an attempt that is answered 410.
func (c *checker) uncharged(h *handed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.gone = true
}

func (c *checker) handPush(k durable.Consumer, id ident.ID, t *trace, h *handed) {
	for _, e := range t.handed {
		if e.ok {
			if !c.explained(t, e, h) {
				c.fail(id, "I2: consumer %d: given out by broker %d again, and nothing explains it", k.No, h.life)
			}
			if !e.hangs {
				c.repeated++
			}
			break
		}
	}
	sent := 1
	for _, e := range t.handed {
		if !e.gone {
			sent++
		}
		if e.attempt == h.attempt && !e.gone && t.reopened == 0 && !c.miscounted(t, e, h) {
			c.fail(id, "I6: consumer %d: attempt %d is sent twice", k.No, h.attempt)
		}
	}
	if most := mostAttempts(k); sent > most*(1+t.reopened+c.losses) {
		c.fail(id, "I7: consumer %d: attempt number %d of at most %d", k.No, sent, most)
	}
}

// miscounted reports whether an attempt may have the number of an earlier one. That happens if
// Redis lost the count, and one of the two lives of these attempts, each with a lease unknown to
// the other, was dead, paused or cut off from Redis and could not restore its lease.
func (c *checker) miscounted(t *trace, first, again *handed) bool {
	if !c.disturbed.hit(0, t.grants[0].asked, again.at) {
		return false
	}
	from := min(first.asked, again.asked)
	return c.disturbed.only(first.life, from, again.at) || c.disturbed.only(again.life, from, again.at) ||
		c.cutOff(first.life, from) || c.cutOff(again.life, from)
}

// explained reports whether an accepted job may be delivered again: the answer was lost, a fault
// hit one of the two lives while the job was in flight, or a redrive in that time ended its lease.
func (c *checker) explained(t *trace, first, again *handed) bool {
	end := again.at
	if t.storedAt > 0 {
		end = min(end, t.storedAt)
	}
	return first.lost || t.reopened > 0 && t.opened >= first.asked || c.disturbed.hit(first.life, first.asked, end) ||
		c.disturbed.hit(again.life, again.asked, again.at) ||
		c.shaken(t, first.asked)
}

// shaken reports whether Redis lost state during a lease of the job that was still usable at a
// given time. A restored Redis issues the tokens of such leases again, so two brokers have the same
// token.
func (c *checker) shaken(t *trace, from time.Duration) bool {
	for _, g := range t.grants {
		if g.until >= from && c.disturbed.hit(0, g.asked, g.until) {
			return true
		}
	}
	return false
}

// late records that the exchange of an attempt has ended without an answer. It may have begun late,
// because Redis was slow to count the request, and then a slow consumer answers after it. Nothing
// explains an exchange that ends before the time of an attempt is over.
func (c *checker) late(h *handed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w.now()-h.asked >= deliveryTimeout {
		h.lost = true
	}
}

// accepted records that the consumer has done its work. With lost its answer does not arrive.
func (c *checker) accepted(h *handed, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ok, h.lost = true, lost
}
