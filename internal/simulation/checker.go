package simulation

import (
	"fmt"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// The invariants. What a step can break is checked at the step, by a checker;
// what only shows in the end by final.
//
//	I1  nothing acknowledged is lost: stored, and delivered or dead for each
//	    consumer of its audience; a settled mark never passes an open job
//	I2  a job is given out again only when a fault hit while it was in flight,
//	    and never when its outcome was stored before the claim
//	I3  what was refused is not stored, what is not stored is not delivered, and
//	    what no consumer accepted is not recorded as delivered
//	I4  a delivery is the message as it was published
//	I5  after the last fault everything is over within a bound
//	I6  a job has one live lease, and an attempt number is sent once: also when Redis
//	    loses its memory, unless the sender is dead, paused or cut off from it then;
//	    a pull worker is given no lease that is over
//	I7  no more attempts than configured
//	I8  messages and outcomes add up
//	I9  a message ID is one message
//	I10 where nothing fails, a publish is answered 201
//	I12 a job of the queue is in one set
//
// I11, resources, and I10 under faults are not for a simulation.

// A checker watches every step of a run. The first thing that is wrong ends it.
type checker struct {
	w *world

	mu         sync.Mutex
	wrong      string // the first violation
	about      ident.ID
	jobs       map[jobKey]*trace
	disturbed  []disturbance
	cuts       []disturbance // whoever did not reach Redis in time
	losses     int
	handedOut  int
	repeated   int // duplicates that were explained
	lateOffers map[ident.ID]bool
}

// A disturbance is a fault that can make a broker give out a job that is in
// flight a second time.
type disturbance struct {
	from, to time.Duration
	life     int // 0: all
}

// A trace is what is known of one job.
type trace struct {
	grants   []*grant
	live     *grant // its lease, as far as we know
	handed   []*handed
	claimed  bool          // a pull worker said DELIVERED or DEAD
	storedAt time.Duration // delivered; 0: not
	reopened int
	opened   time.Duration // the last time
}

// A grant is a lease that a life was given.
type grant struct {
	life      int
	token     string
	attempt   int
	asked, at time.Duration
	span      time.Duration
	until     time.Duration // by the clock of Redis
	used      bool
}

// A handed is one time that a job was given to its consumer.
type handed struct {
	life    int
	attempt int
	asked   time.Duration // when its lease was asked for
	at      time.Duration
	ok      bool // the consumer accepted it
	lost    bool // and the broker will not hear of it
}

func newChecker(w *world) *checker {
	return &checker{w: w, jobs: map[jobKey]*trace{}, lateOffers: map[ident.ID]bool{}}
}

// fail records a violation. Call it with mu held.
func (c *checker) fail(id ident.ID, format string, args ...any) {
	if c.wrong == "" {
		c.wrong, c.about = fmt.Sprintf(format, args...), id
		c.w.history.end(event{what: "VIOLATION", id: id, detail: c.wrong})
	}
}

func (c *checker) report(id ident.ID, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(id, format, args...)
}

func (c *checker) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong != ""
}

func (c *checker) trace(k jobKey) *trace {
	t := c.jobs[k]
	if t == nil {
		t = &trace{}
		c.jobs[k] = t
	}
	return t
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

// disturbance tells whether a fault of the life fell into a stretch of time.
func (c *checker) disturbance(life int, from, to time.Duration) bool {
	for _, d := range c.disturbed {
		if (d.life == 0 || d.life == life) && d.from <= to && d.to >= from {
			return true
		}
	}
	return false
}

// severed tells whether a life did not reach Redis in time for a while.
func (c *checker) severed(life int, from, to time.Duration) bool {
	for _, d := range c.cuts {
		if (d.life == 0 || d.life == life) && d.from <= to && d.to >= from {
			return true
		}
	}
	return false
}

// touched checks the structure of the keys after a script.
func (c *checker) touched(l *life, consumer uint32, k *lane) {
	if id, what := k.structure(); what != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.lateOffers[id] {
			c.fail(id, "I12: consumer %d: a job %s (after a call of broker %d)", consumer, what, l.no)
		}
	}
}

