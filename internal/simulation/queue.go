package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A server is one Redis: the keys of all consumers, a clock and a run_id. Its
// state may be lost; queueSeam is how a broker reaches it.
type server struct {
	clock func() time.Time

	mu     sync.Mutex
	jump   time.Duration // added to clock
	run    int
	lanes  map[uint32]*lane
	epochs int // given so far
	flaw   flaw
}

func newServer(clock func() time.Time) *server {
	return &server{clock: clock, run: 1, lanes: map[uint32]*lane{}}
}

// nowMs is TIME. Call it with mu held.
func (r *server) nowMs() int64 { return r.clock().Add(r.jump).UnixMilli() }

// lane returns the keys of a consumer. Call it with mu held.
func (r *server) lane(consumer uint32) *lane {
	k := r.lanes[consumer]
	if k == nil {
		k = newLane()
		r.lanes[consumer] = k
	}
	return k
}

// wipe is FLUSHALL; with restart another process answers afterwards.
func (r *server) wipe(restart bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.lanes
	r.lanes = map[uint32]*lane{}
	if r.flaw == wipeIsHidden {
		r.keepEpochs(old)
	}
	if restart && r.flaw != wipeIsHidden {
		r.run++
	}
}

// snapshot copies everything, as BGSAVE would.
func (r *server) snapshot() map[uint32]*lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[uint32]*lane{}
	for consumer, k := range r.lanes {
		out[consumer] = k.clone()
	}
	return out
}

// restore makes another process answer, with the state of a snapshot.
func (r *server) restore(saved map[uint32]*lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run++
	r.lanes = map[uint32]*lane{}
	for consumer, k := range saved {
		r.lanes[consumer] = k.clone()
	}
}

// A lane is the five keys of one consumer.
type lane struct {
	epoch   string
	fence   int64
	spilled int // highest priority outside the window, -1 none
	spills  int64
	brought int64              // newest time in the ID of a job that came by another way than a fresh offer, ms
	looked  int64              // when reclaim last looked, ms
	ready   map[ident.ID]int64 // score
	delayed map[ident.ID]int64 // due, ms
	leased  map[ident.ID]int64 // deadline, ms
	metas   map[ident.ID]meta
}

// A meta is what the meta hash says of a job that is not plain.
type meta struct {
	priority, attempts int
	flags              redisq.Flags
	token              string
	since              int64 // in ready before the lease; 0: not leased
}

func newLane() *lane {
	return &lane{spilled: -1, ready: map[ident.ID]int64{}, delayed: map[ident.ID]int64{}, leased: map[ident.ID]int64{}, metas: map[ident.ID]meta{}}
}

func (k *lane) clone() *lane {
	c := *k
	c.ready, c.delayed, c.leased, c.metas = maps.Clone(k.ready), maps.Clone(k.delayed), maps.Clone(k.leased), maps.Clone(k.metas)
	return &c
}

// Scores as in redisq: priority above time.
const readyBits = 42

func score(priority int, ms int64) int64 {
	return int64(redisq.MaxPriority-priority)<<readyBits + ms
}
func priorityOf(s int64) int { return redisq.MaxPriority - int(s>>readyBits) }
func sinceOf(s int64) int64  { return s & (1<<readyBits - 1) }

// ordered lists a set by score, then ID.
func ordered(set map[ident.ID]int64) []ident.ID {
	if len(set) == 0 {
		return nil
	}
	ids := slices.Collect(maps.Keys(set))
	slices.SortFunc(ids, func(a, b ident.ID) int { return cmp.Or(cmp.Compare(set[a], set[b]), a.Compare(b)) })
	return ids
}

// token makes the next fence into a token.
func (k *lane) token() string {
	k.fence++
	return fmt.Sprintf("%s.%d", k.epoch, k.fence)
}

// promote lets due jobs in.
func (k *lane) promote(now int64) {
	for id, due := range k.delayed {
		if due > now {
			continue
		}
		m := k.metas[id]
		delete(k.delayed, id)
		k.ready[id] = score(m.priority, due)
		if m.attempts == 0 && m.flags == 0 {
			delete(k.metas, id)
		}
	}
}

// nextDue is the time until a delayed job is due or a lease ends.
func (k *lane) nextDue(now int64) time.Duration {
	first := int64(0)
	for _, set := range []map[ident.ID]int64{k.delayed, k.leased} {
		for _, at := range set {
			if first == 0 || at < first {
				first = at
			}
		}
	}
	if first == 0 {
		return 0
	}
	return time.Duration(max(first-now, 1)) * time.Millisecond
}

// metaOf is what is known of a job in ready.
func (k *lane) metaOf(id ident.ID) meta {
	m, ok := k.metas[id]
	if !ok {
		m = meta{priority: priorityOf(k.ready[id])}
	}
	return m
}

// structure returns a job that is where it must not be, and where that is; "" when
// every job is in its place (I12).
func (k *lane) structure() (ident.ID, string) {
	for id := range k.ready {
		if _, ok := k.delayed[id]; ok {
			return id, "is ready and delayed"
		}
		if _, ok := k.leased[id]; ok {
			return id, "is ready and leased"
		}
	}
	for id := range k.delayed {
		if _, ok := k.leased[id]; ok {
			return id, "is delayed and leased"
		}
	}
	for id := range k.leased {
		if k.metas[id].token == "" {
			return id, "is leased without a token"
		}
	}
	for id, m := range k.metas {
		_, leased := k.leased[id]
		_, ready := k.ready[id]
		_, delayed := k.delayed[id]
		if !leased && !ready && !delayed {
			return id, "has a meta field and is nowhere"
		}
		if !leased && m.token != "" {
			return id, "has a token and no lease"
		}
	}
	return none, ""
}
