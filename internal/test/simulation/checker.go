package simulation

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// The invariants. What a step can break is checked at the step, by a checker;
// what only shows in the end by final.
//
//	I1  nothing acknowledged is lost: stored, and delivered or dead for each
//	    consumer of its audience; a settled watermark never passes an open job
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
//	I8  messages and outcomes add up, and so do the books
//	I9  a message ID is one message
//	I10 where nothing fails, a publish is answered 201
//	I12 a job of the queue is in one set
//	I13 a consumer that is held gets no request, a second after the change
//	I14 an ordered consumer gets a message of a key when the one before it is over
//	I15 a window of a rate has no more requests than the rate allows
//	I16 a scheduled message is stored at its time: never before, and within a second where
//	    nothing fails
//	I17 each message that a consumer with responses took is answered: the producer has one
//	    response, which is that of the consumer
//	I18 a replay that is done has repeated each message of its time that was over when it
//	    began, and no other
//	I19 each row of a bulk that was accepted is one message, and no row of one that was refused
//	I20 a consumer that is attached as of a time, and not ordered, gets the messages of the past before those of
//	    its own time with the same or a lower priority
//	I21 what a journal took is stored, its receipt leads to it, or says lost where the disk returned
//	    other bytes, and after the last fault the journals are empty within the bound
//	I22 messages of a producer with an ordering key, sent one after the other to one broker with a
//	    journal, are stored in that order
//	I23 a producer that holds less than its share of the memory of bodies has room there, whatever
//	    bodies others send, and what these held is free when their clients are gone
//	I24 consumers that hang delay no other one; each of their requests is an attempt, and where they
//	    never answer, their jobs are dead after as many as the policy has
//	I25 a job that was purged is not given out again until it is redriven, and no job is
//	    purged that is in flight
//	I26 each open job that is not in flight has a reason, which is true
//	I27 a job is dead with worker_lost only when more of its leases were lost than its consumer bears
//	I28 a redrive opens each letter that it means once, leaves none out, and counts what became of each
//
// I11, resources, and I10 under faults are not for a simulation.

// A checker checks every step of a run. The first violation ends the run.
type checker struct {
	w *world

	mu        sync.Mutex
	wrong     string // the first violation
	about     ident.ID
	jobs      map[jobKey]*trace
	disturbed disturbances
	cuts      disturbances              // calls that did not reach Redis in time
	calls     map[*disturbance]struct{} // that are under way to Redis; their end is open
	losses    int
	olderAt   time.Duration // when the store went back to an earlier state; 0: never
	handedOut int
	repeated  int // duplicates that were explained

	redrives map[redriveKey]map[ident.ID]int // how often a redrive has opened a letter

	arrivals   map[uint32][]time.Duration // of requests, by consumer with a rate
	lateCounts disturbances               // counts of requests that were answered late
}

func newChecker(w *world) *checker {
	return &checker{w: w, jobs: map[jobKey]*trace{}, calls: map[*disturbance]struct{}{},
		arrivals: map[uint32][]time.Duration{}, redrives: map[redriveKey]map[ident.ID]int{}}
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

// touched checks the structure of the keys after a script.
func (c *checker) touched(l *life, consumer uint32, k *queuemodel.Consumer) {
	if id, what := k.Structure(); what != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fail(id, "I12: consumer %d: a job %s (after a call of broker %d)", consumer, what, l.no)
	}
}

// enqueued records an offer of jobs.
func (c *checker) enqueued(l *life, consumer uint32, jobs []redisq.Job, src redisq.Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		l.note("enqueued", consumer, j.ID, [...]string{"fresh", "repeated", "recovered"}[src])
	}
}

// granted checks and records a lease.
func (c *checker) granted(l *life, consumer uint32, lease redisq.Lease, asked time.Time, span time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trace(jobKey{consumer, lease.ID})
	now := c.w.now()
	g := &grant{life: l.no, token: lease.Token, attempt: lease.Attempt, asked: asked.Sub(c.w.start), at: now, span: span,
		until: now + span}
	if t.live != nil && t.live.until > now && !c.disturbed.hit(0, t.live.at, now) {
		c.fail(lease.ID, "I6: consumer %d: leased to broker %d as %s while %s of broker %d is live", consumer, l.no, g.token,
			t.live.token, t.live.life)
	}
	t.live = g
	t.grants = append(t.grants, g)
	l.note("leased", consumer, lease.ID, fmt.Sprintf("%s attempt %d flags %d", lease.Token, lease.Attempt, lease.Flags))
}

