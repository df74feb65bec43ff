// Package api is the control plane of the broker and the one place that lists
// its routes: producers, channels and consumers, messages and their jobs, dead
// letters and their redrive, and the endpoints that operators look at.
//
// # Resources
//
// A producer publishes to channels. A channel has consumers. A message belongs
// to a channel and has one job for each consumer the channel had when the
// message was stored. A job that ran out of attempts is a dead letter, listed in
// the dead letter queue (DLQ) of its consumer until it is redriven. Producers,
// channels and consumers are created and changed with PUT, under IDs their
// owners choose; nothing can be deleted, and messages never change.
//
// A message is known by the ID its producer gave it, else by the broker's own.
// Where a path or a parameter names a message both are understood, and the
// producer's comes first: an ID of the broker that some producer of the channel
// took for a message of its own names that message.
//
// # Who may call what
//
//	management    PUT and GET of producers, channels, consumers; list of messages
//	              everybody while management is open, else the admin token
//	own           GET of a DLQ
//	              as management; or the consumer, with channel and consumer token
//	published     GET of a message
//	              as management; or its producer, with channel and producer token
//	job           GET of one job
//	              as own; or as published
//	consumer      redrive of one dead job: channel and consumer token
//	form          redrive of a whole DLQ: the form field "requeue" is the consumer token
//	admin         re-trigger of a message: the admin token, always
//	re-trigger    of a job: the admin token, or of a dead job the consumer token
//	data plane    broadcast, queued-jobs, job transitions: checked by the data plane
//	operations    /livez /readyz /metrics /version /_status: everybody; they hold no secrets
//
// A producer sees its own messages and their jobs, without callbacks, answers and
// reasons of failures: those are the consumer's. The messages of others are 404.
//
// A missing token is 401, a wrong one 403. With no admin token configured
// nobody is the admin. Tokens are compared in constant time.
//
// # Freshness
//
// Every GET of a resource has Last-Modified and an ETag. If-None-Match is
// honoured everywhere. If-Modified-Since is honoured where a date can tell that
// nothing changed: producers, channels, consumers, their lists, and messages
// whose jobs are all over. Lists of messages, DLQs and open jobs change without
// a newer date (a redrive only takes away), so for those a date never yields 304.
package api
