// Package penstock is the Go client of the Penstock message broker. It needs the standard library only.
//
// A Client publishes messages and jobs (Publish, PublishMany, Enqueue, Request), schedules them, and
// makes the producer, channel and consumer that it needs where the management of the broker is open. A
// Worker takes the jobs of a queue by the worker protocol (docs/explain/worker-protocol.md). A Receiver
// is an http.Handler for verified deliveries of a push consumer. A Manager reads and changes resources.
//
// # Rules that hold for every call
//
//   - Every request has a time-out, also with a context without one, and every answer is read up to a
//     bound. An answer that does not look like one of the broker is treated as a broken connection.
//   - A refusal of the broker is an *Error with status, code and detail, as in docs/errors.md. A call that
//     got no answer is an *Error with status 0 that wraps the cause.
//   - What was perhaps taken is asked again with the same message ID, so it is stored once. Waits between
//     tries are random (full jitter), and a Retry-After of the broker is obeyed.
//   - No error and no line of a log contains a token.
//
// # Files
//
//	options.go   settings, from code and from the environment
//	client.go    Client
//	call.go      one request and its answer
//	again.go     repeating a request
//	errors.go    Error, and the errors by which handlers decide
//	tokens.go    making what is needed, and its tokens
//	message.go   Message and Job, and their headers
//	publish.go   Publish, Enqueue
//	batch.go     PublishMany, EnqueueMany
//	request.go   Request, Responses, Respond
//	schedule.go  scheduled messages
//	bulk.go      bulks
//	worker.go    Worker: claim, run, stop
//	delivery.go  a claimed job
//	claim.go     the request that claims
//	lease.go     renewing leases
//	report.go    reporting outcomes
//	respond.go   the response that goes along with a report
//	known.go     jobs that were done and came again
//	signals.go   SIGTERM and SIGINT for a worker
//	receiver.go  Receiver: push deliveries
//	manage.go    Manager: resources, dead letters, why
//	lists.go     Manager: lists, workers, groups of dead letters
package penstock

// Version is what the client calls itself in User-Agent, and a worker in X-Broker-Worker.
const Version = "0.1.0"
