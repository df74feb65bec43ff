package hotpath

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gateTick is how often the gate looks at what deliveries tell it.
	gateTick = 50 * time.Millisecond
	// gateDelay is the time between commit and the start of a delivery that the
	// gate holds the broker to: far inside a second at the 99th percentile.
	gateDelay = 40 * time.Millisecond
	// gateStep is how far the bound moves at most in one tick, and gateDamp how far
	// from there the delay of this very tick may push it. The first alone finds the
	// bound but swings around it, because a delay is felt only after it has passed.
	gateStep, gateDamp = 0.05, 0.5
	// gateFar is a delay at which steps are too small: what was let in meanwhile
	// takes the processors that deliveries need. Each tick leaves gateCut of the bound.
	gateFar, gateCut = 5 * gateDelay, 0.7
	// gateLeast is how many publishes may always wait for the store, gateMost how
	// many ever do: what fills the transactions that may be under way. More gains
	// nothing, and is let in before anybody knows that it is too much.
	gateLeast, gateMost = 16, committers * commitRows
	// gateQuiet is the number of ticks without a fast delivery after which there is nothing
	// to protect. Fewer may be the work of a broker that is too busy to deliver.
	gateQuiet = 20
	// gatePatience is how long a publish waits at the gate before it is refused: what is
	// let in at its end is delivered within a second of its sending, as a rule.
	gatePatience = 800 * time.Millisecond
	// gateYoung: only messages accepted this recently say how loaded the broker
	// is. What waited longer waited for its consumer: a backlog that drains after
	// an outage must not hold back producers that nothing holds back already.
	gateYoung = 5 * time.Second
	// gateFast: a request that took longer was slow for its consumer's sake.
	gateFast = 100 * time.Millisecond
)

// A gate bounds how many publishes are under way, so that accepting never
// starves delivering. Acknowledgements cost less than deliveries: without it,
// under overload, the queue grows for as long as the load lasts. The bound follows
// the delay between commit and delivery that fast consumers see, as a controller
// with a proportional and an integral part (docs/decisions/012).
type gate struct {
	sum, count atomic.Int64 // delays seen since the last tick, ns
	old        atomic.Int64 // deliveries of what is not young, since then

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

// A visitor waits at the gate for n places.
type visitor struct {
	n        int
	admitted chan struct{} // closed when it has them
}

// newGate makes a gate for at most most publishes under way, with room for others
// that wait.
func newGate(most, room int) *gate {
	return &gate{limit: most, most: most, room: room, base: float64(most)}
}

// observe takes the delay of one delivery from commit to its request.
func (g *gate) observe(delay, took time.Duration) {
	switch {
	case took > gateFast:
	case delay > gateYoung:
		g.old.Add(1)
	default:
		g.sum.Add(int64(delay))
		g.count.Add(1)
	}
}

// enter waits for n places, at most patience, and reports whether it has them.
// A visitor larger than the whole bound is let in alone.
func (g *gate) enter(n int, patience time.Duration) bool { return g.enterUnless(n, patience, nil) }

// enterUnless is enter of a visitor that goes away when gone is closed.
func (g *gate) enterUnless(n int, patience time.Duration, gone <-chan struct{}) bool {
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

func (g *gate) take(n int) {
	g.inside += n
	g.peak = max(g.peak, g.inside)
}

func (g *gate) fits(n int) bool { return g.inside+n <= g.limit || g.inside == 0 }

// leave gives n places back, to those who wait longest.
func (g *gate) leave(n int) {
	g.mu.Lock()
	g.inside -= n
	g.admit()
	g.mu.Unlock()
}

func (g *gate) admit() {
	for len(g.waiting) > 0 && g.fits(g.waiting[0].n) {
		g.take(g.waiting[0].n)
		close(g.waiting[0].admitted)
		g.waiting = g.waiting[1:]
	}
}

// Run moves the bound until ctx ends.
func (g *gate) Run(ctx context.Context) {
	tick := time.NewTicker(gateTick)
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

func (g *gate) adjust() {
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
		g.follow(gateYoung, peak)
	case g.quiet >= gateQuiet:
		g.base, g.limit = float64(g.most), g.most
	}
	g.admit()
}

// follow moves the bound after a delay that deliveries saw.
func (g *gate) follow(delay time.Duration, peak int) {
	// 1: no delay at all, 0: as long as it may be, -1: twice that or more.
	slack := max(-1, 1-float64(delay)/float64(gateDelay))
	step := 1 + gateStep*slack
	if delay > gateFar {
		step = gateCut
	}
	if slack < 0 { // from what is in use, not from a bound that nothing reached
		g.base = min(g.base, float64(peak))
	}
	g.base = min(float64(g.most), max(gateLeast, g.base*step))
	g.limit = min(g.most, max(gateLeast, int(g.base*(1+gateDamp*slack))))
}