// enqueued notes offers of fresh jobs that are so late that the reconciler may
// have been faster: the process stood still between its look at the clock and the
// call. Fresh jobs are looked up in ready alone, so these can be in two sets.
func (c *checker) enqueued(l *life, consumer uint32, jobs []redisq.Job, src redisq.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		if src == redisq.Fresh && c.w.store.nowMs()-j.ID.Millis() > durable.MaxIDAge.Milliseconds() {
			c.lateOffers[j.ID] = true
		}
		l.note("enqueued", consumer, j.ID, [...]string{"fresh", "repeated", "recovered"}[src])
	}
}

// overdue notes an offer of fresh jobs that reaches Redis after its sender has
// given up on it, and so perhaps after the same jobs were offered again.
func (c *checker) overdue(jobs []redisq.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		c.lateOffers[j.ID] = true
	}
}

// granted checks and notes a lease.
func (c *checker) granted(l *life, consumer uint32, lease redisq.Lease, asked time.Time, span time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trace(jobKey{consumer, lease.ID})
	now := c.w.now()
	g := &grant{life: l.no, token: lease.Token, attempt: lease.Attempt, asked: asked.Sub(c.w.start), at: now, span: span, until: now + span}
	if t.live != nil && t.live.until > now && !c.disturbance(0, t.live.at, now) && !c.lateOffers[lease.ID] {
		c.fail(lease.ID, "I6: consumer %d: leased to broker %d as %s while %s of broker %d is live", consumer, l.no, g.token, t.live.token, t.live.life)
	}
	t.live = g
	t.grants = append(t.grants, g)
	l.note("leased", consumer, lease.ID, fmt.Sprintf("%s attempt %d flags %d", lease.Token, lease.Attempt, lease.Flags))
}

// held notes leases that Redis has back.
func (c *checker) held(l *life, consumer uint32, leases []redisq.Lease, mine []bool, span time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, lease := range leases {
		l.note("held", consumer, lease.ID, fmt.Sprintf("%s attempt %d: %t", lease.Token, lease.Attempt, mine[i]))
		t := c.trace(jobKey{consumer, lease.ID})
		for _, g := range t.grants {
			if mine[i] && g.token == lease.Token && g.life == l.no {
				g.until = max(g.until, c.w.now()+span)
				t.live = g
			}
		}
	}
}

// ended notes leases that were given back.
func (c *checker) ended(l *life, what string, consumer uint32, leases []redisq.Lease, moved []bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, lease := range leases {
		if !moved[i] {
			continue
		}
		t := c.trace(jobKey{consumer, lease.ID})
		t.live = nil
		for _, g := range t.grants {
			// Only a Redis that went back in time gives a token twice.
			if g.token == lease.Token && g.life == l.no && what == "released" && !g.used {
				g.used = true // it was not sent and will not be
				break
			}
		}
		l.note(what, consumer, lease.ID, lease.Token)
	}
}

func (c *checker) acked(l *life, consumer uint32, ids []ident.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.trace(jobKey{consumer, id}).live = nil
		l.note("acked", consumer, id, "")
	}
}

func (c *checker) reclaimed(l *life, consumer uint32, x redisq.Expired) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range x.Returned {
		c.trace(jobKey{consumer, id}).live = nil
		l.note("reclaimed", consumer, id, "")
	}
	for _, lease := range x.Exhausted {
		c.trace(jobKey{consumer, lease.ID}).live = nil
		l.note("exhausted", consumer, lease.ID, "")
	}
}

