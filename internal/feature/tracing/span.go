package tracing

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-broker/penstock/durable"
)

const (
	messageID    = attribute.Key("messaging.message.id")
	subscription = attribute.Key("messaging.destination.subscription.name")
	batchCount   = attribute.Key("messaging.batch.message_count")
	errorType    = attribute.Key("error.type")
)

// A Span is one that is recorded. A nil Span has none of these methods called: callers ask first.
type Span struct{ span trace.Span }

// message describes the message.
func (s *Span) message(m *durable.Message) {
	if m.Payload != nil {
		s.span.SetAttributes(attribute.Int("messaging.message.body.size", len(m.Payload)))
	}
	if m.ID.Millis() > 0 {
		s.span.SetAttributes(messageID.String(m.PathID()))
	}
}

// Headers returns a copy of the headers of a message in which traceparent names this span.
func (s *Span) Headers(headers []byte) []byte {
	var text [parentBytes]byte
	c := s.span.SpanContext()
	p := Parent{Trace: c.TraceID(), Span: c.SpanID(), Flags: byte(c.TraceFlags())}
	return withLine(headers, ParentHeader, p.Append(text[:0]))
}

// Committed records that the store has the message, in a transaction of so many messages; 0: it is not
// known how many.
func (s *Span) Committed(m *durable.Message, together int) {
	attributes := []attribute.KeyValue{}
	if together > 0 {
		attributes = append(attributes, batchCount.Int(together))
	}
	s.span.AddEvent("commit", trace.WithAttributes(attributes...))
	s.span.SetAttributes(messageID.String(m.PathID()))
}

// Journalled records that the journal of this broker has the message.
func (s *Span) Journalled() { s.span.AddEvent("journal") }

// At says which server was asked.
func (s *Span) At(host string, port int) {
	s.span.SetAttributes(attribute.String("server.address", host))
	if port > 0 {
		s.span.SetAttributes(attribute.Int("server.port", port))
	}
}

// Answered records the status of an answer to a request.
func (s *Span) Answered(method string, status int) {
	s.span.SetAttributes(attribute.String("http.request.method", method))
	if status > 0 {
		s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
}

// Settled says which state a job was moved to.
func (s *Span) Settled(state string) {
	s.span.SetAttributes(attribute.String("penstock.job.state", state))
}

// Fail records a failure: its kind, one of few, and a text for people.
func (s *Span) Fail(kind, text string) {
	s.span.SetAttributes(errorType.String(kind))
	s.span.SetStatus(codes.Error, text)
}

// End ends the span. kind is that of its failure; "": it succeeded.
func (s *Span) End(kind string) {
	if kind != "" {
		s.Fail(kind, "")
	}
	s.span.End()
}

// Trace returns the ID of the trace, as an exemplar has it.
func (s *Span) Trace() string { return s.span.SpanContext().TraceID().String() }

// KindOfStatus is the kind of a failure that is an HTTP status.
func KindOfStatus(status int) string { return strconv.Itoa(status) }
