// Package order lets the messages of one ordering key reach an ordered consumer one at a time.
//
// The store has the order: a chain in which each message of a key names the message before it.
// Package verify delivers a job only if the job of the message before it is over in the store.
// Any other job is set aside here: its lease ends, and the job is parked in Redis until the
// outcome of the job before it is stored. Nothing in Redis is needed for the order, only for
// the time of the wake-up, so every crash and every loss of Redis ends in one more question to
// the store:
//
//   - Each acknowledgement first unparks the jobs that follow. A broker that dies between
//     the outcome and the acknowledgement leaves a lease, which ends, and the next claim
//     acknowledges again.
//   - A job that is unparked before it is parked is ready at once (redisq.Park).
//   - After a loss of Redis the scan of the store offers every open job again.
//   - A parked job is due again after a while in any case.
package order

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/redisq"
)

// A parked job is due again when it is twice as old, but not before leastParked and not after
// mostParked: a long wait behind a dead letter costs few questions.
const (
	leastParked = 15 * time.Second
	mostParked  = 10 * time.Minute
)

// A Store is the part of durable.Store that the package needs.
type Store interface {
	Successors(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Head, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	Record(ctx context.Context, outcomes []durable.Outcome) error
}

// A Queue is the part of redisq.Queue that the package needs.
type Queue interface {
	Park(ctx context.Context, consumer uint32, leases []redisq.Lease, delays []time.Duration) ([]bool, error)
	Unpark(ctx context.Context, consumer uint32, jobs []redisq.Job) (int, error)
	AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Notify(ctx context.Context, consumers []uint32) error
}

// Options assemble a Keeper.
type Options struct {
	Store     Store
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Policies  *policy.Book
	NowMs     func() int64 // the clock of the store
	Alone     func() bool  // no other broker shares the store
	Wake      func(consumer uint32)
	Touched   func(consumer uint32)
	Died      func(jobs int) // jobs became dead letters
	Log       *slog.Logger
}

// A Keeper parks and unparks jobs.
type Keeper struct{ Options }

// New returns a keeper.
func New(o Options) *Keeper { return &Keeper{o} }

// SetAside parks the blocked jobs and makes dead letters of those whose key is dead. cs[i] is
// the verified candidate of leases[i]; the other ones stay as they are. What cannot be done
// is left to the end of the leases.
func (k *Keeper) SetAside(ctx context.Context, c *durable.Consumer, cs []verify.Candidate, leases []redisq.Lease) {
	var park, ended []redisq.Lease
	var delays []time.Duration
	var dead []durable.Outcome
	now := k.NowMs()
	for i := range cs {
		switch cs[i].Verdict {
		case verify.Blocked:
			park, delays = append(park, leases[i]), append(delays, parkedFor(now-cs[i].ID.Millis()))
		case verify.DeadKey:
			dead = append(dead, durable.Outcome{
				Kind: durable.OutcomeDead, Reason: durable.BlockedKey, ConsumerNo: c.No, ID: cs[i].ID, Priority: leases[i].Priority,
				Attempts: cs[i].State.Attempts, AtMs: now, Tracked: true, Error: deadKey,
			})
			ended = append(ended, leases[i])
		}
	}
	if len(park)+len(dead) == 0 {
		return
	}
	err := guard.Do("park of jobs", func() error {
		if err := k.park(ctx, c, park, delays); err != nil {
			return err
		}
		return k.bury(ctx, c, dead, ended)
	})
	if err != nil {
		k.Log.Debug("jobs cannot be set aside; their leases will end", "consumer", c.No, "jobs", len(park)+len(dead),
			"error", err)
	}
}

// deadKey is the reason of a dead letter that was never attempted.
const deadKey = "the message before it in its ordering key is a dead letter"

// parkedFor returns the fail-safe of a job of that age, with a jitter that spreads the jobs of a
// long chain.
func parkedFor(ageMs int64) time.Duration {
	d := min(max(time.Duration(ageMs)*time.Millisecond, leastParked), mostParked)
	return d + rand.N(d/4)
}

func (k *Keeper) park(ctx context.Context, c *durable.Consumer, leases []redisq.Lease, delays []time.Duration) error {
	if len(leases) == 0 {
		return nil
	}
	if _, err := k.Queue.Park(ctx, c.No, leases, delays); err != nil {
		return err
	}
	k.Touched(c.No)
	k.Wake(c.No) // a job may be ready at once
	return nil
}

// bury stores the deaths of jobs, and ends their leases.
func (k *Keeper) bury(ctx context.Context, c *durable.Consumer, dead []durable.Outcome, leases []redisq.Lease) error {
	if len(dead) == 0 {
		return nil
	}
	if err := k.Store.Record(ctx, dead); err != nil {
		return err
	}
	k.Died(len(dead))
	_, err := k.Queue.AckLeases(ctx, c.No, leases)
	return err
}

// passed bounds how many messages in a row of a key successors passes. Behind more of them a parked
// job waits for its fail-safe.
const passed = 200

// successors returns the messages that follow the given ones for the consumer: past those of a key
// that have no job of it.
func (k *Keeper) successors(ctx context.Context, c *durable.Consumer, ids []ident.ID) (mine []durable.Head, err error) {
	for range passed {
		heads, err := k.Store.Successors(ctx, c.ChannelNo, ids)
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, h := range heads {
			if c.Concerns(h) {
				mine = append(mine, h)
			} else if h.Selective() {
				ids = append(ids, h.ID)
			}
		}
		if len(ids) == 0 {
			break
		}
	}
	return mine, nil
}

// BeforeAck unparks the jobs that follow jobs which are over: redisq.Queue calls it before it
// removes them. For a consumer that is not ordered it does nothing.
func (k *Keeper) BeforeAck(ctx context.Context, consumer uint32, ids []ident.ID) error {
	c := k.Catalogue.ConsumerByNo(consumer)
	if c == nil || c.Deleted() || c.Replay != nil || !k.Policies.Of(c.Policy).Ordered {
		return nil
	}
	heads, err := k.successors(ctx, c, ids)
	if err != nil || len(heads) == 0 {
		return err
	}
	next := make([]ident.ID, len(heads))
	for i := range heads {
		next[i] = heads[i].ID
	}
	states, err := k.Store.JobStates(ctx, consumer, next)
	if err != nil {
		return err
	}
	jobs := make([]redisq.Job, 0, len(heads))
	for _, h := range heads {
		// A successor that is over was delivered before a redriven job.
		if !states[h.ID].Status.Over() {
			jobs = append(jobs, redisq.Job{ID: h.ID, Priority: h.Priority})
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	if _, err := k.Queue.Unpark(ctx, consumer, jobs); err != nil {
		return err
	}
	k.Wake(consumer)
	if !k.Alone() { // lossy by design: a broker that misses it polls
		_ = k.Queue.Notify(ctx, []uint32{consumer})
	}
	return nil
}
