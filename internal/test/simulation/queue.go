package simulation

import (
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/test/queuemodel"
)

// A server is one Redis: the keys of all consumers, a clock and a run_id. Its
// state may be lost; queueSeam is how a broker reaches it.
type server struct {
	clock  func() time.Time
	behind func(consumer uint32) bool // as redisq.Queue.Behind

	mu     sync.Mutex
	jump   time.Duration // added to clock
	run    int
	lanes  map[uint32]*queuemodel.Consumer
	epochs int // given so far
	flaw   flaw
	back   bool            // it went back in time: the spill that it remembers may be that of another time
	mixed  map[uint32]bool // consumers with jobs from before the clock went back, which sort behind later ones
}

func newServer(clock func() time.Time, behind func(consumer uint32) bool) *server {
	return &server{clock: clock, behind: behind, run: 1, lanes: map[uint32]*queuemodel.Consumer{}}
}

// nowMs is TIME. Call it with mu held.
func (r *server) nowMs() int64 { return r.clock().Add(r.jump).UnixMilli() }

// lane returns the keys of a consumer. Call it with mu held.
func (r *server) lane(consumer uint32) *queuemodel.Consumer {
	k := r.lanes[consumer]
	if k == nil {
		k = queuemodel.New()
		r.lanes[consumer] = k
	}
	return k
}

// advance moves the clock, back when d is negative.
func (r *server) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jump += d
	if d < 0 {
		r.mixed = map[uint32]bool{}
		for consumer := range r.lanes {
			r.mixed[consumer] = true
		}
	}
}

// wipe is FLUSHALL; with restart another process answers afterwards.
func (r *server) wipe(restart bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.lanes
	r.lanes, r.mixed = map[uint32]*queuemodel.Consumer{}, nil
	if r.flaw == wipeIsHidden {
		r.keepEpochs(old)
	}
	if restart && r.flaw != wipeIsHidden {
		r.run++
	}
}

// snapshot copies everything, as BGSAVE would.
func (r *server) snapshot() map[uint32]*queuemodel.Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[uint32]*queuemodel.Consumer{}
	for consumer, k := range r.lanes {
		out[consumer] = k.Clone()
	}
	return out
}

// restore makes another process answer, with the state of a snapshot.
func (r *server) restore(saved map[uint32]*queuemodel.Consumer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run++
	r.back = true
	r.lanes = map[uint32]*queuemodel.Consumer{}
	for consumer, k := range saved {
		r.lanes[consumer] = k.Clone()
	}
}
