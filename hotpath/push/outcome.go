package push

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// outcome returns the result to store of an attempt whose answer has that verdict of the policy.
func (v *delivery) outcome(res egress.Result, verdict policy.Verdict) outcome.Entry {
	d, m := v.d, v.d.metrics
	metrics.Observe(m.AttemptSeconds, res.Took.Seconds(), v.traceID())
	out := durable.Outcome{
		ConsumerNo: v.consumer.No, ID: v.msg.ID, Priority: v.msg.Priority,
		Attempts: v.lease.Attempt, AtMs: d.nowMs(), StatusCode: res.Status, DurationMs: res.Took.Milliseconds(),
		Tracked: v.tracked || v.lease.Attempt > 1, ProducerNo: v.msg.ProducerNo,
	}
	p := d.policy(v.consumer)
	r := outcome.Entry{Lease: v.lease, Sink: v, Urgency: v.urgency(p)}
	if verdict.Meaning == policy.Delivered {
		out.Kind, out.Note = durable.OutcomeDelivered, v.note
		out.Tracked = out.Tracked || v.note != ""
		if p.Responses != policy.ResponsesOff || v.msg.ProducerNo == 0 {
			v.answered(&out, &res, p)
		}
		m.Attempts.WithLabelValues("delivered").Inc()
		if out.Attempts == 1 && v.consumer.Replay == nil { // a replayed message is as old as it is
			took := time.Duration(out.AtMs-v.msg.ID.Millis()) * time.Millisecond // the store's clock
			metrics.Observe(m.EndToEnd, took.Seconds(), v.traceID())
			if v.msg.ID.Millis() > max(v.lane.consumer.Load().StateMs, v.lane.heldTo.Load()) { // it was not held meanwhile
				d.pace.Observe(took-res.Took, res.Took)
			}
		}
		d.verifier.Cache.Done(v.msg.ID)
		r.Outcome = out
		return r
	}
	out.Answer, out.Error, out.Phase = res.Answer, describeFailure(res), phaseOf(res)
	if p.TombstoneAfter > 0 {
		out.Tombstone = &durable.Tombstone{ConsumerNo: v.consumer.Account(), After: p.TombstoneAfter,
			Window: p.TombstoneWindow}
	}
	if verdict.Meaning != policy.Retry {
		out.Kind = durable.OutcomeDead
		if verdict.Meaning == policy.Rejected {
			out.Reason, out.Cause = durable.Rejected, out.Error
			out.Error = "the consumer's policy does not retry this answer: " + out.Error
			if res.Reply == egress.Refused {
				out.Error = "the answer says that no repetition helps: " + out.Cause
			}
		} else {
			out.Reason, out.Cause = durable.AttemptsExhausted, out.Error
			out.Error = fmt.Sprintf("attempt %d of %d failed: %s", v.counted(p), p.MaxAttempts(), out.Error)
		}
		m.Attempts.WithLabelValues("dead").Inc()
		m.Died(out.Reason, 1)
		d.verifier.Cache.Done(v.msg.ID)
		d.log.Info("job is dead", v.about("attempts", v.lease.Attempt, "status", res.Status, "error", out.Error)...)
	} else {
		out.Kind = durable.OutcomeRetry
		r.Delay = verdict.Delay
		out.NextMs = out.AtMs + r.Delay.Milliseconds()
		m.Attempts.WithLabelValues("retry").Inc()
		d.log.Debug("attempt failed", v.about("attempt", v.lease.Attempt, "status", res.Status, "error", out.Error,
			"retry_in", r.Delay)...)
	}
	r.Outcome = out
	return r
}

// answerOf is the end of an attempt as a policy gets it.
func answerOf(res *egress.Result) policy.Answer {
	return policy.Answer{Status: res.Status, Complete: res.Err == nil, RetryAfter: res.RetryAfter,
		Deferred: res.Reply == egress.Deferred, Refused: res.Reply == egress.Refused}
}

// counted is the number of the attempt among those that count against the retries.
func (v *delivery) counted(p *policy.Policy) int { return p.Counted(v.lease.Attempt, v.leasesLost) }

// urgency reports whether another job may wait for the end of this one: the jobs of an ordering key go
// out one at a time, or the concurrency keeps jobs back.
func (v *delivery) urgency(p *policy.Policy) outcome.Urgency {
	if p.Ordered && v.msg.Keyed() {
		return outcome.Awaited
	}
	return v.lane.urgency()
}

// Ended removes the delivery from those in flight.
func (v *delivery) Ended(stored bool) {
	if stored && v.last {
		v.end.Store(over)
	}
	v.d.inFlight.remove(v)
	v.dropKept()
}

// Retrying wakes the lane when the job is due again.
func (v *delivery) Retrying(after time.Duration) {
	v.d.touched(v.lane.no)
	v.d.WakeAfter(v.lane.no, after)
}

// Done tells the lane that Redis has ended the lease.
func (v *delivery) Done(error) { v.d.leaseEnded(v.lane) }

// phaseOf says how far a failed attempt came.
func phaseOf(res egress.Result) durable.Phase {
	switch {
	case res.Err == nil:
		return durable.PhaseAnswered
	case res.Sent || res.Status != 0:
		return durable.PhaseMaybeProcessed
	}
	return durable.PhaseNotSent
}

func describeFailure(res egress.Result) string {
	if res.Err != nil || res.Words != "" {
		text := res.Words
		if text == "" {
			text = egress.Say(res.Err)
		}
		if len(text) > 512 {
			text = text[:512]
		}
		return strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	if res.Status/100 == 3 {
		return "status " + strconv.Itoa(res.Status) + " (redirects are not followed)"
	}
	return "status " + strconv.Itoa(res.Status)
}
