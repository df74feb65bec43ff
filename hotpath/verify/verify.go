// Package verify decides whether a job that Redis holds is still to be delivered, and ends the lease of
// a claimed job that is not (settle.go). All push and pull routes, single and batch, use it. Each reason
// not to deliver a job is one branch of decide.
//
// The fresh rule: a claimed job is delivered without a read of the store only if this process put
// it into Redis and received the reply, this is the job's first attempt, and Redis has lost nothing
// since. Every other job is checked against the store first, in batches.
package verify

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A Store is the part of durable.Store that the verifier reads.
type Store interface {
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, budget int) (msgs []durable.Message,
		read int, err error)
	Job(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.StoredJob, error)
	ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message, error)
}

// A Verdict is the decision about a job.
type Verdict uint8

const (
	// Undecided: the store has not been read yet.
	Undecided Verdict = iota
	// Deliver: the job is open.
	Deliver
	// Over: the store has the outcome of the job.
	Over
	// Removed: retention has removed the message of the job.
	Removed
	// Expired: the job is open, and older than its time to live. The caller stores its death,
	// see Death, if it has the lease, and otherwise leaves the job to the sweep of the reaper.
	Expired
	// Blocked parks the job: an earlier message of its ordering key is not over.
	Blocked
	// DeadKey makes the job a dead letter: the message before it in its ordering key is one.
	DeadKey
	// Lost: another broker has got the job meanwhile. The verifier does not know; its caller may.
	Lost
)

// Ends reports whether the caller must remove the job from Redis.
func (v Verdict) Ends() bool { return v == Over || v == Removed }

// SetAside reports whether package order handles the job: it is neither delivered nor over.
func (v Verdict) SetAside() bool { return v == Blocked || v == DeadKey }

// A Candidate is a job that may be delivered.
type Candidate struct {
	ID        ident.ID
	Untouched bool // Redis holds the job unchanged: no attempt charged, no flag

	Verdict Verdict
	Message *durable.Message // of a job to deliver
	State   durable.JobState // as stored; zero for a fresh job
	Expiry  int64            // of a job to deliver: when it expires, Unix ms; 0: never

	ttlMs int64 // of the message, if Message is nil

	after ident.ID // the earlier message of the key whose job was looked at last
	wait  wait     // for that job
}

// Leased returns the candidates of claimed leases.
func Leased(leases []redisq.Lease) []Candidate {
	cs := make([]Candidate, len(leases))
	for i := range leases {
		cs[i] = OfLease(&leases[i])
	}
	return cs
}

// OfLease returns the candidate of one lease.
func OfLease(l *redisq.Lease) Candidate {
	return Candidate{ID: l.ID, Untouched: l.Attempt == 1 && l.Flags == 0}
}

// Waiting returns the candidates of unclaimed jobs.
func Waiting(jobs []redisq.Waiting) []Candidate {
	cs := make([]Candidate, len(jobs))
	for i, w := range jobs {
		cs[i] = Candidate{ID: w.ID, Untouched: w.Attempts == 0 && w.Flags == 0}
	}
	return cs
}

// Attempt returns the number of the lease's attempt. Redis may have lost attempts that the store
// has counted.
func (c *Candidate) Attempt(l redisq.Lease) int { return max(l.Attempt, c.State.Attempts+1) }

// A Verifier decides whether jobs are delivered. Its methods are safe for concurrent use.
type Verifier struct {
	Store Store
	Cache *Cache
	NowMs func() int64 // the clock of the store
	// Kept is an age up to which every message is stored. A younger job without an outcome is open.
	// The message of an older one may have been removed after the job was over, and a Redis that
	// was restored to an earlier state holds such jobs again.
	Kept time.Duration
	// Policies have the times to live and tell which consumers are ordered. Chain tells what the
	// jobs of those wait for; it may be nil where there are none.
	Policies *policy.Book
	Chain    Chain

	// goneBackMs is a time up to which a message may be missing in the store, which went back to an
	// earlier state: what this process remembers of such a message proves nothing.
	goneBackMs atomic.Int64
}

// StoreWentBack reports that the store went back to an earlier state. Jobs of the messages until now
// are checked against the store, payloads included.
func (v *Verifier) StoreWentBack() { v.goneBackMs.Store(v.NowMs() + goneBackMargin.Milliseconds()) }

// goneBackMargin is longer than the clocks of the brokers differ.
const goneBackMargin = time.Second

// Fresh decides a candidate of a consumer by the fresh rule and reports whether it is to be
// delivered. incarnation is that of Redis after the claim. A job of an ordered consumer whose
// message has a key stays undecided, because only the store knows the job before it.
func (v *Verifier) Fresh(k *durable.Consumer, c *Candidate, incarnation uint64) bool {
	if !c.Untouched || c.ID.Millis() <= v.goneBackMs.Load() {
		return false
	}
	msg, fresh := v.Cache.Get(c.ID)
	if msg == nil || fresh != incarnation {
		return false
	}
	if msg.Keyed() {
		if _, ordered := v.ordered(k); ordered {
			return false
		}
	}
	c.Message = msg
	v.decide(k, c, stored)
	return c.Verdict == Deliver
}

