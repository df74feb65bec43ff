package redisq

import (
	"context"
	"time"
)

// exhaustedLease is how long Reclaim leases an exhausted job to its caller. The caller has
// time to store the dead letter, and the job is not blocked for long if the caller dies.
const exhaustedLease = 10 * time.Second

// Reclaim ends up to limit (at most MaxBatch) leases that are past their deadline. Their
// jobs are ready again, flagged FlagVerify, with the attempt charged. A job with
// maxAttempts or more attempts (0 or less: no limit) is leased to the caller instead, which
// stores it as dead. Each ended lease appears in the result of one call. Reclaim also
// promotes up to 128 due jobs. If the clock of Redis went back by more than five seconds
// since the last call, Reclaim drops the consumer's state and reports it as lost.
func (q *Queue) Reclaim(ctx context.Context, consumer uint32, limit, maxAttempts int) (Expired, error) {
	c := &call{
		consumer: consumer,
		script:   reclaimScript,
		args:     []any{min(max(limit, 1), MaxBatch), max(maxAttempts, 0), millis(exhaustedLease)},
	}
	q.runAll(ctx, []*call{c})
	if c.err != nil {
		return Expired{}, c.err
	}
	r := reader{items: c.reply}
	out := Expired{NextDue: r.millis(), Empty: r.int() == 1}
	returned, fence := r.int(), r.int()
	for ; returned > 0 && r.err == nil; returned-- {
		out.Returned = append(out.Returned, Job{ID: r.id(), Priority: int(r.int()), Attempts: int(r.int()),
			Worker: r.text()})
	}
	for ; r.left() > 0; fence++ {
		l := r.lease(c.known, fence)
		l.Worker = r.text()
		out.Exhausted = append(out.Exhausted, l)
	}
	return out, r.err
}
