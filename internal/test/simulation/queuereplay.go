package simulation

import (
	"context"
	"time"
)

// Forget removes the keys of a replay that has ended. The simulation deletes no consumer.
func (q *queueSeam) Forget(ctx context.Context, consumer uint32) error {
	w := q.l.w
	return q.l.do(ctx, call{op: "Forget", consumer: consumer, rates: w.plan.queue, away: w.queueAway.now, effect: func() {
		q.r.mu.Lock()
		defer q.r.mu.Unlock()
		delete(q.r.lanes, consumer)
	}})
}

// replayBehind is how long a replay waits while its consumer has jobs ready, as in grant.lua.
const replayBehind = 50 * time.Millisecond

// behind reports whether the consumer of a replay has jobs ready; parent 0: there is no replay. Call
// it with the lock of the server held.
func (q *queueSeam) behind(parent uint32) bool {
	if parent == 0 {
		return false
	}
	ready, _, _ := q.r.lane(parent).Len()
	return ready > 0
}
