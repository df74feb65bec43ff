package accept

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// admissionTick is the period in which admission adjusts its bound.
	admissionTick = 50 * time.Millisecond
	// admissionDelay is the target for the delay between a commit and the start of its delivery.
	// Twice of it gains a fiftieth of the rate, with batches a twentieth; half of it costs a tenth.
	admissionDelay = 20 * time.Millisecond
	// admissionStep is the largest relative move of the base in one tick. admissionDamp is the
	// largest relative distance of the bound from the base, which the delay of the current tick
	// sets. The step alone finds the bound but oscillates around it, because a delay is measured
	// only after it has passed.
	admissionStep, admissionDamp = 0.05, 0.5
	// admissionFar is a delay at which steps are too small: the messages accepted in the meantime
	// take processor time that deliveries need. Beyond it each tick reduces the base to the
	// fraction admissionCut.
	admissionFar, admissionCut = 5 * admissionDelay, 0.7
	// admissionLeast and admissionMost are the limits of the bound. admissionMost publishes fill
	// the transactions that may be under way. A larger bound gains nothing, and admits publishes
	// before a delay shows the overload.
	admissionLeast, admissionMost = 16, Committers * commitRows
	// admissionQuiet is the number of ticks without an observed delivery after which no delivery
	// needs protection. A shorter silence may come from a broker that is too busy to deliver.
	admissionQuiet = 20
	// admissionYoung is the largest delay that counts as a measure of the broker's load. An older
	// message waited for its consumer: a backlog that drains after an outage must not hold back
	// producers.
	admissionYoung = 5 * time.Second
	// admissionFast is the longest request that counts. A longer one was slow because of its
	// consumer.
	admissionFast = 100 * time.Millisecond
)

// An Admission bounds the publishes under way, so that accepting never starves delivering.
// Acknowledging a publish costs less than delivering it: without the bound, the queue grows for as
// long as an overload lasts. The bound follows the delay between commit and delivery for fast
// consumers, as a controller with a proportional and an integral part (docs/decisions/012).
type Admission struct {
	sum, count atomic.Int64 // delays observed since the last tick, ns
	old        atomic.Int64 // deliveries above admissionYoung since the last tick

	mu      sync.Mutex
	limit   int
	base    float64 // the integral part of limit
	most    int
	room    int // for visitors
	quiet   int // ticks since the last observed delivery
	inside  int
	peak    int                   // maximum of inside since the last tick
	waiting share.Turns[*visitor] // by producer
}

// A visitor waits for n places, in turn with those of other keys.
type visitor struct {
	key      share.Key
	n        int
	admitted chan struct{} // closed when the places are taken for it
}

// NewAdmission returns an admission in which at most waiting publishes may wait.
func NewAdmission(waiting int64) *Admission {
	return newAdmission(min(admissionMost, int(waiting)), int(waiting))
}

// newAdmission returns an admission for at most most publishes under way. room is the number of
// visitors that may wait.
func newAdmission(most, room int) *Admission {
	return &Admission{limit: most, most: most, room: room, base: float64(most)}
}

// Observe records the delay of one delivery from its commit to its request, and the duration of the
// request.
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

// enter waits for n places under a key, at most patience and until gone is closed. It reports whether
// it took them. A visitor larger than the whole bound is admitted alone. Of the room for visitors a
// key takes at most as much as is free.
func (g *Admission) enter(k share.Key, n int, patience time.Duration, gone <-chan struct{}) bool {
	g.mu.Lock()
	if g.waiting.Len() == 0 && g.fits(n) {
		g.take(n)
		g.mu.Unlock()
		return true
	}
	if g.waiting.Of(k) >= g.room-g.waiting.Len() {
		g.mu.Unlock()
		return false
	}
	v := &visitor{key: k, n: n, admitted: make(chan struct{})}
	g.waiting.Push(k, v)
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
	if !g.waiting.Remove(k, v) {
		return true // admitted at the last moment
	}
	g.admit() // the next visitors may be smaller
	return false
}

func (g *Admission) take(n int) {
	g.inside += n
	g.peak = max(g.peak, g.inside)
}

func (g *Admission) fits(n int) bool { return g.inside+n <= g.limit || g.inside == 0 }

// leave returns n places and admits visitors, a key at a time, those of a key in their order.
func (g *Admission) leave(n int) {
	g.mu.Lock()
	g.inside -= n
	g.admit()
	g.mu.Unlock()
}

func (g *Admission) admit() {
	g.waiting.ServeInOrder(func(v *visitor) bool {
		if !g.fits(v.n) {
			return false
		}
		g.take(v.n)
		close(v.admitted)
		return true
	})
}

// Inside returns how many places are taken.
func (g *Admission) Inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// Run adjusts the bound until ctx ends.
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
	case old > 0 && g.base < float64(g.most): // the messages of an overload may be this late by now
		g.follow(admissionYoung, peak)
	case g.quiet >= admissionQuiet:
		g.base, g.limit = float64(g.most), g.most
	}
	g.admit()
}

// follow adjusts the bound to the mean delay of deliveries.
func (g *Admission) follow(delay time.Duration, peak int) {
	// 1: no delay, 0: the target delay, -1: twice the target or more.
	slack := max(-1, 1-float64(delay)/float64(admissionDelay))
	step := 1 + admissionStep*slack
	if delay > admissionFar {
		step = admissionCut
	}
	if slack < 0 { // start from the use, not from a bound that was not reached
		g.base = min(g.base, float64(peak))
	}
	g.base = min(float64(g.most), max(admissionLeast, g.base*step))
	g.limit = min(g.most, max(admissionLeast, int(g.base*(1+admissionDamp*slack))))
}
