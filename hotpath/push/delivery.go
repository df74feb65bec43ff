package push

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// workerIdle is the time for which an idle delivery goroutine waits for work.
const workerIdle = 5 * time.Second

// A delivery is one attempt of one push job.
type delivery struct {
	d        *Dispatcher
	lane     *lane
	consumer *durable.Consumer // as it was at the claim: a change applies from the next attempt
	msg      *durable.Message  // nil once the consumer has answered
	lease    redisq.Lease
	at       time.Time // time before the claim was sent; monotonic
	tracked  bool      // the store may have a row about the job

	// lost is set when Redis has leased the job to another claim, or counts this attempt as over. A
	// lost delivery is not sent. A request that has already begun continues to its end.
	lost atomic.Bool
}

// deliver begins the delivery, or leaves it to a request of its lane that ends. Requests run in
// goroutines that wait for more work before they exit. The slots that claims reserve bound the
// number of these goroutines.
func (d *Dispatcher) deliver(v *delivery) {
	d.inFlight.add(v)
	if v = v.lane.put(v); v == nil {
		return
	}
	select {
	case d.idle <- v:
		return
	default:
	}
	d.deliveries.Go(func() {
		defer guard.Watch("delivery worker")
		idle := time.NewTimer(workerIdle)
		defer idle.Stop()
		for {
			for v != nil {
				v = v.run()
			}
			idle.Reset(workerIdle)
			select {
			case v = <-d.idle:
			case <-idle.C:
				return
			case <-d.quit:
				return
			}
		}
	})
}

// run makes the attempt, hands over its outcome, and returns the next delivery of the lane. The
// slot is free as soon as the consumer has answered. The lease is held until the outcome is stored.
func (v *delivery) run() *delivery {
	d := v.d
	v.attempt()
	// The outcome may wait for the store; the payload must not stay in memory for that time.
	short := d.large.give(v.lane, v.msg)
	v.msg = nil
	d.free(1)
	for _, l := range short {
		d.Wake(l.no)
	}
	next, claim := v.lane.next()
	if claim {
		d.Wake(v.lane.no)
	}
	return next
}

func (v *delivery) attempt() {
	d := v.d
	if v.lost.Load() {
		d.inFlight.remove(v)
		return
	}
	// After a pause of the process the lease may have expired, and a request on an expired lease
	// must not be sent. The rest of the lease must cover the whole exchange.
	begun, p := time.Now(), d.policy(v.consumer)
	if d.isStopped() || begun.Sub(v.at) > d.lease(v.consumer)-p.Timeout {
		d.inFlight.remove(v)
		d.release(v.lane, []redisq.Lease{v.lease})
		return
	}
	failpoint.At(failpoint.BeforePost)
	var res egress.Result
	if err := guard.Do("delivery", func() error {
		res = v.post(begun.Add(p.Timeout))
		return nil
	}); err != nil {
		// This counts as a failed attempt, so that a job that always fails here ends as dead.
		res = egress.Result{Err: errDelivery}
		d.log.Error("delivery failed in the broker", "job", v.job(), "consumer", v.consumer.ID, "error", err)
	}
	failpoint.At(failpoint.AfterPost)
	v.lane.observe(res.Took)
	switch {
	case res.Local:
		d.inFlight.remove(v)
		d.release(v.lane, []redisq.Lease{v.lease})
		d.WakeAfter(v.lane.no, storePause)
	case errors.Is(res.Err, egress.ErrClosed):
		// The broker cut the exchange, so its result is unknown and no attempt is judged. The lease
		// expires by itself.
		d.inFlight.remove(v)
	default:
		var r outcome.Result
		if err := guard.Do("outcome of a delivery", func() error {
			r = v.outcome(res)
			return nil
		}); err != nil {
			d.inFlight.remove(v) // the lease expires by itself
			d.log.Error("outcome of a delivery was not stored; its lease ends and it is tried again", "job", v.job(), "consumer", v.consumer.ID, "error", err)
			return
		}
		d.outcomes.Add(r)
	}
}

// errDelivery is the error of an attempt that failed inside the broker.
var errDelivery = errors.New("the broker failed to make this delivery; its log says why")

// job returns the ID of the job as text.
func (v *delivery) job() string { return v.msg.ID.Job(v.consumer.Position).String() }

func (d *Dispatcher) isStopped() bool {
	select {
	case <-d.quit:
		return true
	default:
		return false
	}
}

