package push

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// traced is the attempt as a trace has it.
func (v *delivery) traced(begun time.Time) tracing.Attempt {
	return tracing.Attempt{Consumer: v.consumer, Message: v.msg, No: v.lease.Attempt, RedrivenMs: v.redrivenMs,
		Begun: begun}
}

// endSpan ends the span of the attempt. A failure may have one that begins only now.
func (v *delivery) endSpan(begun time.Time, res *egress.Result, delivered bool) {
	if v.span == nil && !delivered {
		v.span = v.d.traces.Failed(v.traced(begun))
	}
	if v.span == nil {
		return
	}
	if u, err := url.Parse(v.consumer.CallbackURL); err == nil && u.Host != "" { // a request
		port, _ := strconv.Atoi(u.Port())
		v.span.At(u.Hostname(), port)
		v.span.Answered(fasthttp.MethodPost, res.Status)
	}
	if !delivered {
		v.span.Fail(kindOf(res), describeFailure(*res))
	}
	v.span.End("")
}

// traceID is the ID of the trace of the attempt, "" where it is not recorded.
func (v *delivery) traceID() string {
	if v.span == nil {
		return ""
	}
	return v.span.Trace()
}

// kindOf is the kind of a failure, one of few.
func kindOf(res *egress.Result) string {
	var slow net.Error
	switch {
	case res.Err == nil:
		return tracing.KindOfStatus(res.Status)
	case errors.Is(res.Err, os.ErrDeadlineExceeded), errors.Is(res.Err, context.DeadlineExceeded),
		errors.Is(res.Err, fasthttp.ErrTimeout), errors.As(res.Err, &slow) && slow.Timeout():
		return "timeout"
	case phaseOf(*res) == durable.PhaseNotSent:
		return "not_sent"
	}
	return "maybe_processed"
}