// Verify reads the store for the undecided candidates of a consumer. It loads at most budget bytes
// of payload, or one message, for messages that are not cached. The first n candidates are decided.
// Of the others, some may be decided without a loaded message.
func (v *Verifier) Verify(ctx context.Context, k *durable.Consumer, cs []Candidate, budget int) (n int, err error) {
	var ids []ident.ID
	for i := range cs {
		if cs[i].Verdict == Undecided {
			ids = append(ids, cs[i].ID)
		}
	}
	if len(ids) == 0 {
		return len(cs), nil
	}
	states, err := v.states(ctx, k, cs, slices.Clip(ids))
	if err != nil {
		return 0, err
	}
	missing := ids[:0] // reuses the memory of ids, which is not read again
	for i := range cs {
		if c := &cs[i]; c.Verdict == Undecided {
			c.State = states[c.ID]
			if c.Message = v.recall(c.ID); c.Message != nil {
				v.decide(k, c, stored)
			} else if v.decide(k, c, unknown); c.Verdict == Undecided {
				missing = append(missing, c.ID)
			}
		}
	}
	if len(missing) == 0 {
		return len(cs), nil
	}
	return v.load(ctx, k, cs, missing, budget)
}

// load loads the missing messages and returns how many leading candidates are decided.
func (v *Verifier) load(ctx context.Context, k *durable.Consumer, cs []Candidate, missing []ident.ID,
	budget int) (n int, err error) {
	msgs, read, err := v.Store.MessagesUpTo(ctx, k.ChannelNo, missing, budget)
	if err != nil {
		return 0, err
	}
	found := make(map[ident.ID]*durable.Message, len(msgs))
	for i := range msgs {
		found[msgs[i].ID] = &msgs[i]
	}
	for n = range cs {
		c := &cs[n]
		if c.Verdict != Undecided {
			continue
		}
		if read == 0 {
			return n, nil
		}
		read--
		message := removed
		if c.Message = found[c.ID]; c.Message != nil {
			message = stored
		}
		v.decide(k, c, message)
	}
	return len(cs), nil
}

// One decides one job without loading its payload. The Message of the candidate stays nil.
func (v *Verifier) One(ctx context.Context, k *durable.Consumer, c *Candidate) error {
	j, err := v.Store.Job(ctx, k, c.ID)
	if err != nil {
		return err
	}
	if _, ordered := v.ordered(k); ordered {
		one := []Candidate{*c}
		if _, err := v.states(ctx, k, one, []ident.ID{c.ID}); err != nil {
			return err
		}
		c.wait = one[0].wait
	}
	message := stored
	if !j.Stored { // by retention, or because the store went back
		message = removed
	}
	c.State, c.ttlMs = j.JobState, j.TTLMs
	v.decide(k, c, message)
	return nil
}

// State returns the stored state of a job.
func (v *Verifier) State(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.JobState, error) {
	states, err := v.Store.JobStates(ctx, k.No, []ident.ID{id})
	return states[id], err
}

// Head returns a message without its payload, or nil if the channel has no such message.
func (v *Verifier) Head(ctx context.Context, channelNo uint32, id ident.ID) (*durable.Message, error) {
	msgs, err := v.Store.ListMessages(ctx, channelNo, id, 1)
	if err != nil || len(msgs) == 0 || msgs[0].ID != id {
		return nil, err
	}
	return &msgs[0], nil
}

// A presence is the knowledge whether the message of a candidate is stored.
type presence uint8

const (
	unknown presence = iota
	stored
	removed
)

// decide is the rule for all verdicts. A candidate stays undecided if its verdict depends on a
// message whose presence is unknown.
func (v *Verifier) decide(k *durable.Consumer, c *Candidate, message presence) {
	switch {
	case c.State.Status.Over():
		c.Verdict, c.Message = Over, nil
	case message == stored && v.expired(k, c):
		c.Verdict, c.Message = Expired, nil
	case c.wait == waitsForIt:
		c.Verdict, c.Message = Blocked, nil
	case c.wait == diesWithIt:
		c.Verdict, c.Message = DeadKey, nil
	case message == removed:
		c.Verdict = Removed
	case message == stored:
		c.Verdict = Deliver
	}
}

// expired notes the expiry of a candidate and reports whether it has passed.
func (v *Verifier) expired(k *durable.Consumer, c *Candidate) bool {
	if k.Replay != nil { // a replay ignores the age of its messages
		return false
	}
	ttlMs := c.ttlMs
	if c.Message != nil {
		ttlMs = c.Message.TTLMs
	}
	c.Expiry = v.Policies.Of(k.Policy).Expiry(c.ID.Millis(), c.State.RedrivenMs, ttlMs)
	return c.Expiry > 0 && v.NowMs() >= c.Expiry
}

// Death is the outcome of an expired job whose lease the caller has. The attempt that the
// claim has charged was not made.
func (c *Candidate) Death(k *durable.Consumer, l *redisq.Lease, atMs int64) durable.Outcome {
	return durable.Expiration(k.No, l.ID, l.Priority, max(l.Attempt-1, c.State.Attempts), atMs)
}

// recall returns a cached message, unless retention may have removed it from the store.
func (v *Verifier) recall(id ident.ID) *durable.Message {
	if v.mayBeRemoved(id) {
		return nil
	}
	msg, _ := v.Cache.Get(id)
	return msg
}

func (v *Verifier) mayBeRemoved(id ident.ID) bool {
	return v.NowMs()-id.Millis() > v.Kept.Milliseconds() || id.Millis() <= v.goneBackMs.Load()
}