// post sends the request: the payload unchanged, the headers of the broker, and the producer's
// metadata except the names reserved for the broker. The exchange ends by the deadline, even if the
// process is paused before the request begins.
func (v *delivery) post(deadline time.Time) egress.Result {
	target, err := v.target()
	if err != nil {
		return egress.Result{Err: err}
	}
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	h := &req.Header
	o := &v.d.settings
	metadata.Set(h, v.msg.Headers, o.TokenHeader)
	h.SetContentType(v.msg.ContentType)
	h.SetUserAgent(o.UserAgent)
	h.Set(o.TokenHeader, v.consumer.Token)
	if ch := v.d.catalogue.ChannelByNo(v.msg.ChannelNo); ch != nil {
		h.Set("X-Broker-Channel-ID", ch.ID)
	}
	h.Set("X-Broker-Consumer-ID", v.consumer.ID)
	h.Set("X-Broker-Message-ID", v.msg.PublicID())
	h.Set("X-Broker-Message-Priority", strconv.Itoa(v.msg.Priority))
	job := v.msg.ID.Job(v.consumer.Position).String()
	attempt := strconv.Itoa(v.lease.Attempt)
	h.Set("X-Broker-Job-ID", job)
	h.Set("X-Broker-Attempt", attempt)
	h.Set("X-Request-ID", job+"-"+attempt)
	req.SetBodyRaw(v.msg.Payload)
	return target.Post(req, time.Until(deadline))
}

// target returns the target of the consumer's requests. It makes a new one after the consumer's
// record has changed.
func (v *delivery) target() (Target, error) {
	if t := v.lane.target.Load(); t != nil && t.version == v.consumer.Version {
		return t.target, t.err
	}
	target, err := v.d.client.Target(v.consumer.CallbackURL, v.consumer.Protocol)
	v.lane.target.Store(&laneTarget{version: v.consumer.Version, target: target, err: err})
	return target, err
}

// outcome judges the answer by the consumer's policy and returns the result to store.
func (v *delivery) outcome(res egress.Result) outcome.Result {
	d, m := v.d, v.d.metrics
	m.AttemptSeconds.Observe(res.Took.Seconds())
	out := durable.Outcome{
		ConsumerNo: v.consumer.No, ID: v.msg.ID, Priority: v.msg.Priority,
		Attempts: v.lease.Attempt, AtMs: d.nowMs(), StatusCode: res.Status,
		Tracked: v.tracked || v.lease.Attempt > 1,
	}
	r := outcome.Result{Lease: v.lease, Sink: v}
	p := d.policy(v.consumer)
	verdict := p.Judge(policy.Answer{Status: res.Status, Complete: res.Err == nil, RetryAfter: res.RetryAfter}, v.lease.Attempt)
	if verdict.Meaning == policy.Delivered {
		out.Kind = durable.OutcomeDelivered
		m.Attempts.WithLabelValues("delivered").Inc()
		if out.Attempts == 1 {
			took := time.Duration(out.AtMs-v.msg.ID.Millis()) * time.Millisecond // the store's clock
			m.EndToEnd.Observe(took.Seconds())
			d.pace.Observe(took-res.Took, res.Took)
		}
		d.verifier.Cache.Done(v.msg.ID)
		r.Outcome = out
		return r
	}
	out.Answer, out.DurationMs = res.Answer, res.Took.Milliseconds()
	out.Error = describeFailure(res)
	if verdict.Meaning != policy.Retry {
		out.Kind = durable.OutcomeDead
		if verdict.Meaning == policy.Rejected {
			out.Error = "the consumer's policy does not retry this answer: " + out.Error
		} else {
			out.Error = fmt.Sprintf("attempt %d of %d failed: %s", v.lease.Attempt, p.MaxAttempts(), out.Error)
		}
		m.Attempts.WithLabelValues("dead").Inc()
		m.Dead.Inc()
		d.verifier.Cache.Done(v.msg.ID)
		d.log.Info("job is dead", "job", v.msg.ID.Job(v.consumer.Position).String(), "consumer", v.consumer.ID,
			"attempts", v.lease.Attempt, "status", res.Status, "error", out.Error)
	} else {
		out.Kind = durable.OutcomeRetry
		r.Delay = verdict.Delay
		out.NextMs = out.AtMs + r.Delay.Milliseconds()
		m.Attempts.WithLabelValues("retry").Inc()
		d.log.Debug("attempt failed", "job", v.msg.ID.Job(v.consumer.Position).String(), "consumer", v.consumer.ID,
			"attempt", v.lease.Attempt, "status", res.Status, "error", out.Error, "retry_in", r.Delay)
	}
	r.Outcome = out
	return r
}

// Ended removes the delivery from those in flight: its outcome is stored, or given up.
func (v *delivery) Ended() { v.d.inFlight.remove(v) }

// Retrying wakes the lane when the job is due again.
func (v *delivery) Retrying(after time.Duration) {
	v.d.touched(v.lane.no)
	v.d.WakeAfter(v.lane.no, after)
}

// Done does nothing: no request waits for the outcome of a push.
func (v *delivery) Done(error) {}

func describeFailure(res egress.Result) string {
	if res.Err != nil {
		text := res.Err.Error()
		if len(text) > 512 {
			text = text[:512]
		}
		return strings.ToValidUTF8(text, string(utf8.RuneError))
	}
	return "status " + strconv.Itoa(res.Status)
}
