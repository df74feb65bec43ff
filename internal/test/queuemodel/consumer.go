// Package queuemodel is a model of the queue of one consumer. It implements each script of
// redisq/lua as one atomic operation on maps. The conformance suite compares every server
// with the model, and the simulation runs on it, so the rules of the queue have two texts:
// the scripts and this package.
//
// Times are Unix milliseconds. The model has no clock; the caller passes the time.
package queuemodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A Consumer is the five keys of one consumer. It is not safe for concurrent use.
type Consumer struct {
	Epoch   string
	Fence   int64
	Spilled int    // highest priority outside the window, -1 none
	Scanned string // the epoch for which a scan of the store has ended
	Brought int64  // newest time in the ID of a job that no fresh offer added, ms
	Looked  int64  // time of the last reclaim, ms
	Held    int64  // no leases before, ms ...
	HeldAt  int64  // ... since, ms

	Spills  int64              // number of calls that spilled jobs
	buckets map[string]int     // leases by bucket, as grant.lua names them
	ready   map[ident.ID]int64 // score
	delayed map[ident.ID]int64 // due, ms
	leased  map[ident.ID]int64 // deadline, ms
	metas   map[ident.ID]meta
}

// A meta is the value of a job in the meta hash. A plain job has none.
type meta struct {
	priority, attempts int
	flags              redisq.Flags
	token, worker      string
	since              int64 // time in ready before the lease, ms; 0: not leased
}

// New returns the keys of a consumer that Redis does not know.
func New() *Consumer {
	return &Consumer{Spilled: -1, ready: map[ident.ID]int64{}, delayed: map[ident.ID]int64{}, leased: map[ident.ID]int64{},
		metas: map[ident.ID]meta{}, buckets: map[string]int{}}
}

// Clone returns a copy that shares nothing with k.
func (k *Consumer) Clone() *Consumer {
	c := *k
	c.ready, c.delayed, c.leased, c.metas = maps.Clone(k.ready), maps.Clone(k.delayed), maps.Clone(k.leased), maps.Clone(
		k.metas)
	c.buckets = maps.Clone(k.buckets)
	return &c
}

// readyBits is the width of the time in a score, as in redisq.
const readyBits = 42

func score(priority, attempts int, ms int64) int64 {
	s := int64(redisq.MaxPriority-priority)<<readyBits + ms
	if attempts > 0 {
		s += retries
	}
	return s
}

// retries is the score from which the ready jobs have attempts.
const retries = 1 << 52

func priorityOf(s int64) int { return redisq.MaxPriority - int(s%retries>>readyBits) }
func sinceOf(s int64) int64  { return s & (1<<readyBits - 1) }

// ordered returns the IDs of a set by score, then ID.
func ordered(set map[ident.ID]int64) []ident.ID {
	if len(set) == 0 {
		return nil
	}
	ids := slices.Collect(maps.Keys(set))
	slices.SortFunc(ids, func(a, b ident.ID) int { return cmp.Or(cmp.Compare(set[a], set[b]), a.Compare(b)) })
	return ids
}

// token returns a token with the next fence.
func (k *Consumer) token() string {
	k.Fence++
	return fmt.Sprintf("%s.%d", k.Epoch, k.Fence)
}

// Promote moves due jobs from delayed to ready.
func (k *Consumer) Promote(now int64) {
	for id, due := range k.delayed {
		if due > now {
			continue
		}
		m := k.metas[id]
		delete(k.delayed, id)
		k.ready[id] = score(m.priority, m.attempts, due)
		if m.attempts == 0 && m.flags == 0 {
			delete(k.metas, id)
		}
	}
}

// nextDue returns the time until a delayed job is due or a lease ends, 0 if there is none.
func (k *Consumer) nextDue(now int64) time.Duration {
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

// metaOf returns the meta of a ready job.
func (k *Consumer) metaOf(id ident.ID) meta {
	m, ok := k.metas[id]
	if !ok {
		m = meta{priority: priorityOf(k.ready[id])}
	}
	return m
}

// Structure returns a job that breaks an invariant of the keys, with a description of the
// breach. The description is "" if all jobs keep the invariants.
func (k *Consumer) Structure() (ident.ID, string) {
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
			return id, "has a meta field and is in no set"
		}
		if !leased && m.token != "" {
			return id, "has a token and no lease"
		}
	}
	return ident.ID{}, ""
}

// Len returns the sizes of the three sets.
func (k *Consumer) Len() (ready, delayed, leased int) {
	return len(k.ready), len(k.delayed), len(k.leased)
}

// IDs returns the jobs of a state in their order: ready jobs in claim order, others by time.
func (k *Consumer) IDs(state redisq.State) []ident.ID {
	switch state {
	case redisq.Ready:
		return ordered(k.ready)
	case redisq.Delayed:
		return ordered(k.delayed)
	case redisq.Leased:
		return ordered(k.leased)
	}
	return nil
}

// SetToken replaces the token of a lease by that of a server, whose epoch is random.
func (k *Consumer) SetToken(id ident.ID, token string) {
	m := k.metas[id]
	m.token = token
	k.metas[id] = m
}

// ForgetLeases makes every leased job ready. It is a planted mistake for tests of checkers.
func (k *Consumer) ForgetLeases() {
	for id := range k.leased {
		m := k.metas[id]
		delete(k.leased, id)
		m.token, m.worker, m.since = "", "", 0
		k.metas[id] = m
		k.ready[id] = score(m.priority, m.attempts, 0)
	}
}