// inTurn checks a lease that the queue chose: no job of the past waits for its first one (I20). A
// clock of Redis that goes back reorders what waits, until reclaim drops it. The server holds its
// lock.
func (c *checker) inTurn(consumer uint32, lease redisq.Lease) {
	if c.w.server.back || c.w.server.mixed[consumer] {
		return
	}
	past := c.w.store.pastOf(consumer, lease)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range past {
		if len(c.trace(jobKey{consumer, id}).grants) == 0 {
			c.fail(lease.ID, "I20: consumer %d: leased before %s, which is of the past", consumer, id)
		}
	}
}

// restored records leases that are restored in Redis.
func (c *checker) restored(l *life, consumer uint32, leases []redisq.Lease, mine []bool, span time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, lease := range leases {
		l.note("restored", consumer, lease.ID, fmt.Sprintf("%s attempt %d: %t", lease.Token, lease.Attempt, mine[i]))
		t := c.trace(jobKey{consumer, lease.ID})
		for _, g := range t.grants {
			if mine[i] && g.token == lease.Token && g.life == l.no {
				g.until = max(g.until, c.w.now()+span)
				t.live = g
			}
		}
	}
}

// ended records leases that were given back.
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
			// Only a Redis that went back in time issues a token twice.
			if g.token == lease.Token && g.life == l.no && what != "nacked" && !g.used {
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
	for _, j := range x.Returned {
		c.trace(jobKey{consumer, j.ID}).live = nil
		l.note("reclaimed", consumer, j.ID, "")
	}
	for _, lease := range x.Exhausted {
		c.trace(jobKey{consumer, lease.ID}).live = nil
		l.note("exhausted", consumer, lease.ID, "")
	}
}

// answered checks that the lease of a pull worker had not ended at the time of the answer.
func (c *checker) answered(l *life, consumer uint32, id ident.ID, token string, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := false
	for _, g := range c.trace(jobKey{consumer, id}).grants {
		if g.life != l.no || g.token != token {
			continue
		}
		if over = at >= g.asked+g.span; !over {
			return // the lease is ambiguous if Redis issued a token twice
		}
	}
	if over {
		c.fail(id, "I6: consumer %d: broker %d gave out %s, whose lease was over", consumer, l.no, token)
	}
}

// claims records that a pull worker is about to report a job as over.
func (c *checker) claims(k jobKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trace(k).claimed = true
}

// recorded checks outcomes that are now on disk.
func (c *checker) recorded(l *life, rows []durable.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range rows {
		t := c.trace(jobKey{o.ConsumerNo, o.ID})
		l.note("recorded", o.ConsumerNo, o.ID, [...]string{"delivered", "retry", "dead", "given back"}[o.Kind])
		if o.Reason == durable.QueuePurged {
			c.purged(l, o, t)
		}
		if o.Kind != durable.OutcomeDelivered {
			continue
		}
		accepted := t.claimed
		for _, h := range t.handed {
			accepted = accepted || h.ok
		}
		if accepted = accepted && !c.w.hangsAlways(o.ConsumerNo); !accepted {
			c.fail(o.ID, "I3: consumer %d: recorded as delivered by broker %d, and nobody accepted it", o.ConsumerNo, l.no)
		}
		if t.storedAt == 0 {
			t.storedAt = c.w.now()
		}
	}
}

// reopened records a dead letter that is an open job again.
func (c *checker) reopened(k jobKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.trace(k)
	t.reopened++
	t.opened, t.purgedAt = c.w.now(), 0
}

// walked checks that a scan stays behind all messages that can still be inserted, since it never
// returns (I1).
func (c *checker) walked(l *life, channel uint32, through ident.ID) {
	if age := c.w.store.nowMs() - through.Millis(); age <= durable.MaxIDAge.Milliseconds() {
		c.report(through, "I1: broker %d walks channel %d up to an ID that is %d ms old", l.no, channel, age)
	}
}

// marked checks the settled watermarks: every job up to them has an outcome or a row. The store is at its
// turn.
func (c *checker) marked(l *life) {
	s, p := c.w.store, c.w.store.look()
	for consumer, mark := range must(s.Watermarks(context.Background())) {
		k := s.consumer(consumer)
		for _, m := range p.of(k.ChannelNo) {
			if m.ID.Compare(mark) <= 0 && concerns(m.ID, m.Audience, k) &&
				p.state(jobKey{consumer, m.ID}).Status == durable.Waiting {
				c.report(m.ID, "I1: consumer %d: broker %d settled past a job without outcome", consumer, l.no)
			}
		}
	}
}
