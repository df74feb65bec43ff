// Package hotpath is the data plane: what runs for every message. Its rooms are packages with
// one direction, and this package joins them:
//
//	publish   routes of producers: what they send becomes drafts
//	accept    Submit, admission, group commit
//	standby   the journal beside the store: messages that it does not take in time
//	fanout    jobs of committed messages into Redis
//	push      claims and deliveries of push consumers
//	pull      routes of pull consumers
//	verify    whether a claimed job is still to be delivered; the payload cache
//	outcome   the ends of attempts: into the store, then to Redis
//	order     jobs that wait for an earlier message of their ordering key
//	balance   the paces of adaptive consumers
//	hold      consumers that are held because an answer asked for it
//	limit     the limits under which leases are granted
//	cluster   node numbers, the store's clock, the other brokers
//	metadata  headers of producers; metrics: the counters of all rooms
//
// The life of a message, and what survives a crash after each step:
//
//  1. Broadcast checks tokens against the catalogue, copies the request and
//     submits it. Crash: nothing is stored, no answer was given.
//  2. The committer stores a group of messages in one transaction and answers
//  201. Crash: the messages are in the store; the reconciler (package reaper)
//     of any broker finds that Redis does not have their jobs.
//  3. Fan-out puts one job per consumer of the message's audience into Redis.
//     Crash or lost reply: as before; offering a job twice is harmless.
//  4. The dispatcher claims jobs of push consumers, at most as many as it has
//     free slots. If no other job waits, fan-out has them leased to it in step 3
//     (push.Reservation). Crash: the lease ends and the job is due again, its attempt
//     charged. Jobs of pull consumers are claimed by their job POST.
//  5. The delivery POSTs the payload. Crash before the outcome is stored: the
//     job is delivered again. This is the one honest source of duplicates.
//  6. The outcome is stored, many in one transaction, and only then is Redis
//     told. Crash in between: the next claim asks the store and forgets the job.
package hotpath
