package redisq

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Park ends leases of jobs that must wait for another job of the consumer. No attempt is
// charged. A parked job is ready again when Unpark names it, or after its delay as a
// fail-safe. A consumer with many parked and delayed jobs loses further ones from Redis: only
// Unpark, or a scan of the store, adds them again. Result i is false if lease i was lost.
//
// Whoever ends the other job calls Unpark afterwards. A job that Unpark names before it is
// parked is not parked but ready, so the order of the two calls does not matter.
func (q *Queue) Park(ctx context.Context, consumer uint32, leases []Lease, delays []time.Duration) ([]bool, error) {
	if len(delays) != len(leases) {
		return nil, fmt.Errorf("redisq: park: %d delays for %d leases", len(delays), len(leases))
	}
	var calls []*call
	for from := 0; from < len(leases); from += MaxBatch {
		args := []any{q.window}
		for i := from; i < min(from+MaxBatch, len(leases)); i++ {
			args = append(args, string(leases[i].ID[:]), leases[i].Token, max(millis(delays[i]), 1), leases[i].Granted)
		}
		calls = append(calls, &call{consumer: consumer, script: parkScript, args: args})
	}
	q.runAll(ctx, calls)
	out := make([]bool, 0, len(leases))
	for _, c := range calls {
		r := reader{items: c.reply, err: c.err}
		for r.err == nil && r.left() > 0 {
			out = append(out, r.int() > 0)
		}
		if r.err != nil {
			return make([]bool, len(leases)), r.err
		}
	}
	return out, nil
}

// Unpark makes jobs ready whose wait for another job is over, and returns how many became
// ready. It may be repeated. ID and Priority of the jobs count; a job that Redis does not know
// is added.
func (q *Queue) Unpark(ctx context.Context, consumer uint32, jobs []Job) (ready int, err error) {
	if err := checkJobs(jobs); err != nil {
		return 0, err
	}
	var calls []*call
	for len(jobs) > 0 {
		n := min(len(jobs), MaxBatch)
		args := make([]any, 0, 2*n)
		for _, j := range jobs[:n] {
			args = append(args, string(j.ID[:]), j.Priority)
		}
		calls = append(calls, &call{consumer: consumer, script: unparkScript, args: args})
		jobs = jobs[n:]
	}
	q.runAll(ctx, calls)
	return acked(calls)
}

// BeforeAck registers a function that Ack, AckLeases and AckMany call before they remove jobs. If it
// fails, the jobs of that consumer stay: their leases end, and a later claim finds that they are
// over and acknowledges them again. Call it before the Queue is used.
func (q *Queue) BeforeAck(f func(ctx context.Context, consumer uint32, ids []ident.ID) error) {
	q.beforeAck = f
}
