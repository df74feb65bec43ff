package redisq

import (
	"context"
	"time"
)

// exhaustedLease is how long Reclaim keeps an exhausted job for its caller: time
// to store the dead letter, and not long when the caller dies.
const exhaustedLease = 10 * time.Second

// Reclaim ends up to limit (at most MaxBatch) leases whose deadline has passed:
// their jobs are ready again, flagged FlagVerify, with the attempt charged; those
// with maxAttempts attempts or more (0 and below: never) are handed to the caller
// to be stored as dead. Of concurrent calls one sees each ended lease. It also
// lets in up to 128 due delayed jobs. Where the clock of Redis went back by more than
// five seconds since the last call, the consumer's state is dropped, as if lost.
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
		out.Returned = append(out.Returned, r.id())
	}
	for ; r.left() > 0; fence++ {
		out.Exhausted = append(out.Exhausted, r.lease(c.known, fence))
	}
	return out, r.err
}
