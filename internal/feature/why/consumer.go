package why

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// Consumer answers why the jobs of a consumer do not move.
func (e *Explainer) Consumer(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer) apitype.Why {
	return e.look(ctx, ch, k).explain(ctx)
}

// explain answers why the jobs of the consumer do not move.
func (v *view) explain(ctx context.Context) apitype.Why {
	c := v.count(ctx)
	if v.queue.OldestReady.IsZero() { // it became due since Redis was asked
		v.queue.OldestReady = c.since
	}
	l := &list{v: v}
	v.unavailable(l, c.waiting())
	if c.waiting() > 0 {
		held := v.held(l, c.waiting())
		v.restoring(l, &c)
		if !held && v.queueErr == nil {
			v.flow(ctx, l, &c)
		}
		v.waits(ctx, l, &c)
	}
	v.channelPaused(l)
	return apitype.Why{Summary: v.summary(l, &c), Reasons: l.sorted(c.approximate), At: *timeAt(v.now)}
}

// first returns the first of the times that are not zero.
func first(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

func timeOf(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// unavailable adds that the store, or the queue, does not answer.
func (v *view) unavailable(l *list, jobs int) {
	if v.storeErr != nil {
		l.add(apitype.WhyReason{Code: string(StoreUnavailable), Jobs: jobs, Approximate: true,
			Detail: "The durable store does not answer, or takes no writes: nothing is delivered until it does. " +
				"What else is listed is from the memory of this broker and from Redis.",
			Action: "GET /readyz, and the log of the broker, say what the store answers."})
	}
	if v.queueErr != nil {
		l.add(apitype.WhyReason{Code: string(QueueRestoring), Jobs: jobs, Approximate: true,
			Detail: "Redis does not answer, so no job can be leased. The store has all jobs.",
			Action: "GET /readyz says whether Redis answers; the queue is restored as soon as it does."})
	}
}

// held adds what holds the whole consumer, and reports whether something does.
func (v *view) held(l *list, jobs int) bool {
	code, since, until, by := v.e.holding(v.k, v.has.Hold, v.now)
	if code == "" {
		return false
	}
	r := apitype.WhyReason{Code: string(code), Since: timeAt(since), Until: timeAt(until), By: by, Jobs: jobs}
	switch code {
	case Paused:
		r.Detail, r.Action = "The consumer is paused: its jobs wait.", "POST "+v.path+"/resume"
	case Gone:
		r.Detail = "The consumer answered 410: its jobs wait until a person says that it is back."
		r.Action = "POST " + v.path + "/resume, or " + v.put(otherURL) + " and then resume"
	case Tombstoned:
		r.Detail = fmt.Sprintf("More failures than tombstoneAfter=%d within tombstoneWindow=%s.", v.p.TombstoneAfter,
			v.p.TombstoneWindow)
		r.Action = "POST " + v.path + "/revive"
	case Probing:
		r.Detail = "The consumer was revived: one job goes out, and its answer decides about the others."
		r.Action = "make the endpoint answer 2xx; POST " + v.path + "/pause stops the probe"
	default:
		r.Detail = "The consumer asked for no jobs until then."
		r.Action = "POST " + v.path + "/resume"
	}
	l.add(r)
	return true
}

// holding returns what holds a consumer as a whole, "" where nothing does.
func (e *Explainer) holding(k *durable.Consumer, h durable.Hold, now time.Time) (code Code, since, until time.Time,
	by string) {
	switch k.State {
	case durable.StatePaused:
		code = Paused
	case durable.StateGone:
		code = Gone
	case durable.StateDead:
		code = Tombstoned
	case durable.StateProbing:
		code = Probing
	default:
		if h.UntilMs > now.UnixMilli() && k.Type == durable.Push {
			return RetryAfter, timeOf(h.SinceMs), timeOf(h.UntilMs), h.By
		}
		return "", time.Time{}, time.Time{}, ""
	}
	return code, timeOf(k.StateMs), time.Time{}, k.StateReason
}

// restoring adds the jobs that the queue does not have again yet.
func (v *view) restoring(l *list, c *counts) {
	if c.missing == 0 {
		return
	}
	young := v.now.Sub(c.oldest) < v.e.o.RationalDelay+time.Second && !c.oldest.IsZero()
	if young || v.queue.Spilled { // its fan-out is under way, or it waits outside the window
		if c.due, c.missing = c.due+c.missing, 0; v.queue.OldestReady.IsZero() {
			v.queue.OldestReady = c.oldest
		}
		return
	}
	l.add(apitype.WhyReason{Code: string(QueueRestoring), Jobs: c.missing, Approximate: c.approximate,
		Detail: "Redis has lost the queue, or the broker has just started: the jobs are loaded again from the store, " +
			"the most urgent first.",
		Action: "none: it ends by itself; BROKER_REAPER must be true on a broker"})
}

// flow adds what keeps due jobs of a consumer from being leased that is not held.
func (v *view) flow(ctx context.Context, l *list, c *counts) {
	if v.k.Type == durable.Pull {
		v.limits(l, c)
		v.workers(ctx, l, c)
		return
	}
	v.adaptive(l, c)
	limited := v.limits(l, c)
	v.endpoint(l, c, limited)
}

// adaptive adds the pace of a consumer that is slowed down.
func (v *view) adaptive(l *list, c *counts) {
	code, pace := AdaptiveSlow, "one attempt a second"
	switch v.paceMode {
	case durable.PaceHeartbeat:
		code, pace = AdaptiveHeartbeat, "one attempt a minute"
	case durable.PaceSlow:
	default:
		return
	}
	r := apitype.WhyReason{Code: string(code), By: "adaptive=true", Jobs: c.waiting(),
		Detail: "Attempts fail, so the consumer gets " + pace + "." + v.lastError(),
		Action: "make the endpoint answer 2xx, or PUT " + v.path + " with adaptive=false"}
	if v.has.Pace.SinceMs > 0 {
		r.Since = msAt(v.has.Pace.SinceMs)
	}
	if v.queue.Limited == redisq.RateLimit && v.queue.Wait > 0 {
		r.Until = timeAt(v.now.Add(v.queue.Wait))
	}
	l.add(r)
}

// limits adds a limit of the policy that is used up, and reports whether one is.
func (v *view) limits(l *list, c *counts) bool {
	if c.due == 0 || v.queue.Limited == redisq.NoLimit {
		return false
	}
	r := apitype.WhyReason{Jobs: c.due, Since: timeAt(v.queue.OldestReady)}
	switch {
	case v.queue.Limited == redisq.ConcurrencyLimit:
		r.Code, r.By = string(ConcurrencyFull), fmt.Sprintf("concurrency=%d", v.p.Concurrency)
		r.Detail = fmt.Sprintf("%s in flight, as many as the policy allows.", jobsAre(v.queue.Leased))
		r.Action = v.put("a higher concurrency, or none")
	case v.paceMode != durable.PaceNormal:
		return true // adaptive has said so
	default:
		rate := v.p.RateLimit
		if r.By = "rateLimit=" + rate.String(); rate.N == 0 || v.pace.N > 0 {
			r.By = "adaptive=true, at present " + policy.Rate(v.pace).String()
		}
		r.Code = string(RateLimited)
		r.Detail = "The rate of the consumer allows no more attempts at present."
		r.Action = v.put("a higher rateLimit, or none")
		if v.queue.Wait > 0 {
			r.Until = timeAt(v.now.Add(v.queue.Wait))
		}
	}
	l.add(r)
	return true
}

// slowAfter is how old the oldest request must be for a consumer to be slow whose concurrency is full.
const slowAfter = time.Second

// endpoint adds what is known of the endpoint of a push consumer, and of the slots for it.
func (v *view) endpoint(l *list, c *counts, limited bool) {
	v.failing(l, c)
	if c.due == 0 {
		return
	}
	var load push.Load
	if v.e.o.Load != nil {
		load = v.e.o.Load(v.k.No)
	}
	since := load.Oldest
	if !since.IsZero() { // of this machine's clock
		since = v.now.Add(-time.Since(load.Oldest))
	} else if v.has.AttemptMs > 0 {
		since = timeOf(v.has.AttemptMs)
	}
	full := load.Slots > 0 && (v.queue.Leased >= load.Slots*v.brokers() || load.InFlight >= load.Slots)
	slots := load.Slots * v.brokers()
	more := "raise BROKER_CONSUMER_CONCURRENCY"
	if v.queue.Limited == redisq.ConcurrencyLimit {
		full, slots = v.now.Sub(since) >= slowAfter, v.p.Concurrency
		more = v.put("a higher concurrency")
	}
	switch {
	case full:
		l.add(apitype.WhyReason{Code: string(EndpointSlow), Since: timeAt(since), Jobs: c.due,
			Detail: fmt.Sprintf("All slots of the consumer are in flight (%d requests, %d slots), and it has not answered.",
				v.queue.Leased, slots),
			Action: "make the endpoint answer sooner, or " + more + "; a shorter timeout counts for the next attempts"})
	case limited || v.paceMode != durable.PaceNormal:
	case load.Full || load.Behind || load.Short:
		l.add(v.saturated(&load, c))
	default:
		l.add(v.due(c.due, v.oldestDue(), "A broker takes the jobs at once."))
	}
}

func (v *view) saturated(load *push.Load, c *counts) apitype.WhyReason {
	r := apitype.WhyReason{Code: string(BrokerSaturated), Since: timeAt(v.oldestDue()), Jobs: c.due}
	switch {
	case load.Behind:
		r.Detail = "The store does not take the outcomes of attempts as fast as they come, so this broker begins no others."
		r.Action = "look at the store: GET /metrics, penstock_outcome_batch_rows"
	case load.Short:
		r.Detail = "Large payloads of other requests fill the memory that this broker has for them."
		r.Action = "none: it ends with those requests"
	default:
		r.Detail = "Requests to other consumers have all slots of this broker."
		r.Action = "raise BROKER_PUSH_CONCURRENCY, add a broker, or shorten the timeout of consumers that hang"
	}
	return r
}

// otherURL is what a PUT gives a consumer that is elsewhere now.
const otherURL = "another callbackUrl"

// put is the advice to change fields of the consumer. Nobody changes those of one that belongs to the broker.
func (v *view) put(with string) string {
	switch {
	case !ident.Reserved(v.k.ID):
		return "PUT " + v.path + " with " + with
	case with == otherURL:
		return "change the setting that its callbackUrl names, start the brokers again"
	}
	return "wait: the broker decides over this consumer"
}

// failing adds that the last attempt failed.
func (v *view) failing(l *list, c *counts) {
	f := v.has.Fact
	if f.AttemptMs == 0 || f.SuccessMs >= f.AttemptMs || f.AttemptMs < max(v.k.ChangedAt.UnixMilli(), v.k.StateMs) {
		return
	}
	since := f.SuccessMs // it may have failed since then
	if since < max(v.k.ChangedAt.UnixMilli(), v.k.StateMs) {
		since = 0
	}
	r := apitype.WhyReason{Code: string(EndpointFailing), Since: msAt(cmp.Or(since, f.AttemptMs)), Jobs: c.backoff + c.due,
		Detail: strings.TrimSpace(v.lastError()),
		Action: "make the endpoint answer 2xx, or " + v.put(otherURL)}
	if r.Jobs > 0 {
		l.add(r)
	}
}

// lastError says how the last attempt ended, with a blank before it, where it failed.
func (v *view) lastError() string {
	f := v.has.Fact
	if f.AttemptMs == 0 || f.SuccessMs >= f.AttemptMs {
		return ""
	}
	return fmt.Sprintf(" The last attempt, at %s, failed: %s.", clock(timeOf(f.AttemptMs), v.now),
		cmp.Or(f.Error, fmt.Sprintf("status %d", f.StatusCode)))
}

func (v *view) brokers() int {
	if v.e.o.Brokers == nil {
		return 1
	}
	return max(v.e.o.Brokers(), 1)
}

// oldestDue returns since when the oldest due job is due.
func (v *view) oldestDue() time.Time { return v.queue.OldestReady }

func (v *view) due(jobs int, since time.Time, detail string) apitype.WhyReason {
	return apitype.WhyReason{Code: string(Due), Since: timeAt(since), Jobs: jobs, Detail: "Nothing holds them. " + detail,
		Action: "none"}
}

// waits adds the jobs that wait for a time or for another job.
func (v *view) waits(ctx context.Context, l *list, c *counts) {
	if c.backoff > 0 {
		r := apitype.WhyReason{Code: string(Backoff), Since: timeAt(c.failed),
			Until: timeAt(first(c.next, v.queue.FirstDue)), Jobs: c.backoff,
			By: "backoff=" + v.p.Backoff.String(), Detail: "They wait for their next attempt." + v.lastError(),
			Action: "POST " + v.path + "/retry makes all of them due now"}
		l.add(r)
	}
	if c.delayed > 0 {
		l.add(apitype.WhyReason{Code: string(Delayed), Since: timeAt(c.back),
			Until: timeAt(first(c.end, v.queue.FirstDue)), Jobs: c.delayed,
			Detail: "A worker gave them back with a delay.",
			Action: "POST " + v.path + "/retry makes all of them due now"})
	}
	switch {
	case c.parked > 0 && v.queue.Blocked.IsZero(): // it is on its way back
		l.add(v.due(c.parked, v.oldestDue(), "A broker takes the jobs at once."))
	case c.parked > 0:
		l.add(v.blocked(ctx, v.queue.Blocked, c.parked))
	}
}

// channelPaused adds that no message comes.
func (v *view) channelPaused(l *list) {
	if v.has.ChannelPaused {
		l.add(apitype.WhyReason{Code: string(ChannelPaused), Detail: "The channel accepts no messages, so no job comes.",
			Action: "POST /channel/" + v.ch.ID + "/resume"})
	}
	if v.has.GroupPaused {
		l.add(apitype.WhyReason{Code: string(GroupPaused), By: v.ch.Group,
			Detail: "The group of the channel is paused, so no job comes.", Action: "POST /group/" + v.ch.Group + "/resume"})
	}
}
