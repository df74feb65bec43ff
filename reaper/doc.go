// Package reaper is the fail-safe: loops that repair the damage of crashes, lost
// replies and a wiped Redis. Correctness depends neither on which broker runs them nor
// on how many brokers do. Rendezvous hashing shares the consumers between the brokers
// only to save work.
//
//   - reclaim: ends leases past their deadline. Their jobs are ready again, or dead when
//     no attempt is left. The loop visits a consumer when its next lease ends, and all
//     consumers slowly and continuously. It ends at most 32 leases a call.
//
//   - reconcile: offers Redis the messages older than the rational delay whose jobs are
//     neither over nor in Redis. It scans each channel with new messages once per tick,
//     1000 messages a page. After a loss of Redis state it scans from the consumer's
//     settled watermark, highest priority first.
//
//   - refill: the same scan for a consumer whose backlog is larger than its window, as
//     soon as the window has room.
//
//   - watermarks: advances the settled watermarks, so that a restart scans only what is
//     newer than they are.
//
//   - retention: removes messages past their age whose jobs are all over, 500 a
//     transaction, with pauses. It starts again at the oldest message once an hour.
//
//   - expiry: makes jobs dead that are past their time to live.
//
//   - dead letters: redrives, forwards or discards them, by the policy of their consumer.
//
//   - replays: makes the jobs of replays, a few pages ahead of the deliveries.
//
// With a re-trigger URL the reconciler calls the re-trigger endpoint of the brokers,
// behind their load balancer, instead of offering the jobs itself.
package reaper
