package reaper

import (
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Worklist is the work that waits for a Reaper: the consumers to visit and the progress of
// their scans. The parts that a Reaper needs report to its Worklist, so a Worklist is made
// before them and the Reaper after them.
type Worklist struct {
	mu         sync.Mutex
	scanStates map[uint32]*scanState
	watch      map[uint32]time.Time // consumers with leases or delayed jobs -> time of the next visit
	sweep      bool                 // brokers came or went: reclaim visits all consumers soon
	reread     bool                 // brokers came or went: read the settled watermarks again
	resting    map[uint32]time.Time // consumers whose state was lost -> when to rebuild it
	renew      bool                 // another Redis process answers: every consumer needs a new epoch
	wake       chan struct{}        // capacity 1: reconcile now
}

// NewWorklist returns the Worklist of a Reaper that starts.
func NewWorklist() *Worklist {
	return &Worklist{scanStates: map[uint32]*scanState{}, watch: map[uint32]time.Time{}, sweep: true,
		resting: map[uint32]time.Time{}, wake: make(chan struct{}, 1)}
}

// Touch makes the reaper watch a consumer, which has leases or delayed jobs. It never
// blocks.
func (a *Worklist) Touch(consumer uint32) {
	a.mu.Lock()
	_, known := a.watch[consumer]
	if !known {
		a.watch[consumer] = time.Now().Add(firstLook)
	}
	a.mu.Unlock()
}

// Dirty reports that the store may have open_jobs rows of a consumer that Redis lacks. The
// reconciler offers all of them again. Dirty never blocks.
func (a *Worklist) Dirty(consumer uint32) {
	a.mu.Lock()
	if l := a.scanStates[consumer]; l != nil {
		l.openFrom, l.openDone = ident.ID{}, false
	}
	a.mu.Unlock()
	a.poke()
}

// Refill reports that the window of a consumer has room while the queue assumes that jobs
// are outside it. The reconciler loads those jobs. Where none is left, because the jobs
// entered Redis in another way, the reconciler ends the spill: until then every new job
// stays outside the window. Refill never blocks.
func (a *Worklist) Refill(consumer uint32) {
	a.mu.Lock()
	if l := a.scanStates[consumer]; l != nil {
		l.spilled = true
	}
	a.mu.Unlock()
	a.poke()
}

func (a *Worklist) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
