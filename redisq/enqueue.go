package redisq

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Batch is a set of jobs of one consumer whose messages have just been stored.
type Batch struct {
	Consumer uint32
	Jobs     []Job
	// Epoch names the state in Redis that the first offer of the jobs was for.
	// EnqueueMany ignores it.
	Epoch string
	// Lease is the length of the leases that EnqueueMany may give the caller at once, if
	// no other job waits. 0 or less: no leases. Jobs with a delay or attempts never get
	// one.
	Lease time.Duration
	// Limits are the limits of the consumer. They count for Lease only.
	Limits Limits
}

// Enqueue adds jobs to the queue of a consumer as far as its window has room. The scan of
// the store loads the spilled jobs later. After an error any part of the jobs may be in
// the queue; the caller offers them again as Repeated.
func (q *Queue) Enqueue(ctx context.Context, consumer uint32, jobs []Job, src Source) (Enqueued, error) {
	calls, err := enqueueCalls(consumer, jobs, src, q.window)
	if err != nil {
		return nothingEnqueued(), err
	}
	q.runAll(ctx, calls)
	return enqueued(calls)
}

// Recover is Enqueue of Recovered jobs into the state with that epoch (Stats.Epoch). It
// returns ErrLost if Redis has another epoch by now: after a loss, a scan of the store
// must start again instead of going on in the middle.
func (q *Queue) Recover(ctx context.Context, consumer uint32, epoch string, jobs []Job) (Enqueued, error) {
	calls, err := enqueueCalls(consumer, jobs, Recovered, q.window)
	if err != nil {
		return nothingEnqueued(), err
	}
	for _, c := range calls {
		c.pinned = epoch
	}
	q.runAll(ctx, calls)
	return enqueued(calls)
}

// EnqueueMany is Enqueue of Fresh jobs for many consumers in few round trips. Result i
// and error i belong to batch i. The caller offers a batch with an error again, with the
// Epoch of its result, by EnqueueAgain.
func (q *Queue) EnqueueMany(ctx context.Context, batches []Batch) ([]Enqueued, []error) {
	out, errs := make([]Enqueued, len(batches)), make([]error, len(batches))
	offers := make([][]*offer, len(batches))
	var all []*call
	for i, b := range batches {
		if errs[i] = checkJobs(b.Jobs); errs[i] != nil {
			continue
		}
		offers[i] = q.offers(b)
		for _, o := range offers[i] {
			all = append(all, o.call)
		}
	}
	q.runAll(ctx, all)
	for i, b := range batches {
		out[i] = nothingEnqueued()
		for j, o := range offers[i] {
			if j == 0 { // later calls may have reached this state before they met the next one
				out[i].Epoch = o.known
			}
			if errs[i] == nil {
				errs[i] = q.finishOffer(ctx, b.Consumer, o, &out[i])
			}
		}
	}
	return out, errs
}

// EnqueueAgain is Enqueue of Repeated jobs for many consumers in few round trips. Error i
// belongs to batch i: in a Cluster that lacks a master, the batches for the other masters
// succeed. ErrLost means that Redis has lost the state of the batch's Epoch, or that the
// batch has no Epoch. The leases of jobs in flight may then be missing in Redis, so the
// caller leaves the batch to the scan of the store, which runs after their restoration.
func (q *Queue) EnqueueAgain(ctx context.Context, batches []Batch) []error {
	errs := make([]error, len(batches))
	calls := make([][]*call, len(batches))
	var all []*call
	for i, b := range batches {
		if b.Epoch == "" {
			errs[i] = ErrLost
			continue
		}
		calls[i], errs[i] = enqueueCalls(b.Consumer, b.Jobs, Repeated, q.window)
		for _, c := range calls[i] {
			c.pinned = b.Epoch
		}
		all = append(all, calls[i]...)
	}
	q.runAll(ctx, all)
	for i := range batches {
		if errs[i] == nil {
			_, errs[i] = enqueued(calls[i])
		}
	}
	return errs
}

// An offer is one call for jobs of one batch, with their indexes in the batch.
type offer struct {
	*call
	jobs   []Job
	places []int
}

