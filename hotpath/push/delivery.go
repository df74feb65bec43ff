package push

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
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
	probe    int64     // of the one probe of a revived consumer: Unix ms until which it may be sent
	expiry   int64     // when the job expires, Unix ms; 0: never

	leasesLost int           // those of the job before this one that ended without a word
	redrivenMs int64         // as in durable.JobState
	span       *tracing.Span // of the attempt; nil: it is not recorded

	last bool         // no attempt follows; written before the outcome is added
	end  atomic.Int32 // how the delivery left those in flight, where Redis forgets its lease

	// lost is set when Redis has leased the job to another claim, or counts this attempt as over. A
	// lost delivery is not sent. A request that has already begun continues to its end.
	lost    atomic.Bool
	kept    *exchange.Taken // room of the response; of the goroutine of the attempt, then of its sink
	note    string          // what the status URL said; of the goroutine of the attempt
	granted string          // where the rates count the lease; of the goroutine of the attempt
	// refused is when the request was sent whose access token the consumer refused although it was just
	// renewed; zero: it did not. Of the goroutine of the attempt.
	refused time.Time
}

// Values of delivery.end. 0 is any other end, after which Redis knows the job.
const (
	over      = 1 // the outcome is stored, and no attempt follows
	givenBack = 2 // the request was not sent
)

