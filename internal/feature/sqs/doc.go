// Package sqs is a door for clients of Amazon SQS: it answers the AWS JSON 1.0 protocol of SQS (and the older
// query protocol, with the same actions) on the ordinary listener, so that an SDK works with another endpoint.
//
// A queue is a pull consumer, and its URL is /sqs/{channel}/{consumer}. Sending to a queue publishes to its
// channel, addressed to that consumer; receiving claims its jobs; a receipt handle is a lease. Nothing is stored
// here beside the access keys: drafts go the one way in of package publish, and jobs are leased, kept and
// reported as package pull does for its routes. The resources themselves are changed by a Manager, which is the
// API.
//
// A request passes these steps: protocol.go finds its protocol and action, signature.go who sends it,
// then the body is loaded and decoded into the struct of its action (types.go), the action runs, and a
// protocol writes its answer or its Fault.
package sqs