// answered checks that the lease which a pull worker was given at some time was not
// over by then.
func (c *checker) answered(l *life, consumer uint32, id ident.ID, token string, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	grants := c.trace(jobKey{consumer, id}).grants
	for i := len(grants) - 1; i >= 0; i-- { // only a Redis that went back in time gives a token twice
		if g := grants[i]; g.life == l.no && g.token == token {
			if at >= g.asked+g.span {
				c.fail(id, "I6: consumer %d: broker %d gave out %s, whose lease was over", consumer, l.no, token)
			}
			return
		}
	}
}

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
			if !c.explained(t, e, h) && !c.lateOffers[id] {
				c.fail(id, "I2: consumer %d: given out by broker %d again, and nothing explains it", k.No, h.life)
			}
			c.repeated++
			break
		}
	}
	for _, e := range t.handed {
		if e.attempt == h.attempt && t.reopened == 0 && !c.miscounted(t, e, h) && !c.lateOffers[id] {
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
	if !c.disturbance(0, t.grants[0].asked, again.at) {
		return false
	}
	from := min(first.asked, again.asked)
	for _, d := range c.disturbed {
		if (d.life == first.life || d.life == again.life) && d.from <= again.at && d.to >= from {
			return true
		}
	}
	return c.severed(first.life, from, again.at) || c.severed(again.life, from, again.at)
}

// explained tells whether a job that was accepted may be given out again: the
// answer was lost, a fault hit one of the two while it was in flight, or somebody
// redrove the job then, which ends its lease.
func (c *checker) explained(t *trace, first, again *handed) bool {
	end := again.at
	if t.storedAt > 0 {
		end = min(end, t.storedAt)
	}
	return first.lost || t.reopened > 0 && t.opened >= first.asked || c.disturbance(first.life, first.asked, end) || c.disturbance(again.life, again.asked, again.at) ||
		c.shaken(t, first.asked)
}

// shaken tells whether Redis lost state while the job was leased to anybody whose
// lease could still be used at a time. A restored Redis gives the tokens of such
// leases again, so that two brokers hold the same one.
func (c *checker) shaken(t *trace, from time.Duration) bool {
	for _, g := range t.grants {
		if g.until >= from && c.disturbance(0, g.asked, g.until) {
			return true
		}
	}
	return false
}

// use finds the lease on which a life gives a job out: the one of that attempt,
// or, as the store may know of more attempts than Redis, the oldest of fewer.
func (t *trace) use(life, attempt int) *grant {
	var found *grant
	for _, g := range t.grants {
		switch {
		case g.life != life || g.used || g.attempt > attempt:
		case g.attempt == attempt:
			g.used = true
			return g
		case found == nil:
			found = g
		}
	}
	if found != nil {
		found.used = true
	}
	return found
}

// accepted notes that the consumer has done its work; lost that its answer will
// not arrive.
func (c *checker) accepted(h *handed, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.ok, h.lost = true, lost
}

// claims notes that a pull worker is about to declare a job over.
func (c *checker) claims(k jobKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trace(k).claimed = true
}

// recorded checks outcomes that are on disk now.
func (c *checker) recorded(l *life, rows []durable.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range rows {
		t := c.trace(jobKey{o.ConsumerNo, o.ID})
		l.note("recorded", o.ConsumerNo, o.ID, [...]string{"delivered", "retry", "dead"}[o.Kind])
		if o.Kind != durable.OutcomeDelivered {
			continue
		}
		accepted := t.claimed
		for _, h := range t.handed {
			accepted = accepted || h.ok
		}
		if !accepted {
			c.fail(o.ID, "I3: consumer %d: recorded as delivered by broker %d, and nobody accepted it", o.ConsumerNo, l.no)
		}
		if t.storedAt == 0 {
			t.storedAt = c.w.now()
		}
	}
}

// reopened notes a dead letter that is an open job again.
func (c *checker) reopened(k jobKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trace(k)
	t.reopened++
	t.opened = c.w.now()
}

// walked checks that a walk stays behind everything that can still be inserted: it
// never comes back (I1).
func (c *checker) walked(l *life, channel uint32, through ident.ID) {
	if age := c.w.store.nowMs() - through.Millis(); age <= durable.MaxIDAge.Milliseconds() {
		c.report(through, "I1: broker %d walks channel %d up to an ID that is %d ms old", l.no, channel, age)
	}
}

// marked checks the settled marks: what they pass has an outcome or a row.
func (c *checker) marked(l *life) {
	s := c.w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for consumer, mark := range s.marks {
		k := s.consumers[consumer-1]
		for _, m := range s.messages[k.ChannelNo] {
			if m.ID.Compare(mark) <= 0 && m.Audience > k.Position && s.state(jobKey{consumer, m.ID}).Status == durable.Waiting {
				c.report(m.ID, "I1: consumer %d: broker %d settled past a job without outcome", consumer, l.no)
			}
		}
	}
}
