package simulation

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// Hanging neighbours are push consumers beside those that answer. They accept each request, and their
// answer comes after the time of an attempt, or byte by byte, or never. Other consumers do not wait for
// them, and each request counts as an attempt (I24).

// A hanging is what hanging neighbours a plan has.
type hanging struct {
	consumers int // 0: none
	after     time.Duration
	ever      bool // they hang after the last fault too
}

// newHanging draws the hanging neighbours. It is a draw of its own: the rest of the plan stays.
func newHanging(seed uint64, p *plan) (h hanging) {
	c := draw(seed, word("hanging"))
	if !c.hit(60) {
		return h
	}
	h = hanging{consumers: 1 + c.below(3)}
	h.ever = c.hit(500) && (p.each > 1 || p.messages <= 8) // else all attempts take longer than the bound
	if c.hit(400) {                                        // they have been quick before
		h.after = c.between(0, p.active/2)
	}
	return h
}

// The ways in which a consumer hangs.
const (
	never   = iota
	late    // it answers, some time after the end of the attempt
	drips   // the head of its answer is there at once, and the body has no end
	allWays // how many there are
)

// joinHanging registers the neighbours, one after the other for the channels.
func (w *world) joinHanging() {
	w.hung = map[uint32]bool{}
	for n := range w.plan.hanging.consumers {
		k := w.store.putConsumer(w.channels[n%len(w.channels)], durable.Push, "", none)
		w.hung[k.No] = true
		w.joined[k.No] = w.now()
		w.note("hanging neighbour joins", k.ID)
	}
}

// hangs reports whether a consumer hangs now.
func (w *world) hangs(consumer uint32) bool {
	h := w.plan.hanging
	return w.hung[consumer] && w.now() >= h.after && (h.ever || w.now() < w.plan.active)
}

// hangsAlways reports whether a consumer never answers.
func (w *world) hangsAlways(consumer uint32) bool {
	h := w.plan.hanging
	return w.hung[consumer] && h.after == 0 && h.ever
}

// hang is a request to a neighbour, up to the end of the attempt.
func (t target) hang(h *handed, job string, attempt int, deadline time.Time) egress.Result {
	l, w := t.l, t.l.w
	r := draw(w.seed, word("hang"), uint64(t.consumer), word(job), uint64(attempt), uint64(l.no))
	if h != nil {
		w.checker.hangs(h, r.hit(500))
	}
	w.hanging.Add(1)
	slept := l.sleep(context.Background(), time.Until(deadline))
	w.hanging.Add(-1)
	if !slept || !l.awake() {
		return egress.Result{RetryAfter: -1, Err: egress.ErrClosed}
	}
	res := egress.Result{RetryAfter: -1, Err: egress.ErrTimeout, Sent: true, Local: w.flaw == hangsAreForgotten}
	if r.below(allWays) == drips {
		res.Status = 200
	}
	return res
}

// hangs records a request that has no answer. The consumer may have done its work all the same.
func (c *checker) hangs(h *handed, accepts bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ok, h.lost, h.hangs = accepts, true, true
}

// promptly bounds the time from the commit of a message to its request where only neighbours hang. It is
// less than the time of an attempt: nobody has waited for one.
const promptly = deliveryTimeout / 2

// checkPrompt checks that a message comes to a consumer without waiting for the neighbours (I24). Where
// something else keeps jobs back, nothing is checked.
func (w *world) checkPrompt(k durable.Consumer, id ident.ID, attempt int) {
	if w.plan.hanging.consumers == 0 || !w.plan.calm || w.hung[k.No] || attempt != 1 || k.Policy != "" ||
		k.Since != none || k.Type != durable.Push || w.plan.window < 1000 {
		return
	}
	age := time.Duration(w.store.nowMs()-id.Millis()) * time.Millisecond
	w.mu.Lock()
	joined, ok := w.joined[k.No]
	w.mu.Unlock()
	if ok && age < w.now()-joined && age > promptly {
		w.checker.report(id, "I24: consumer %d got a message after %s while others hang", k.No, age)
	}
}

// checkHung checks what became of the jobs of the neighbours. Without another fault each has one request
// for each attempt that is charged, and where they never answer all of its attempts.
func (w *world) checkHung() {
	s, c := w.store, w.checker
	if !w.plan.calm {
		return
	}
	p := s.look()
	for _, k := range s.consumers() {
		for _, m := range p.of(k.ChannelNo) {
			if !w.hung[k.No] || !concerns(m.ID, m.Audience, k) {
				continue
			}
			state := p.state(jobKey{k.No, m.ID})
			c.mu.Lock()
			requests := len(c.trace(jobKey{k.No, m.ID}).handed)
			c.mu.Unlock()
			switch {
			case state.Status == durable.Dead && requests == maxAttempts && state.Attempts == maxAttempts:
			case state.Status == durable.Delivered && !w.hangsAlways(k.No) && requests <= maxAttempts:
			default:
				c.report(m.ID, "I24: consumer %d hangs; its job has status %d after %d attempts and %d requests", k.No,
					state.Status, state.Attempts, requests)
			}
		}
	}
}
