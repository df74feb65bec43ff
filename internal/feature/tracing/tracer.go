package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/recent"
)

// A Tracer records spans. Its methods are safe for concurrent use, and none blocks.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
	sampler  sampler
	follow   time.Duration
	failures bool
	channel  func(no uint32) string // the ID of a channel
	nowMs    func() int64           // the clock of the store
	spans    prometheus.Collector
	received *recent.Memory[jobKey, trace.SpanContext] // spans of jobs that workers have
	listed   *recent.Memory[jobKey, Attempt]           // jobs that a list has shown
}

// remembered bounds what a Tracer knows of the jobs of pull workers.
const remembered = 8192

// A jobKey names a job, or its replay: a worker that reports on one does not say which.
type jobKey struct {
	consumer uint32
	id       ident.ID
}

func keyOf(k *durable.Consumer, id ident.ID) jobKey { return jobKey{k.Account(), id} }

// The names of operations. With the channel behind it, one is the name of a span.
const (
	opSend    = "send"
	opProcess = "process"
	opReceive = "receive"
	opSettle  = "settle"
)

// system is messaging.system of each span.
const system = "penstock"

// An Attempt is what the broker knows of a job when an attempt begins.
type Attempt struct {
	Consumer   *durable.Consumer
	Message    *durable.Message
	No         int
	RedrivenMs int64 // as in durable.JobState
	Begun      time.Time
}

// linked reports whether the attempt is not followed in the trace of the publish.
func (t *Tracer) linked(a *Attempt) bool {
	sinceMs := t.nowMs() - time.Since(a.Begun).Milliseconds() - a.Message.ID.Millis()
	return !Follows(sinceMs, t.follow) || a.RedrivenMs > 0 || a.Consumer.Replay != nil || Apart(a.Message)
}

// Follows reports whether an attempt that begins so long after the publish is a child of it.
func Follows(sinceMs int64, follow time.Duration) bool { return sinceMs <= follow.Milliseconds() }

// Apart reports whether a message was not stored by its publish: a schedule sent it, or it was
// forwarded as a dead letter.
func Apart(m *durable.Message) bool { return ident.Forwarded(m.Key) || later(m.Headers) }

// TraceOf is the trace of an attempt that is not followed in the trace of the publish. generation is
// the number of the consumer, or of the replay.
func TraceOf(id ident.ID, generation uint32, attempt int, redrivenMs int64) (out trace.TraceID) {
	b := append(make([]byte, 0, 64), system...)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint32(b, generation)
	b = binary.BigEndian.AppendUint64(b, uint64(attempt))
	b = binary.BigEndian.AppendUint64(b, uint64(redrivenMs))
	sum := sha256.Sum256(b)
	copy(out[:], sum[:])
	return out
}

// Send begins the span of a publish, or returns nil where it is not recorded. begun is when the request
// was complete; zero: now. The message then has the span as its creation context; its headers are a copy.
//
// event is the traceparent in the payload, of a CloudEvent in structured mode: it counts where the headers
// have none.
func (t *Tracer) Send(m *durable.Message, event string, begun time.Time) *Span {
	parent, known := ParentOf(m.Headers)
	if !known && event != "" {
		parent, known = ParseParent([]byte(event))
	}
	root, ok := t.sampler.samples(parent, known)
	if !ok {
		return nil
	}
	if begun.IsZero() {
		begun = time.Now()
	}
	ctx := context.Background()
	if known {
		ctx = within(ctx, parent, m.Headers)
	} else {
		ctx = context.WithValue(ctx, traceKey{}, root)
	}
	s := t.start(ctx, opSend, trace.SpanKindProducer, m.ChannelNo, begun)
	s.message(m)
	m.Headers = s.Headers(m.Headers)
	return s
}

// Process begins the span of an attempt of a push job, or returns nil where it is not recorded.
func (t *Tracer) Process(a Attempt) *Span {
	parent, ok := ParentOf(a.Message.Headers)
	if !ok || !parent.Sampled() {
		return nil
	}
	return t.attempt(&a, opProcess, trace.SpanKindConsumer, parent, t.linked(&a))
}

// Failed begins the span of an attempt that has failed and was not recorded when it began; nil where
// failures are not recorded. It is the root of a trace, since no other part of its own is recorded.
func (t *Tracer) Failed(a Attempt) *Span {
	if !t.failures {
		return nil
	}
	parent, _ := ParentOf(a.Message.Headers)
	return t.attempt(&a, opProcess, trace.SpanKindConsumer, parent, true)
}

// Receive records that a pull worker got a job.
func (t *Tracer) Receive(a Attempt) {
	parent, ok := ParentOf(a.Message.Headers)
	if !ok || !parent.Sampled() {
		if t.failures {
			t.Listed(a)
		}
		return
	}
	s := t.attempt(&a, opReceive, trace.SpanKindClient, parent, t.linked(&a))
	t.received.Put(keyOf(a.Consumer, a.Message.ID), s.span.SpanContext())
	s.End("")
}

// mostListed bounds the headers that are kept of a job in a list, bytes.
const mostListed = 600

