// Package reaper is the fail-safe: loops that repair what crashes, lost replies
// and a wiped Redis leave behind. Correctness never depends on which broker
// runs them, or on how many do; consumers are shared between brokers by
// rendezvous hashing only to save work.
//
//   - reclaim: leases past their deadline go back to ready, or, with no attempt
//     left, to the dead letters. Looks at a consumer when its next lease ends,
//     and at all of them, slowly, all the time. At most 32 jobs a call.
//   - reconcile: messages older than the rational delay whose jobs are neither
//     over nor in Redis are put into Redis. Walks each channel with new messages
//     once per tick, 1000 messages a page; after a loss of Redis state from the
//     consumer's settled mark on, highest priority first.
//   - refill: the same walk for consumers whose backlog is larger than the
//     window, as soon as there is room.
//   - settle: moves the marks below which nothing is open any more, so that a
//     restart does not walk everything ever stored.
//   - retention: removes messages past their age whose jobs are all over, 500 a
//     transaction, with rests; from the oldest on again once an hour.
//
// With a re-trigger URL the reconciler asks the broker's own endpoints, behind
// their load balancer, instead of doing the work here.
package reaper
