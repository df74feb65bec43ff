package api

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Traces say what a timeline knows of traces. The zero value is a broker without them: it shows the
// trace of the producer.
type Traces struct {
	On       bool          // attempts of sampled messages are recorded
	Follow   time.Duration // as in tracing.Settings
	Failures bool          // as in tracing.Settings
	URL      string        // of a trace, with TracePlace in it; "": none
}

// TracePlace stands for the ID of a trace in Traces.URL.
const TracePlace = "{traceID}"

// link returns the address of a trace, "" for none.
func (t *Traces) link(id string) string {
	if t.URL == "" || id == "" {
		return ""
	}
	return strings.ReplaceAll(t.URL, TracePlace, id)
}

// readTrace reads the creation context of the message, which its headers have.
func (t *timeline) readTrace(ctx context.Context) (err error) {
	if t.m.Headers, err = t.a.o.Store.HeadersOf(ctx, t.m.ChannelNo, t.m.ID); err == nil {
		t.parent, t.traced = tracing.ParentOf(t.m.Headers)
	}
	return err
}

// publishTrace returns the ID of the trace of the publish, "" for none.
func (t *timeline) publishTrace() string {
	if !t.traced {
		return ""
	}
	return t.parent.Trace.String()
}

// tell puts the trace of a step of an attempt into its event. redrivenMs is when the job was redriven last
// before the step; 0: never.
func (t *timeline) tell(e *apitype.TimelineEvent, k *durable.Consumer, s *durable.Step, redrivenMs int64) {
	if id := t.traceOf(k, s, redrivenMs); id.IsValid() {
		e.TraceID = id.String()
		e.TraceURL = t.a.o.Traces.link(e.TraceID)
	}
}

// traceOf returns the trace of the attempt that a step is about; none where it has none, or where that is
// not known: what is stored of the report of a pull worker does not say when it got the job, and a page
// may begin behind the redrive.
func (t *timeline) traceOf(k *durable.Consumer, s *durable.Step, redrivenMs int64) (none trace.TraceID) {
	o, failed := &t.a.o.Traces, false
	switch s.Kind {
	case durable.StepAttempt:
		failed = true
	case durable.StepDead:
		failed = s.Reason.Attempted()
	case durable.StepReplayed:
		failed = s.Reason != durable.NoReason && s.Reason.Attempted()
	case durable.StepDelivered, durable.StepGivenBack:
	default:
		return none
	}
	if s.Attempt == 0 || t.fromMs > 0 && k.Position == t.pos && redrivenMs == 0 {
		return none
	}
	apart := redrivenMs > 0 || s.ReplayNo > 0 || tracing.Apart(t.m)
	begunMs := s.AtMs - t.m.ID.Millis()
	if s.DurationMs != nil {
		begunMs -= *s.DurationMs
	}
	if !apart && t.traced && t.parent.Sampled() && tracing.Follows(begunMs, o.Follow) {
		return t.parent.Trace
	}
	sampled := t.traced && t.parent.Sampled()
	switch {
	case !o.On, !sampled && !(failed && o.Failures && k.Type == durable.Push), !apart && k.Type == durable.Pull:
		return none
	}
	generation := s.ConsumerNo
	if s.ReplayNo > 0 {
		generation, redrivenMs = s.ReplayNo, 0
	}
	return tracing.TraceOf(t.m.ID, generation, s.Attempt, redrivenMs)
}
