// Package api is the control plane of the broker and contains the table of all routes:
// producers, channels and consumers, messages and their jobs, dead letters and their
// redrive, and the endpoints for operators. The types of its JSON are in package apitype.
//
// # Resources
//
// A producer publishes to channels. A channel has consumers. A message belongs to a channel
// and has one job for each consumer that the channel had when the message was stored. A job
// without attempts left is a dead letter. The dead letter queue (DLQ) of its consumer lists
// it until it is redriven. A PUT creates or changes a producer, channel or consumer under an
// ID that the client chooses. A DELETE exists only where the installation allows it, and
// messages never change.
//
// The ID of a message is the one that its producer gave it, else the broker's own. Paths and
// parameters accept both, and the producer's ID comes first: when a producer of the channel
// has given its message an ID that is also an ID of the broker, that ID names the
// producer's message.
//
// # Access
//
//	management    PUT, GET and DELETE of producers, channels, consumers; pause and resume of
//	              a channel; list of messages:
//	              no token while management is open, else the admin token
//	own           GET and DELETE of a DLQ; DELETE of one dead job; pause, resume and revive of a consumer:
//	              as management; or the consumer, with channel and consumer token
//	published     GET of a message:
//	              as management; or its producer, with channel and producer token
//	job           GET of one job:
//	              as own; or as published
//	consumer      redrive of one dead job: channel and consumer token
//	form          redrive of a whole DLQ: the field "requeue", else the header, is the consumer token
//	admin         re-trigger of a message: the admin token, always
//	re-trigger    re-trigger of a job: the admin token; or the consumer token for a dead job
//	link          the signed link that revives a consumer: no token
//	data plane    broadcast, queued-jobs, job transitions: checked by the data plane
//	dashboard     the pages at /ui: as management; or a session, see package ui
//	tokens        API tokens: as management, and never an API token itself
//	operations    / /livez /readyz /metrics /version /_status /job-status /dlq-status: no token; they show no secrets
//
// A producer sees its own messages and their jobs, without callbacks, answers and reasons of
// failures, which belong to the consumer. The messages of other producers are 404.
//
// Package credentials reads tokens: from the header of each, or from Authorization: Bearer, which stands
// for each one that a request lacks.
//
// An API token opens routes by its scopes (scoped.go); the others open none of its kind.
//
// A missing token is 401, a wrong token 403. Without a configured admin token every admin
// request is refused. Tokens are compared in constant time.
//
// # Freshness
//
// Every GET of a resource has Last-Modified and an ETag. All of them evaluate If-None-Match.
// If-Modified-Since is evaluated where an unchanged date proves an unchanged resource:
// producers, channels, consumers, their lists until something in them was deleted, and
// messages whose jobs are all over. Lists of
// messages, DLQs and open jobs can change without a newer date, because a redrive only
// removes entries. For those a date never yields 304.
package api
