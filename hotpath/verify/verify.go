// Package verify decides whether a job that Redis knows is still to be delivered. Push and
// pull, single and batch routes ask here, so a reason not to deliver a job is one branch of
// decide.
//
// The fresh rule: a claimed job goes out without a question to the store only if this process
// put it into Redis, got the reply, this is its first attempt, and Redis has lost nothing
// since. The store is asked about every other job first, in batches.
package verify

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A Store is the part of durable.Store that the verifier asks.
type Store interface {
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, budget int) (msgs []durable.Message, read int, err error)
	ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message, error)
}

// A Verdict says what becomes of a job. Every verdict except Deliver ends the job: Redis has to
// forget it.
type Verdict uint8

const (
	// Undecided: the store has not been asked yet.
	Undecided Verdict = iota
	// Deliver: the job is open.
	Deliver
	// Over: the store has its outcome.
	Over
	// Removed discards the job: retention has removed its message.
	Removed
)

// Ends reports whether Redis has to forget the job.
func (v Verdict) Ends() bool { return v > Deliver }

// A Candidate is a job that may be delivered.
type Candidate struct {
	ID        ident.ID
	Untouched bool // Redis has the job as it was put there: no attempt charged, no flag

	Verdict Verdict
	Message *durable.Message // of a job to deliver
	State   durable.JobState // as stored; zero for a fresh job
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

// Waiting returns the candidates of jobs without a lease.
func Waiting(jobs []redisq.Waiting) []Candidate {
	cs := make([]Candidate, len(jobs))
	for i, w := range jobs {
		cs[i] = Candidate{ID: w.ID, Untouched: w.Attempts == 0 && w.Flags == 0}
	}
	return cs
}

// Attempt is the number of the attempt that a lease stands for: Redis may have forgotten
// attempts that the store has counted.
func (c *Candidate) Attempt(l redisq.Lease) int { return max(l.Attempt, c.State.Attempts+1) }

// A Verifier decides. Its methods may be used concurrently.
type Verifier struct {
	Store Store
	Cache *Cache
	NowMs func() int64 // the clock of the store
	// Kept is an age up to which every message is stored. A younger job without an outcome is
	// open. The message of an older one may have been removed after the job was over, and a
	// Redis that went back in time knows such jobs again.
	Kept time.Duration
}

// Fresh decides a candidate by the fresh rule and reports whether it is to be delivered.
// generation is that of Redis after the claim.
func (v *Verifier) Fresh(c *Candidate, generation uint64) bool {
	if !c.Untouched {
		return false
	}
	msg, fresh := v.Cache.Get(c.ID)
	if msg == nil || fresh != generation {
		return false
	}
	c.Message = msg
	c.decide(stored)
	return c.Verdict == Deliver
}

// Verify asks the store about the candidates of a consumer that are undecided. Of the messages
// that are not cached it loads at most budget bytes of payload, or one message. The first n
// candidates are decided; of the others, those that are over.
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
	states, err := v.Store.JobStates(ctx, k.No, ids)
	if err != nil {
		return 0, err
	}
	missing := ids[:0] // of the same memory: those behind it are not read any more
	for i := range cs {
		if c := &cs[i]; c.Verdict == Undecided {
			c.State = states[c.ID]
			if c.Message = v.recall(c.ID); c.Message != nil {
				c.decide(stored)
			} else if c.decide(unknown); c.Verdict == Undecided {
				missing = append(missing, c.ID)
			}
		}
	}
	if len(missing) == 0 {
		return len(cs), nil
	}
	return v.load(ctx, k, cs, missing, budget)
}

// load loads the missing messages, and returns how many of the candidates are decided then.
func (v *Verifier) load(ctx context.Context, k *durable.Consumer, cs []Candidate, missing []ident.ID, budget int) (n int, err error) {
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
		c.decide(message)
	}
	return len(cs), nil
}

// One decides one job whose payload is not needed. The message of the candidate stays nil.
func (v *Verifier) One(ctx context.Context, k *durable.Consumer, c *Candidate) error {
	var err error
	if c.State, err = v.State(ctx, k, c.ID); err != nil {
		return err
	}
	if c.decide(unknown); c.Verdict != Undecided {
		return nil
	}
	message := stored
	if v.mayBeRemoved(c.ID) {
		head, err := v.Head(ctx, k.ChannelNo, c.ID)
		if err != nil {
			return err
		}
		if head == nil {
			message = removed
		}
	}
	c.decide(message)
	return nil
}

// State returns the stored state of a job.
func (v *Verifier) State(ctx context.Context, k *durable.Consumer, id ident.ID) (durable.JobState, error) {
	states, err := v.Store.JobStates(ctx, k.No, []ident.ID{id})
	return states[id], err
}

// Head returns a message without its payload, nil if the channel has no such message.
func (v *Verifier) Head(ctx context.Context, channelNo uint32, id ident.ID) (*durable.Message, error) {
	msgs, err := v.Store.ListMessages(ctx, channelNo, id, 1)
	if err != nil || len(msgs) == 0 || msgs[0].ID != id {
		return nil, err
	}
	return &msgs[0], nil
}

// A presence says whether the message of a candidate is stored.
type presence uint8

const (
	unknown presence = iota
	stored
	removed
)

// decide is the rule. It leaves a candidate undecided if the verdict depends on a message whose
// presence is unknown.
func (c *Candidate) decide(message presence) {
	switch {
	case c.State.Status == durable.Delivered || c.State.Status == durable.Dead:
		c.Verdict, c.Message = Over, nil
	case message == removed:
		c.Verdict = Removed
	case message == stored:
		c.Verdict = Deliver
	}
}

// recall returns a cached message that is certainly still stored.
func (v *Verifier) recall(id ident.ID) *durable.Message {
	if v.mayBeRemoved(id) {
		return nil
	}
	msg, _ := v.Cache.Get(id)
	return msg
}

func (v *Verifier) mayBeRemoved(id ident.ID) bool {
	return v.NowMs()-id.Millis() > v.Kept.Milliseconds()
}
