package accept

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// admissionTick is the period in which admission adjusts its bound.
	admissionTick = 50 * time.Millisecond
	// admissionDelay is the delay between a commit and the start of its delivery that
	// admission keeps: far inside a second at the 99th percentile.
	admissionDelay = 40 * time.Millisecond
	// admissionStep is the largest move of the bound in one tick, and admissionDamp the
	// largest push from there by the delay of this very tick. The step alone finds the
	// bound but swings around it, because a delay is felt only after it has passed.
	admissionStep, admissionDamp = 0.05, 0.5
	// admissionFar is a delay at which steps are too small: the messages accepted
	// meanwhile take the processors that deliveries need. Each tick leaves admissionCut
	// of the bound.
	admissionFar, admissionCut = 5 * admissionDelay, 0.7
	// admissionLeast publishes may always wait for the store, and never more than
	// admissionMost: these fill the transactions that may be under way. More gains
	// nothing, and would be admitted before a delay shows that it is too much.
	admissionLeast, admissionMost = 16, committers * commitRows
	// admissionQuiet is the number of ticks without a fast delivery after which there is
	// nothing to protect. Fewer may be the work of a broker that is too busy to deliver.
	admissionQuiet = 20
	// admissionPatience is how long a publish waits for admission before it is refused. A
	// publish that is admitted at its end is delivered within a second of its sending, as
	// a rule.
	admissionPatience = 800 * time.Millisecond
	// admissionYoung: only messages accepted this recently tell how loaded the broker is.
	// An older message waited for its consumer: a backlog that drains after an outage
	// must not hold back producers.
	admissionYoung = 5 * time.Second
	// admissionFast: a request that took longer was slow because of its consumer.
	admissionFast = 100 * time.Millisecond
)

// An Admission bounds how many publishes are under way, so that accepting never
// starves delivering. Acknowledgements cost less than deliveries: without it,
// under overload, the queue grows for as long as the load lasts. The bound follows
// the delay between commit and delivery that fast consumers see, as a controller
// with a proportional and an integral part (docs/decisions/012).
type Admission struct {
	sum, count atomic.Int64 // delays seen since the last tick, ns
	old        atomic.Int64 // deliveries of messages that are not young, since then

	mu      sync.Mutex
	limit   int
	base    float64 // the integral part of limit
	most    int
	room    int // for visitors
	quiet   int // ticks since a fast delivery was seen
	inside  int
	peak    int        // most that were inside since the last tick
	waiting []*visitor // oldest first
}

// A visitor waits for n places.
type visitor struct {
	n        int
	admitted chan struct{} // closed when it has them
}

// NewAdmission returns an admission of which at most waiting publishes may wait.
func NewAdmission(waiting int64) *Admission {
	return newAdmission(min(admissionMost, int(waiting)), int(waiting))
}

// newAdmission returns an admission for at most most publishes under way. room is the
// number of visitors that may wait.
func newAdmission(most, room int) *Admission {
	return &Admission{limit: most, most: most, room: room, base: float64(most)}
}

// Observe takes the delay of one delivery from commit to its request.
func (g *Admission) Observe(delay, took time.Duration) {
	switch {
	case took > admissionFast:
	case delay > admissionYoung:
		g.old.Add(1)
	default:
		g.sum.Add(int64(delay))
		g.count.Add(1)
	}
}

// enter waits for n places, at most patience and until gone is closed, and reports whether it
// has them. A visitor larger than the whole bound is let in alone.
func (g *Admission) enter(n int, patience time.Duration, gone <-chan struct{}) bool {
	g.mu.Lock()
	if len(g.waiting) == 0 && g.fits(n) {
		g.take(n)
		g.mu.Unlock()
		return true
	}
	if len(g.waiting) >= g.room {
		g.mu.Unlock()
		return false
	}
	v := &visitor{n: n, admitted: make(chan struct{})}
	g.waiting = append(g.waiting, v)
	g.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-v.admitted:
		return true
	case <-timer.C:
	case <-gone:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch i := slices.Index(g.waiting, v); i {
	case -1:
		return true // admitted at the last moment
	case 0: // as a rule: all wait equally long
		g.waiting = g.waiting[1:]
	default:
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.admit() // those behind it may be smaller
	return false
}

func (g *Admission) take(n int) {
	g.inside += n
	g.peak = max(g.peak, g.inside)
}

func (g *Admission) fits(n int) bool { return g.inside+n <= g.limit || g.inside == 0 }

// leave gives n places back. The visitors that wait longest get them.
func (g *Admission) leave(n int) {
	g.mu.Lock()
	g.inside -= n
	g.admit()
	g.mu.Unlock()
}

func (g *Admission) admit() {
	for len(g.waiting) > 0 && g.fits(g.waiting[0].n) {
		g.take(g.waiting[0].n)
		close(g.waiting[0].admitted)
		g.waiting = g.waiting[1:]
	}
}

// Run moves the bound until ctx ends.
func (g *Admission) Run(ctx context.Context) {
	tick := time.NewTicker(admissionTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			g.adjust()
		}
	}
}

func (g *Admission) adjust() {
	sum, count, old := g.sum.Swap(0), g.count.Swap(0), g.old.Swap(0)
	g.mu.Lock()
	defer g.mu.Unlock()
	peak := g.peak
	g.peak = g.inside
	if g.quiet++; count+old > 0 {
		g.quiet = 0
	}
	switch {
	case count > 0:
		g.follow(time.Duration(sum/count), peak)
	case old > 0 && g.base < float64(g.most): // what has been too much is so late by now
		g.follow(admissionYoung, peak)
	case g.quiet >= admissionQuiet:
		g.base, g.limit = float64(g.most), g.most
	}
	g.admit()
}

// follow moves the bound after a delay that deliveries saw.
func (g *Admission) follow(delay time.Duration, peak int) {
	// 1: no delay at all, 0: as long as it may be, -1: twice that or more.
	slack := max(-1, 1-float64(delay)/float64(admissionDelay))
	step := 1 + admissionStep*slack
	if delay > admissionFar {
		step = admissionCut
	}
	if slack < 0 { // from the places in use, not from a bound that no load reached
		g.base = min(g.base, float64(peak))
	}
	g.base = min(float64(g.most), max(admissionLeast, g.base*step))
	g.limit = min(g.most, max(admissionLeast, int(g.base*(1+admissionDamp*slack))))
}