// offers splits a batch into calls. Jobs of one priority that are due now and were never
// attempted share a call of offer.lua. All other jobs share calls of enqueue.lua, and so do those for
// which one call is not enough: offer.lua might refuse all jobs of the first call, and take the fewer and
// newer ones of the second.
func (q *Queue) offers(b Batch) []*offer {
	var out []*offer
	open, pieces := map[int]*offer{}, map[int]int{} // by priority; -1: for enqueue.lua
	for i, j := range b.Jobs {
		kind := j.Priority
		if j.Delay > 0 || j.Attempts > 0 {
			kind = -1
		}
		o := open[kind]
		if o == nil || len(o.jobs) == MaxBatch {
			o = &offer{}
			open[kind] = o
			out = append(out, o)
			pieces[kind]++
		}
		o.jobs = append(o.jobs, j)
		o.places = append(o.places, i)
	}
	for _, o := range out {
		if first := o.jobs[0]; first.Delay > 0 || first.Attempts > 0 || pieces[first.Priority] > 1 {
			o.call = enqueueCall(b.Consumer, o.jobs, Fresh, q.window)
			continue
		}
		args := make([]any, 4, 4+len(o.jobs))
		oldest := o.jobs[0].ID.Millis()
		for _, j := range o.jobs {
			oldest = min(oldest, j.ID.Millis())
			args = append(args, string(j.ID[:]))
		}
		args[0], args[1], args[2], args[3] = q.window, o.jobs[0].Priority, oldest, millis(b.Lease)
		if b.Lease > 0 {
			args = b.Limits.with(args)
		}
		o.call = &call{consumer: b.Consumer, script: offerScript, args: args}
	}
	return out
}

// finishOffer adds the reply of an offer to the sum of its batch. If offer.lua refused
// the jobs, finishOffer runs enqueue.lua, which decides for each of them.
func (q *Queue) finishOffer(ctx context.Context, consumer uint32, o *offer, sum *Enqueued) error {
	c := o.call
	if c.err == nil && c.script == offerScript {
		r := reader{items: c.reply}
		added, known, fence, granted := r.int(), r.int(), r.int(), r.text()
		if r.err != nil {
			return r.err
		}
		if fence > 0 {
			sum.Leases = slices.Grow(sum.Leases, len(o.jobs))
			for i, j := range o.jobs {
				sum.Leases = append(sum.Leases, Lease{ID: j.ID, Priority: j.Priority, Attempt: 1,
					Token: token(c.known, fence+int64(i)), Granted: granted})
			}
		}
		if added >= 0 {
			sum.Added += int(added)
			sum.Known += int(known)
			return nil
		}
		c = enqueueCall(consumer, o.jobs, Fresh, q.window)
		q.runAll(ctx, []*call{c})
	}
	e, err := enqueued([]*call{c})
	sum.Added += e.Added
	sum.Known += e.Known
	sum.Spilled += e.Spilled
	sum.SpilledPriority = max(sum.SpilledPriority, e.SpilledPriority)
	if e.FirstSpilled >= 0 {
		if place := o.places[e.FirstSpilled]; sum.FirstSpilled < 0 || place < sum.FirstSpilled {
			sum.FirstSpilled = place
		}
	}
	return err
}

func checkJobs(jobs []Job) error {
	for _, j := range jobs {
		if j.Priority < 0 || j.Priority > MaxPriority {
			return fmt.Errorf("redisq: enqueue job %s: priority %d is not 0..%d", j.ID, j.Priority, MaxPriority)
		}
		if j.Attempts < 0 {
			return fmt.Errorf("redisq: enqueue job %s: %d attempts", j.ID, j.Attempts)
		}
	}
	return nil
}

// enqueueCalls splits jobs into script calls.
func enqueueCalls(consumer uint32, jobs []Job, src Source, window int) ([]*call, error) {
	if err := checkJobs(jobs); err != nil {
		return nil, err
	}
	var calls []*call
	for len(jobs) > 0 {
		n := min(len(jobs), MaxBatch)
		calls = append(calls, enqueueCall(consumer, jobs[:n], src, window))
		jobs = jobs[n:]
	}
	return calls, nil
}

func enqueueCall(consumer uint32, jobs []Job, src Source, window int) *call {
	args := make([]any, 0, 2+4*len(jobs))
	args = append(args, window, int(src))
	for _, j := range jobs {
		args = append(args, string(j.ID[:]), j.Priority, millis(j.Delay), j.Attempts)
	}
	return &call{consumer: consumer, script: enqueueScript, args: args}
}

func nothingEnqueued() Enqueued { return Enqueued{SpilledPriority: -1, FirstSpilled: -1} }

// enqueued sums up the replies of the calls of one consumer, up to the first error.
func enqueued(calls []*call) (Enqueued, error) {
	sum := nothingEnqueued()
	for i, c := range calls {
		if c.err != nil {
			return sum, c.err
		}
		r := reader{items: c.reply}
		added, known, spilled, priority, first := r.int(), r.int(), r.int(), r.int(), r.int()
		if r.err != nil {
			return sum, r.err
		}
		sum.Added += int(added)
		sum.Known += int(known)
		sum.Spilled += int(spilled)
		sum.SpilledPriority = int(priority) // the latest is the highest: it only rises here
		if sum.FirstSpilled < 0 && first >= 0 {
			sum.FirstSpilled = i*MaxBatch + int(first)
		}
	}
	return sum, nil
}
