// Package redisq is the queue in Redis: the order of waiting jobs, their leases
// and their attempts. It holds no fact that the durable store could not give
// back; an emptied Redis is noticed, not mourned.
//
// # States
//
// A job of a consumer is in exactly one of three sorted sets or unknown:
//
//	           Enqueue           Claim, ClaimEach, RestoreLeases
//	unknown -----------> ready ----------------------> leased --Ack--> unknown
//	    |                 ^  ^                          | | |
//	    | Enqueue(delay)  |  |   Release, Nack(0)       | | |
//	    v                 |  +--------------------------+ | |
//	 delayed -------------+  |   Reclaim: lease ended     | |
//	    ^    due: promoted   +----------------------------+ |
//	    |                        Nack(delay)                |
//	    +---------------------------------------------------+
//
// RestoreLeases also leases a job that is unknown or delayed: its holder's lease was lost.
// EnqueueMany may lease fresh jobs at once, which is Enqueue and Claim in one step,
// where a Claim would take just them.
// Ack takes a job out of every state: the store has its outcome, so Redis has
// nothing to say about it any more.
//
// # Invariants
//
//   - A job is in exactly one of ready, delayed and leased; the leased set is
//     the lease index, there is no second list that could disagree.
//   - Every leased job has a meta field with its token; a job that waits, was
//     never claimed and has no flag has none; nobody else has one.
//   - The fresh offer of the broker that published a job is the first that Redis
//     hears of it, or the job is not newer than what the control field b says: then
//     the offer is as careful as any other and the job is flagged.
//   - Every script is one move on one slot, bounded in work, and reads the clock
//     of Redis and no other. It checks all arguments before its first write, and
//     its first write removes something where it can: a full Redis refuses only
//     new jobs, never an extension, an ack or a reclaim.
//   - No script comes back to a key that it may have emptied: while the slot moves
//     to another node of a Cluster, Redis cuts a script off there.
//   - Every script is handed the consumer's epoch and does nothing when it is
//     not the current one. The Queue then adopts the new epoch, reports the loss
//     to OnLost and repeats the call, so callers never see it.
//
// # Grants
//
// claim, claim_each and offer lease jobs. What may be granted, and how a lease is
// written, stands in one part that all three share, lua/grant.lua.
//
// # Window
//
// Redis keeps a window of each consumer's jobs, the store has them all. When
// the window is full Enqueue counts a job as Spilled and remembers the highest
// priority that has jobs outside; Claim then hands out nothing below that
// priority, so that the order holds, until the refill has brought them in and
// said so by SetSpilled or SettleSpilled.
//
// # Servers
//
// Redis 6.2 and later, alone, behind Sentinel or as a Cluster, and the embedded
// miniredis run the same scripts and pass the same suite, queuetest. miniredis
// has no run_id, so a RunWatch never fires there; it never refuses memory; and it
// sorts a whole set for each range, so it wants a small window.
package redisq
