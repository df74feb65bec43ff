// Package redisq is the queue in Redis: the order of waiting jobs, their leases and
// their attempts. Everything in it can be rebuilt from the durable store, and the
// package notices when Redis has lost its data. Beside it, Redis has a sealed access token
// for each OAuth 2 client, see token.go.
//
// # States
//
// A job of a consumer is in exactly one of three sorted sets, or unknown to Redis:
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
// RestoreLeases also leases an unknown or delayed job whose lease Redis has lost.
// EnqueueMany may lease fresh jobs at once, as Enqueue followed by Claim would, if the
// Claim would get exactly these jobs.
// Ack removes a job in any state: its outcome is stored, so the queue no longer needs it.
//
// # Invariants
//
//   - A job is in at most one of ready, delayed and leased. The leased set is the only
//     index of leases, so no second list can contradict it.
//   - Every leased job has a meta field with its token. A ready job that was never
//     claimed and has no flag has no meta field. A job in no set has none.
//   - Either the fresh offer of the publishing broker is the first call that names a job,
//     or the time in the job's ID is not above the control field b. In the second case
//     the offer looks in every set, and the job is flagged (see lua/brought.lua).
//   - Every script is one bounded move in one slot, and its only clock is that of Redis.
//     It checks all arguments before its first write. Its first write removes members
//     where possible, so a Redis at its memory limit refuses new jobs only, and no
//     extension, acknowledgement or reclaim.
//   - No script returns to a key that it may have emptied. While the slot moves to
//     another node of a Cluster, Redis stops a script there.
//   - Every script gets the consumer's epoch and changes nothing if it is not the current
//     one. The Queue then adopts the current epoch, reports the loss to OnLost and
//     repeats the call, so the caller does not notice it.
//
// # Grants
//
// The scripts claim, claim_each and offer lease jobs. All three share lua/grant.lua, which
// has the rule of how many jobs may be leased and the code that writes a lease.
//
// # Window
//
// Redis keeps a window of each consumer's jobs; the store has all of them. When the
// window is full, Enqueue spills a job: it leaves the job to the store and records the
// highest priority that has jobs outside. Claim then leases no job below that priority,
// which keeps the order. The refill loads the spilled jobs and ends the restriction with
// ReplaceSpilled or SetSpilled.
//
// A new state may lack jobs without knowing of any that is spilled. Complete says that a scan of
// the store has found all that is older; Claim and Stats then say Whole, while none is spilled.
//
// # Servers
//
// Redis 6.2 and later, alone, behind Sentinel or as a Cluster, and the embedded
// miniredis run the same scripts and pass the same suite, queuetest. miniredis differs in
// three points. It has no run_id, so a RunWatch never reports a change. It has no memory
// limit. It sorts a whole set for each range, so it needs a small window.
package redisq