// Listed remembers a job that a list shows: a worker claims it by its ID, which leads to no message. Where
// failures are recorded it remembers those that are not sampled, too: the report of a failure links to them.
func (t *Tracer) Listed(a Attempt) {
	m := a.Message
	parent, ok := ParentOf(m.Headers)
	if !ok || !parent.Sampled() && !t.failures {
		return
	}
	kept := withLine(nil, ParentHeader, parent.Append(nil))
	if from, to, ok := line(m.Headers, StateHeader); ok && to-from <= mostListed {
		kept = withLine(kept, StateHeader, m.Headers[from:to])
	}
	a.Message = &durable.Message{ID: m.ID, ChannelNo: m.ChannelNo, Key: m.Key, Headers: kept}
	t.listed.Put(keyOf(a.Consumer, m.ID), a)
}

// Claimed is Receive for a job that was claimed by its ID. Its Message may be nil: a list may have shown it.
func (t *Tracer) Claimed(a Attempt, id ident.ID) {
	if was, ok := t.listed.Get(keyOf(a.Consumer, id)); ok {
		a.Message, a.RedrivenMs = was.Message, was.RedrivenMs
	}
	if a.Message != nil {
		t.Receive(a)
	}
}

// attempt begins the span of an attempt: a child of the parent, or linked to it.
func (t *Tracer) attempt(a *Attempt, op string, kind trace.SpanKind, parent Parent, linked bool) *Span {
	ctx, m, k := context.Background(), a.Message, a.Consumer
	var options []trace.SpanStartOption
	switch {
	case !linked:
		ctx = within(ctx, parent, m.Headers)
	default:
		ctx = context.WithValue(ctx, traceKey{}, TraceOf(m.ID, k.No, a.No, a.RedrivenMs))
		options = append(options, trace.WithNewRoot())
		if parent.Trace.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: remote(parent, m.Headers)}))
		}
	}
	s := t.start(ctx, op, kind, m.ChannelNo, a.Begun, options...)
	s.message(m)
	s.span.SetAttributes(subscription.String(k.ID), attribute.Int("penstock.attempt", a.No),
		attribute.String("penstock.job.id", m.ID.Job(k.Position).String()))
	if k.Replay != nil {
		s.span.SetAttributes(attribute.String("penstock.replay.id", k.Replay.ID()))
	}
	return s
}

// Settle begins the span of the report of a pull worker about a job, or returns nil where it is not
// recorded: the job was received at another broker, the request has no sampled traceparent, and the
// report is not that of a failure, or failures are not recorded.
func (t *Tracer) Settle(k *durable.Consumer, id ident.ID, caller []byte, failed bool, begun time.Time) *Span {
	own, found := t.received.Get(keyOf(k, id))
	from, called := ParseParent(caller)
	called = called && from.Sampled()
	ctx := context.Background()
	var options []trace.SpanStartOption
	switch {
	case found:
		ctx = trace.ContextWithRemoteSpanContext(ctx, own)
		if called && from.Trace != own.TraceID() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: remote(from, nil)}))
		}
	case called:
		ctx = within(ctx, from, nil)
	case failed && t.failures:
		ctx = context.WithValue(ctx, traceKey{}, randomTrace()) // which is what makes it a recorded root
		options = append(options, trace.WithNewRoot())
		if was, ok := t.listed.Get(keyOf(k, id)); ok {
			parent, _ := ParentOf(was.Message.Headers)
			options = append(options, trace.WithLinks(trace.Link{SpanContext: remote(parent, was.Message.Headers)}))
		}
	default:
		return nil
	}
	s := t.start(ctx, opSettle, trace.SpanKindClient, k.ChannelNo, begun, options...)
	s.span.SetAttributes(subscription.String(k.ID), messageID.String(id.String()),
		attribute.String("penstock.job.id", id.Job(k.Position).String()))
	return s
}

// start begins a span.
func (t *Tracer) start(ctx context.Context, op string, kind trace.SpanKind, channelNo uint32, begun time.Time,
	options ...trace.SpanStartOption) *Span {
	channel := t.channel(channelNo)
	options = append(options, trace.WithSpanKind(kind), trace.WithTimestamp(begun), trace.WithAttributes(
		attribute.String("messaging.system", system), attribute.String("messaging.operation.name", op),
		attribute.String("messaging.operation.type", op), attribute.String("messaging.destination.name", channel)))
	_, span := t.tracer.Start(ctx, op+" "+channel, options...)
	return &Span{span: span}
}

// within returns a context whose spans are children of a remote one.
func within(ctx context.Context, p Parent, headers []byte) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, remote(p, headers))
}

func remote(p Parent, headers []byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.Trace, SpanID: p.Span,
		TraceFlags: trace.TraceFlags(p.Flags), TraceState: stateOf(headers), Remote: true})
}

// traceKey is the key of the trace that a new root gets.
type traceKey struct{}

// An ids makes the IDs of spans.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if id, ok := ctx.Value(traceKey{}).(trace.TraceID); ok {
		return id, randomSpan()
	}
	return randomTrace(), randomSpan()
}

func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return randomSpan() }
