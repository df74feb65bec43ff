// Package why says why jobs do not move: the reasons of a consumer, a message, a job or a scheduled
// message, each with a code, a time since and until, and the request or field that changes it.
//
// It decides nothing. A reason is read where the decision is made: the state of the consumer and its
// hold in the durable store, the queue and its limits in Redis (one read-only script, see
// redisq.Outlook), the pace at the balancer, the slots at this broker. So a question costs one call of
// Redis and at most three statements, whatever is stored: jobs are counted up to Counted, and beyond
// that a count is marked as approximate.
//
// The codes are a fixed list, code.go. What holds comes before what is over, and what holds the whole
// consumer before what holds some of its jobs. A reason is listed only where it keeps a job back at
// present, with two exceptions: channel_paused and group_paused, because of which no job comes.
//
// # Facts
//
// What the last attempts have shown is known to the broker that made them. The Notebook takes it from
// the outcomes that were stored, in memory, and writes it to the store each second: one row for each
// consumer, of which the newest attempt counts. A crash before that forgets at most the last second,
// until the next attempt. Redis has no part in it.
//
// Where the store cannot be asked, the answer is made of what is in memory and in Redis, and its first
// reason is store_unavailable.
package why
