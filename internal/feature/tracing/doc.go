// Package tracing records what the broker does with a message as spans of OpenTelemetry, and sends
// them by OTLP over HTTP. A broker without an endpoint has no Tracer: the spine asks for nil, once.
//
// The creation context of a message is the header traceparent that is stored with it. Where the
// publish is recorded, the stored header names the span of the publish, so every later attempt, of any
// broker and after any restart, finds its parent with the message. There is no other state: nothing
// is stored beside the message, and a crash loses at most the spans that were not sent yet.
//
//	send {channel}     PRODUCER  a publish, from the whole request to its answer; the commit is an event
//	process {channel}  CONSUMER  one attempt of a push job
//	receive {channel}  CLIENT    one job that a pull worker claimed
//	settle {channel}   CLIENT    the report of a pull worker: delivered, dead, or given back
//
// An attempt that begins within Settings.Follow of the publish is a child of it. A later one, and one
// of a scheduled, redriven, forwarded or replayed message, is the root of a new trace, with a link to
// the creation context. The ID of such a trace is a digest of the attempt (TraceOf), so a timeline
// knows it without having stored it.
//
// Whether something is recorded is decided from the bytes of traceparent, before the SDK is touched:
// a message that is not sampled allocates nothing. Spans wait for their export in a bounded queue.
// What has no room is dropped and counted, so a receiver that hangs delays nothing.
package tracing
