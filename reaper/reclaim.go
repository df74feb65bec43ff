package reaper

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// reclaimBatch is the number of leases that one script call ends.
	reclaimBatch = 32
	// reclaimTick is the interval at which the loop searches the watch for due consumers.
	reclaimTick = 100 * time.Millisecond
	// firstLook is the delay of the first visit after a consumer got its first lease: by
	// then Redis has its sets, and the visit learns the next due time.
	firstLook = time.Second
	// failuresTake is the time after which a round with a failure stops. The consumers
	// that it leaves out come first or by chance in a later round.
	failuresTake = 2 * time.Second
	// watchAgain is the longest time between two visits of a watched consumer, because its
	// next due time may have changed since the last visit.
	watchAgain = 10 * time.Second
	// sweepPerSecond is the rate of the continuous sweep over all consumers, which finds
	// the leases that the watch has missed. After a broker came or went the rate is
	// sweepFast.
	sweepPerSecond = 4
	sweepFast      = 1000
	// noteWithin bounds the write of the ends of leases.
	noteWithin = 5 * time.Second
)

func (r *Reaper) reclaimLoop(ctx context.Context) {
	tick := time.NewTicker(reclaimTick)
	defer tick.Stop()
	var queue []uint32 // consumers of the sweep under way
	budget := 0.0
	fast := false
	var failures streak
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		if r.sweep {
			r.sweep, fast, queue = false, true, nil
		}
		r.mu.Unlock()
		if len(queue) == 0 {
			queue = r.Catalogue.QueueNos()
		}
		rate := float64(sweepPerSecond)
		if fast {
			rate = sweepFast
		}
		budget = min(budget+rate*reclaimTick.Seconds(), rate)
		due := r.dueNow()
		for budget >= 1 && len(queue) > 0 {
			due = append(due, queue[0])
			queue = queue[1:]
			budget--
		}
		if len(queue) == 0 {
			fast = false
		}
		if len(due) == 0 {
			continue
		}
		// One master of a Cluster may be away. The consumers of the other masters continue
		// until the failures have used up failuresTake.
		var failure error
		start := time.Now()
		for _, consumer := range due {
			if err := r.reclaim(ctx, consumer); err != nil {
				failure = err
				if time.Since(start) > failuresTake {
					break
				}
			}
		}
		failures.round(ctx, r.Log, "ended leases cannot be reclaimed; reclaim tries again", failure)
	}
}

// dueNow returns the watched consumers that are due. It moves their next visit ahead by
// firstLook, so that an error does not lose them.
func (r *Reaper) dueNow() []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var due []uint32
	for consumer, at := range r.watch {
		if !at.After(now) {
			due = append(due, consumer)
			r.watch[consumer] = now.Add(firstLook)
		}
	}
	return due
}

// reclaim ends the leases of one consumer that are past their deadline.
func (r *Reaper) reclaim(ctx context.Context, consumer uint32) error {
	if r.deleted(consumer) {
		r.drop(consumer)
		return nil
	}
	most := r.policy(consumer).LostFrom()
	for {
		x, err := r.Queue.Reclaim(ctx, consumer, reclaimBatch, most)
		if err != nil {
			return err
		}
		if len(x.Exhausted) > 0 {
			failpoint.At(failpoint.AfterReclaim)
			if err := r.bury(ctx, consumer, x.Exhausted); err != nil {
				return err
			}
		}
		if len(x.Returned) > 0 {
			r.reclaimed.Add(float64(len(x.Returned)))
			r.Log.Info("leases ended without an outcome; jobs are due again", "consumer", consumer, "jobs",
				len(x.Returned))
			r.noteEnds(ctx, consumer, x)
		}
		if len(x.Returned)+len(x.Exhausted) >= reclaimBatch {
			r.Wake(consumer)
			continue
		}
		r.mu.Lock()
		switch {
		case x.NextDue > 0:
			r.watch[consumer] = time.Now().Add(min(x.NextDue, watchAgain))
		default: // no lease and no delayed job: the next claim calls Touch
			delete(r.watch, consumer)
		}
		r.mu.Unlock()
		if !x.Empty {
			r.Wake(consumer) // jobs are ready: returned, promoted, or left by a broker that is gone
		}
		return nil
	}
}

// noteEnds stores the ends of leases: the history has them, and the attempts count when Redis has
// lost its state or an embedded broker starts again. A broker that dies before it, and a store that
// does not answer, leave the count to Redis until the next outcome of the job.
func (r *Reaper) noteEnds(ctx context.Context, consumer uint32, x redisq.Expired) {
	ends := make([]durable.LeaseEnd, len(x.Returned))
	for i, j := range x.Returned {
		ends[i] = durable.LeaseEnd{ID: j.ID, Priority: j.Priority, Attempt: j.Attempts, Worker: j.Worker}
	}
	// Redis has ended these leases: the end of ctx must not forget that at a stop.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWithin)
	defer cancel()
	if err := r.Store.RecordLeaseEnds(ctx, consumer, ends, r.Cluster.NowMs()); err != nil {
		r.Log.Warn("ends of leases are not stored: they are missing in the history of their jobs", "consumer", consumer,
			"jobs", len(ends), "error", err)
	}
}

