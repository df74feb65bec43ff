// Package redrive opens selected dead letters of a consumer again, a bounded number at a time.
//
// A redrive is a row of the store (durable.Redriving): what is meant, a cursor, a state and counters. The
// Runner of the broker that owns the consumer moves the cursor on in steps, as fast as the rate of the
// redrive allows. A step opens letters and moves the cursor in one transaction, and then offers the jobs
// to the queue; a broker that dies in between leaves open jobs, which the reconciler offers. Where two
// brokers take themselves for the owner, one of them finds another cursor and does nothing.
//
// The jobs that a redrive has opened are watched until they are over, which the Runner counts, each once:
// also after the redrive is done. A canary opens 1 job, then 10, then 100, then all. A stage is evaluated
// when all its jobs are over, or after the timeout of the consumer, if half of them were tried by then.
// It stops the redrive when more than half of its jobs failed by the same cause again.
//
// runner.go is the loop and a step, turns.go divides its time among channels, canary.go evaluates stages, and
// target.go is a redrive to another consumer.
package redrive