// deliver begins the delivery, or leaves it to a request of its lane that ends. Requests run in
// goroutines that wait for more work before they exit. The slots that claims reserve bound the
// number of these goroutines.
func (d *Dispatcher) deliver(v *delivery) {
	d.inFlight.add(v)
	if v.lease.Attempt > 1 {
		v.lane.retrying.Add(1)
	}
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
				v = v.work()
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

// work makes the attempt, hands over its outcome, and returns the next delivery of the lane. The
// slot is free as soon as the consumer has answered. The lease is held until the outcome is stored.
func (v *delivery) work() *delivery {
	d := v.d
	v.attempt(d.life)
	// The outcome may wait for the store; the payload must not stay in memory for that time.
	short := d.large.give(v.lane, v.msg)
	v.msg = nil
	if v.lease.Attempt > 1 {
		v.lane.retrying.Add(-1)
	}
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

// attempt makes the attempt. ctx is its context, as a request has one: it ends with the dispatcher.
func (v *delivery) attempt(ctx context.Context) {
	d := v.d
	begun, p, seen := time.Now(), d.policy(v.consumer), v.lane.consumer.Load()
	if !v.sendable(begun, p, seen) {
		return
	}
	res := v.guardedSend(ctx, p, begun)
	v.lane.observe(res.Took)
	if res.Response == nil {
		v.dropKept()
	}
	verdict := p.Judge(answerOf(&res), v.counted(p))
	switch {
	case res.Local:
		v.giveBack()
		d.WakeAfter(v.lane.no, storePause)
	case errors.Is(res.Err, egress.ErrClosed):
		v.cut()
	case verdict.Meaning == policy.Gone:
		if d.traces != nil {
			v.endSpan(begun, &res, false)
		}
		v.dropKept()
		d.gone(v, seen)
	case !v.refused.IsZero() && d.holdRefusing(v, seen):
	default:
		d.strain(v, seen, p, verdict, res.Status)
		if d.traces != nil {
			v.endSpan(begun, &res, verdict.Meaning == policy.Delivered)
		}
		var r outcome.Entry
		if err := guard.Do("outcome of a delivery", func() error {
			r = v.outcome(res, verdict)
			return nil
		}); err != nil {
			v.dropKept()
			d.inFlight.remove(v) // the lease expires by itself
			d.log.Error("outcome of a delivery was not stored; its lease ends and it is tried again",
				v.about("error", err)...)
			return
		}
		if v.probe != 0 {
			d.probed(v, seen, &r.Outcome)
		}
		v.last = r.Outcome.Kind != durable.OutcomeRetry
		d.outcomes.Add(r)
	}
}

// guardedSend makes the request of the attempt.
func (v *delivery) guardedSend(ctx context.Context, p *policy.Policy, begun time.Time) (res egress.Result) {
	d := v.d
	if d.traces != nil {
		v.span = d.traces.Process(v.traced(begun))
	}
	failpoint.At(failpoint.BeforePost)
	if err := guard.Do("delivery", func() error {
		res = v.send(ctx, p, begun.Add(p.Timeout))
		return nil
	}); err != nil {
		// This counts as a failed attempt, so that a job that always fails here ends as dead.
		res = egress.Result{Err: errDelivery}
		d.log.Error("delivery failed in the broker", v.about("error", err)...)
	}
	failpoint.At(failpoint.AfterPost)
	return res
}

// sendable reports whether the request may still be sent. If it may not, sendable has ended the
// delivery: its job is given back, over, or leased to another claim.
func (v *delivery) sendable(begun time.Time, p *policy.Policy, seen *durable.Consumer) bool {
	d := v.d
	if v.lost.Load() {
		d.inFlight.remove(v)
		d.returnProbe(v)
		return false
	}
	// After a pause of the process the lease may have expired, and a request on an expired lease
	// must not be sent. The rest of the lease must cover the whole request.
	if d.isStopped() || begun.Sub(v.at) > d.lease(v.consumer)-p.Timeout {
		v.giveBack()
		return false
	}
	if seen.Held() && (seen.State != durable.StateProbing || v.probe == 0) {
		v.giveBack()
		d.Wake(v.lane.no) // it may have been resumed, and found nothing, before the job was back
		return false
	}
	if v.stale(seen) || v.probe == 0 && d.rest(v.consumer) > 0 {
		v.giveBack()
		d.Wake(v.lane.no)
		return false
	}
	if v.expiry > 0 && d.nowMs() >= v.expiry { // while it waited in its lane
		out := durable.Expiration(v.consumer.No, v.msg.ID, v.msg.Priority, v.lease.Attempt-1, d.nowMs())
		v.last = true
		d.outcomes.Add(outcome.Entry{Outcome: out, Lease: v.lease, Sink: v})
		d.settler().Expired(v.msg.ID)
		d.returnProbe(v)
		return false
	}
	return true
}

// stale reports whether where, or how, the consumer is called has changed since the claim. The job may
// have waited in its lane for long: it must not go to the former address, or with former credentials.
func (v *delivery) stale(seen *durable.Consumer) bool {
	was := v.consumer
	return seen.Version != was.Version && (seen.CallbackURL != was.CallbackURL || seen.Type != was.Type ||
		seen.Protocol != was.Protocol ||
		seen.Token != was.Token || seen.Policy != was.Policy)
}

// errDelivery is the error of an attempt that failed inside the broker.
var errDelivery = errors.New("the broker failed to make this delivery; its log says why")

// job returns the ID of the job as text.
func (v *delivery) job() string { return v.msg.ID.Job(v.consumer.Position).String() }

// about returns the attributes of a line in the log about the delivery: which one it is, and more.
func (v *delivery) about(more ...any) []any {
	return append([]any{"consumer", v.consumer.No, "message", v.msg.PathID(), "job", v.job()}, more...)
}

func (d *Dispatcher) isStopped() bool {
	select {
	case <-d.quit:
		return true
	default:
		return false
	}
}

// send makes the attempt through the sender of the consumer's callback URL. It ends by the deadline,
// even if the process is paused before it begins.
func (v *delivery) send(ctx context.Context, p *policy.Policy, deadline time.Time) egress.Result {
	target, err := v.target()
	if err != nil {
		return egress.Result{Err: err}
	}
	return target.Send(ctx, Attempt{Message: v.msg, Consumer: v.consumer, Policy: p, No: v.lease.Attempt, delivery: v},
		deadline)
}

// post sends the request: the payload unchanged, the headers of the broker, and the producer's
// metadata except the names reserved for the broker.
func (v *delivery) post(ctx context.Context, target *posting, deadline time.Time) egress.Result {
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	p := v.fill(req)
	if client, ok := p.Authorization.OAuth2(); ok {
		return v.postWithToken(ctx, target, req, client, deadline)
	}
	if err := v.inTime(ctx, deadline, false); err != nil {
		return Unsent(err)
	}
	return v.request(target, req, p, deadline)
}

// fill sets headers and body of the request, and returns the policy that it goes by. An access token is
// not among them.
func (v *delivery) fill(req *fasthttp.Request) *policy.Policy {
	h := &req.Header
	o := &v.d.settings
	p := v.d.policy(v.consumer)
	headers := v.carried(p)
	if v.span != nil {
		headers = v.span.Headers(headers)
	}
	metadata.Set(h, headers, o.TokenHeader)
	h.SetContentType(v.msg.ContentType)
	h.SetUserAgent(o.UserAgent)
	v.identify(h, p)
	p.Prove(v.provable(setOwn(h)), v.webhookID(), v.msg.Payload, time.Now())
	if v.msg.ProducerNo == 0 {
		v.describeReply(h)
	}
	req.SetBodyRaw(v.msg.Payload)
	return p
}

// carried returns the headers that go with the message. A dead letter that was forwarded has some that
// the broker made: they name a job, a consumer and a channel, so identity=minimal leaves them out.
func (v *delivery) carried(p *policy.Policy) []byte {
	if p.Identity == policy.DiscloseAll || !ident.Forwarded(v.msg.Key) {
		return v.msg.Headers
	}
	var rest []byte
	for line := range bytes.Lines(v.msg.Headers) {
		if !strings.HasPrefix(strings.ToLower(string(line)), "x-dead-") {
			rest = append(rest, line...)
		}
	}
	return rest
}

// identify sets the headers that say who sends what to whom: with identity=minimal the ID of the
// message and the time alone, as Standard Webhooks has them. A signature comes on top.
func (v *delivery) identify(h *fasthttp.RequestHeader, p *policy.Policy) {
	if p.Identity == policy.DiscloseLeast {
		h.Del(metadata.ListHeader)
		h.Del(durable.OrderingHeader)
		h.Del(durable.TaskHeader)
		set := setOwn(h)
		set("webhook-id", v.webhookID())
		set("webhook-timestamp", strconv.FormatInt(time.Now().Unix(), 10))
		return
	}
	h.Set(v.d.settings.TokenHeader, v.consumer.Token)
	if ch := v.d.catalogue.ChannelByNo(v.msg.ChannelNo); ch != nil {
		h.Set("X-Broker-Channel-ID", ch.ID)
	}
	if p := v.d.catalogue.ProducerByNo(v.msg.ProducerNo); p != nil {
		h.Set("X-Broker-Producer-ID", p.ID)
	}
	h.Set("X-Broker-Consumer-ID", v.consumer.ID)
	h.Set("X-Broker-Message-ID", v.msg.PathID())
	h.Set("X-Broker-Message-Priority", strconv.Itoa(v.msg.Priority))
	job := v.msg.ID.Job(v.consumer.Position).String()
	attempt := strconv.Itoa(v.lease.Attempt)
	h.Set("X-Broker-Job-ID", job)
	h.Set("X-Broker-Attempt", attempt)
	if r := v.consumer.Replay; r != nil {
		h.Set("X-Broker-Replay", r.ID())
	}
	h.Set("X-Request-ID", job+"-"+attempt)
}

// target returns the target of the consumer's requests. It makes a new one after the consumer's
// record has changed.
func (v *delivery) target() (Target, error) {
	if t := v.lane.target.Load(); t != nil && t.version == v.consumer.Version {
		return t.target, t.err
	}
	rule := egress.ToConsumers
	if ch := v.d.catalogue.ChannelByNo(v.consumer.ChannelNo); ch != nil && ident.RepliesTo(ch.ID) > 0 {
		rule = egress.Configured // a reply URL
	}
	target, err := v.d.client.Target(rule, v.consumer.CallbackURL, v.consumer.Protocol)
	v.lane.target.Store(&laneTarget{version: v.consumer.Version, target: target, err: err})
	return target, err
}
