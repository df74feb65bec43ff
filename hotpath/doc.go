// Package hotpath is the data plane: what runs for every message.
//
// The life of a message, and what survives a crash after each step:
//
//  1. Broadcast checks tokens against the catalogue, copies the request and
//     hands it to the committer. Crash: nothing is stored, no answer was given.
//  2. The committer stores a group of messages in one transaction and answers
//  201. Crash: the messages are in the store; the reconciler (package reaper)
//     of any broker finds that Redis does not have their jobs.
//  3. Fan-out puts one job per consumer of the message's audience into Redis.
//     Crash or lost reply: as before; offering a job twice is harmless.
//  4. The dispatcher claims jobs of push consumers, at most as many as it has
//     free slots. Where nothing else waits, fan-out has them leased to it in step 3
//     (see reservation). Crash: the lease ends and the job is due again, its attempt
//     charged. Jobs of pull consumers are claimed by their job POST.
//  5. The delivery POSTs the payload. Crash before the outcome is stored: the
//     job is delivered again. This is the one honest source of duplicates.
//  6. The outcome is stored, many in one transaction, and only then is Redis
//     told. Crash in between: the next claim asks the store and forgets the job.
//
// The fresh rule: a claimed job goes out without asking the store only if this
// very process put it into Redis, got the reply, it is its first attempt, and
// Redis has lost nothing since. Everything else is checked first, in batches.
package hotpath