// policy is the policy of the consumer. One that the catalogue's copy does not contain yet has the
// defaults of the installation.
func (r *Reaper) policy(consumer uint32) *policy.Policy {
	record := ""
	if k := r.Catalogue.ConsumerByNo(consumer); k != nil {
		record = k.Policy
	}
	return r.Policies.Of(record)
}

// bury ends the leases of jobs whose last one it may have been. Those that are dead are stored, then
// acknowledged. The others are charged in the store, then ready again: a crash in between leaves the
// lease of this broker, which ends like the one before it, and is not counted twice.
func (r *Reaper) bury(ctx context.Context, consumer uint32, leases []redisq.Lease) error {
	now := r.Cluster.NowMs()
	ids := make([]ident.ID, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	states, err := r.Store.JobStates(ctx, consumer, ids)
	if err != nil {
		return err
	}
	var dead []durable.Outcome
	var over, again []redisq.Lease
	for _, l := range leases {
		s := states[l.ID]
		reason, text := r.endOf(consumer, &l, s)
		switch {
		case s.Status == durable.Delivered || s.Status == durable.Dead: // only its acknowledgement was lost
		case reason == durable.NoReason:
			again = append(again, l)
			continue
		default:
			dead = append(dead, durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: consumer, ID: l.ID,
				Priority: l.Priority, Attempts: l.Attempt, AtMs: now, Tracked: true, Reason: reason,
				Phase: durable.PhaseLeaseEnded, Error: text, Worker: l.Worker})
		}
		over = append(over, l)
	}
	if len(dead) > 0 {
		if err := r.Store.Record(ctx, dead); err != nil {
			return err
		}
		r.exhausted.Add(float64(len(dead)))
		for _, o := range dead {
			r.died(o.Reason, 1)
		}
		r.Log.Info("leases ended on the last attempt; jobs are dead", "consumer", consumer, "jobs", len(dead),
			"reason", dead[0].Reason.String(), "last", dead[0].Error)
	}
	if len(again) > 0 {
		if err := r.returnLost(ctx, consumer, again, now); err != nil {
			return err
		}
	}
	if len(over) == 0 {
		return nil
	}
	_, err = r.Queue.AckLeases(ctx, consumer, over)
	return err
}

// endOf says why a job whose lease ended without a word is dead, and NoReason where it is not. s is its
// stored state.
func (r *Reaper) endOf(consumer uint32, l *redisq.Lease, s durable.JobState) (durable.Reason, string) {
	p, lost := r.policy(consumer), s.LeasesLost
	if s.Attempts < l.Attempt { // this one is not stored yet
		lost++
	}
	k := r.Catalogue.ConsumerByNo(consumer)
	switch {
	case lost > p.MaxLost() && (p.LossBudget > 0 || k != nil && k.Type == durable.Pull):
		return durable.WorkerLost, fmt.Sprintf("%d leases ended without a word, of which the policy bears %d: %s", lost,
			p.MaxLost(), lastWorker(l))
	case p.LossBudget == 0:
		return durable.AttemptsExhausted, fmt.Sprintf("attempt %d of %d: the lease ended without an outcome", l.Attempt,
			p.MaxAttempts())
	}
	return durable.NoReason, ""
}

// lastWorker says in words who had a lease.
func lastWorker(l *redisq.Lease) string {
	switch name, version := presence.Held(l.Worker); {
	case name == "":
		return "the last worker did not say who it was"
	case version == "":
		return "the last worker was " + name
	default:
		return "the last worker was " + name + ", version " + version
	}
}

// returnLost makes jobs ready again whose lost leases were not the last ones.
func (r *Reaper) returnLost(ctx context.Context, consumer uint32, leases []redisq.Lease, atMs int64) error {
	ends := make([]durable.LeaseEnd, len(leases))
	for i, l := range leases {
		ends[i] = durable.LeaseEnd{ID: l.ID, Priority: l.Priority, Attempt: l.Attempt, Worker: l.Worker}
	}
	if err := r.Store.RecordLeaseEnds(ctx, consumer, ends, atMs); err != nil {
		return err
	}
	_, err := r.Queue.Nack(ctx, consumer, leases, make([]time.Duration, len(leases)))
	r.reclaimed.Add(float64(len(leases)))
	return err
}

// name returns the name of a consumer in an error.
func (r *Reaper) name(consumer uint32) string {
	k := r.Catalogue.ConsumerByNo(consumer)
	if k == nil {
		return "not known"
	}
	if ch := r.Catalogue.ChannelByNo(k.ChannelNo); ch != nil {
		return ch.ID + "/" + k.ID
	}
	return k.ID
}
