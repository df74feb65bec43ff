package hotpath

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// gateTick is how often the gate looks at what deliveries tell it.
	gateTick = 100 * time.Millisecond
	// gateDelay is the time between commit and the start of a delivery that the
	// gate holds the broker to: well inside a second at the 99th percentile.
	gateDelay = 200 * time.Millisecond
	// gateLeast is how many publishes may always wait for the store.
	gateLeast = 16
	// gatePatience is how long a publish waits at the gate before it is refused.
	gatePatience = time.Second
	// gateYoung: only messages accepted this recently say how loaded the broker
	// is. What waited longer waited for its consumer: a backlog that drains after
	// an outage must not hold back producers.
	gateYoung = 5 * time.Second
	// gateFast: a request that took longer was slow for its consumer's sake.
	gateFast = 100 * time.Millisecond
)

// A gate bounds how many publishes are under way, so that accepting never
// starves delivering. Acknowledgements cost less than deliveries: without it,
// under overload, the queue grows for as long as the load lasts. The bound moves
// with the delay between commit and delivery that fast consumers see: down by a
// fifth when it is too long, up by a twentieth, or freely, when it is not.
type gate struct {
	sum, count atomic.Int64 // delays seen since the last tick, ns

	mu      sync.Mutex
	limit   int
	most    int
	inside  int
	waiting []chan struct{} // oldest first; closed when admitted
}

func newGate(most int) *gate { return &gate{limit: most, most: most} }

// observe takes the delay of one delivery from commit to its request.
func (g *gate) observe(delay, took time.Duration) {
	if took <= gateFast && delay <= gateYoung {
		g.sum.Add(int64(delay))
		g.count.Add(1)
	}
}

// enter waits for a place and reports whether there was one in time.
func (g *gate) enter() bool {
	g.mu.Lock()
	if g.inside < g.limit && len(g.waiting) == 0 {
		g.inside++
		g.mu.Unlock()
		return true
	}
	if len(g.waiting) >= g.most {
		g.mu.Unlock()
		return false
	}
	admitted := make(chan struct{})
	g.waiting = append(g.waiting, admitted)
	g.mu.Unlock()
	timer := time.NewTimer(gatePatience)
	defer timer.Stop()
	select {
	case <-admitted:
		return true
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == admitted {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return false
		}
	}
	return true // admitted at the last moment
}

// leave gives the place to the one who waits longest.
func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	g.admit()
	g.mu.Unlock()
}

func (g *gate) admit() {
	for g.inside < g.limit && len(g.waiting) > 0 {
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
		g.inside++
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
	sum, count := g.sum.Swap(0), g.count.Swap(0)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case count > 0 && time.Duration(sum/count) > gateDelay:
		// From what is in use, not from a bound that nothing reached.
		g.limit = max(gateLeast, min(g.limit, g.inside)*4/5)
	case g.limit < g.most:
		g.limit = min(g.most, g.limit+max(1, g.limit/20))
		if count == 0 {
			g.limit = g.most // nothing is being delivered: nothing to protect
		}
		g.admit()
	}
}
