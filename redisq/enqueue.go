package redisq

import (
	"context"
	"fmt"
)

// A Batch is fresh jobs of one consumer.
type Batch struct {
	Consumer uint32
	Jobs     []Job
}

// Enqueue puts jobs into the queue of a consumer as far as its window has room.
// What is Spilled the caller leaves to the walk of the store. On an error any
// part of the jobs may have been enqueued: offer them again as Repeated.
func (q *Queue) Enqueue(ctx context.Context, consumer uint32, jobs []Job, src Source) (Enqueued, error) {
	calls, err := enqueueCalls(consumer, jobs, src, q.window)
	if err != nil {
		return nothingEnqueued(), err
	}
	q.runAll(ctx, calls)
	return enqueued(calls)
}

// EnqueueMany is Enqueue of Fresh jobs for many consumers in few round trips. The
// results and errors stand at the place of their batch.
func (q *Queue) EnqueueMany(ctx context.Context, batches []Batch) ([]Enqueued, []error) {
	out, errs := make([]Enqueued, len(batches)), make([]error, len(batches))
	parts := make([][]*call, len(batches))
	var all []*call
	for i, b := range batches {
		parts[i], errs[i] = enqueueCalls(b.Consumer, b.Jobs, Fresh, q.window)
		all = append(all, parts[i]...)
	}
	q.runAll(ctx, all)
	for i := range batches {
		if errs[i] != nil {
			out[i] = nothingEnqueued()
			continue
		}
		out[i], errs[i] = enqueued(parts[i])
	}
	return out, errs
}

// enqueueCalls splits jobs into script calls.
func enqueueCalls(consumer uint32, jobs []Job, src Source, window int) ([]*call, error) {
	for _, j := range jobs {
		if j.Priority < 0 || j.Priority > MaxPriority {
			return nil, fmt.Errorf("redisq: enqueue job %s: priority %d is not 0..%d", j.ID, j.Priority, MaxPriority)
		}
		if j.Attempts < 0 {
			return nil, fmt.Errorf("redisq: enqueue job %s: %d attempts", j.ID, j.Attempts)
		}
	}
	var calls []*call
	for len(jobs) > 0 {
		n := min(len(jobs), MaxBatch)
		args := make([]any, 0, 2+4*n)
		args = append(args, window, int(src))
		for _, j := range jobs[:n] {
			args = append(args, string(j.ID[:]), j.Priority, millis(j.Delay), j.Attempts)
		}
		calls = append(calls, &call{consumer: consumer, script: enqueueScript, args: args})
		jobs = jobs[n:]
	}
	return calls, nil
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
