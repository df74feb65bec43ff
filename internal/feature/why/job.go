package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// Job answers why a job of a consumer does not move, or how it ended. producer is the one of its message.
// found is false where the message has no job for the consumer and never had a claim to one. An error
// means that the store cannot say what the job is.
func (e *Explainer) Job(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, id ident.ID) (w apitype.Why,
	producer uint32, found bool, err error) {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, askWithin)
	at, err := e.o.Store.PlightOf(asking, ch.No, id, k.No)
	cancel()
	if errors.Is(err, durable.ErrNotFound) {
		return w, 0, false, nil
	}
	if err != nil {
		return e.withoutStore(ctx, ch, k, id, err)
	}
	v := e.view(ctx, ch, k, read{has: at.Circumstances, from: asked})
	l := &list{v: v}
	if !v.notFor(l, &at) {
		v.job(ctx, l, &at)
	}
	return apitype.Why{Summary: v.jobSummary(l), Reasons: l.sorted(false), At: *timeAt(v.now)}, at.ProducerNo, true, nil
}

// withoutStore explains a job that the queue knows while the store cannot be asked.
func (e *Explainer) withoutStore(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, id ident.ID,
	cause error) (w apitype.Why, producer uint32, found bool, err error) {
	v := e.view(ctx, ch, k, read{err: cause})
	v.askQueue(ctx, id)
	if v.queueErr != nil || v.queue.Job.State == redisq.Missing {
		return w, 0, false, cause
	}
	l := &list{v: v}
	v.open(ctx, l, &durable.Plight{Head: durable.Head{ID: id}})
	return apitype.Why{Summary: v.jobSummary(l), Reasons: l.sorted(false), At: *timeAt(v.now)}, 0, true, nil
}

// notFor adds why the message has no job for the consumer, and reports whether it has none.
func (v *view) notFor(l *list, at *durable.Plight) bool {
	k, h := v.k, at.Head
	r := apitype.WhyReason{ConsumerID: k.ID, Since: timeAt(h.ID.Time())}
	switch {
	case k.Concerns(h):
		return false
	case k.LeftOut(h):
		r.Code, r.By = string(Filtered), "filter"
		r.Detail = "The filter of the consumer refused the message when it was stored."
		r.Action = "PUT " + v.path + " with another filter: it counts for later messages. Then " + v.again()
	case h.Addressed != "" && !h.Addressed.Has(k.Position):
		r.Code = string(NotAddressed)
		r.Detail = "The producer named other consumers (X-Broker-Consumers)."
		r.Action = v.again()
	default:
		r.Code = string(ConsumerNewer)
		r.Detail = "The message was stored before the consumer was created."
		r.Action = v.again()
	}
	l.add(r)
	return true
}

// again says how a consumer gets a message that it has no job of: a replay repeats only what it had.
func (v *view) again() string {
	return "publish the message once more, to this consumer alone: POST /channel/" + v.ch.ID +
		"/broadcast with X-Broker-Consumers: " + v.k.ID
}

// job adds why a job does not move, or how it ended.
func (v *view) job(ctx context.Context, l *list, at *durable.Plight) {
	if v.k.Deleted() && !at.Job.Status.Over() {
		at.Job = v.k.Derive(at.Job)
	}
	if at.Job.Status.Over() {
		l.add(v.over(at))
		return
	}
	v.asked = at.Head.ID
	v.askQueue(ctx, at.Head.ID)
	v.open(ctx, l, at)
}

// over is the reason of a job that is over. It says whether attempts of the job were removed.
func (v *view) over(at *durable.Plight) apitype.WhyReason {
	r := v.ended(at)
	if before := at.RemovedAttempts(); before != 0 {
		r.Detail = strings.TrimSuffix(r.Detail, ".") + ". Failed attempts of the job that ended before " +
			timeOf(before).Format(time.RFC3339) + " were removed (attemptRetention)."
	}
	return r
}

// ended is over without what was removed.
func (v *view) ended(at *durable.Plight) apitype.WhyReason {
	j := &at.Job
	r := apitype.WhyReason{ConsumerID: v.k.ID, Since: msAt(j.ChangedMs), Jobs: 1}
	job := v.path + "/job/" + at.Head.ID.Job(v.k.Position).String()
	switch {
	case j.Status == durable.Delivered:
		r.Code, r.Detail, r.Action = string(Delivered), fmt.Sprintf("Attempt %d succeeded.", j.Attempts), "none"
		if j.StatusCode > 0 {
			r.Detail = fmt.Sprintf("Attempt %d was answered %d.", j.Attempts, j.StatusCode)
		}
		return r
	case j.Reason == durable.Expired:
		r.Code, r.By = string(Expired), "ttl"
		r.Action = "POST " + job + "/requeue-dead-job; PUT " + v.path + " with a longer ttl"
	default:
		r.Code, r.By = string(Dead), j.Reason.String()
		r.Action = "POST " + job + "/requeue-dead-job"
	}
	r.Detail = cmp.Or(j.Error, j.Reason.String())
	return r
}

// open adds what keeps an open job back; nothing where it is in flight.
func (v *view) open(ctx context.Context, l *list, at *durable.Plight) {
	place := &v.queue.Job
	if v.queueErr == nil && place.State == redisq.Leased {
		if v.storeErr != nil {
			v.unavailable(l, 0)
		}
		return
	}
	v.unavailable(l, 1)
	held := v.held(l, 1)
	switch {
	case v.queueErr != nil:
		if at.Job.NextMs > v.now.UnixMilli() {
			v.later(l, at, timeOf(at.Job.NextMs))
		}
	case place.State == redisq.Missing:
		v.absent(l, at)
	case place.State == redisq.Delayed && place.Parked:
		l.add(v.blocked(ctx, at.Head.ID, 1))
	case place.State == redisq.Delayed && place.At.After(v.queue.Now):
		v.later(l, at, place.At)
	case !held:
		v.ready(ctx, l)
	}
}

// absent adds why an open job is not in the queue.
func (v *view) absent(l *list, at *durable.Plight) {
	age := v.now.Sub(at.Head.ID.Time())
	switch {
	case at.Job.NextMs > v.now.UnixMilli():
		v.later(l, at, timeOf(at.Job.NextMs))
	case age < v.e.o.RationalDelay+time.Second:
		r := v.due(1, at.Head.ID.Time(), "It is on its way into the queue.")
		l.add(r)
	case v.queue.Spilled:
		l.add(apitype.WhyReason{Code: string(BehindPriority), Jobs: 1, Since: timeAt(at.Head.ID.Time()), Approximate: true,
			Detail: fmt.Sprintf("More than %d jobs come before it: it waits in the store until the queue has room.",
				v.queue.Ready),
			Action: "make the consumer take more jobs at a time, or publish it with a higher priority"})
	default:
		l.add(apitype.WhyReason{Code: string(QueueRestoring), Jobs: 1, Since: timeAt(at.Head.ID.Time()),
			Detail: "The queue lacks the job; the broker loads it again from the store.",
			Action: "POST /channel/" + v.ch.ID + "/message/" + at.Head.ID.String() + "/re-trigger loads it at once"})
	}
}

// later adds that a job waits for a time.
func (v *view) later(l *list, at *durable.Plight, until time.Time) {
	r := apitype.WhyReason{Code: string(Backoff), Since: msAt(at.Job.ChangedMs), Until: timeAt(until), Jobs: 1,
		By: "backoff=" + v.p.Backoff.String(),
		Action: "POST /channel/" + v.ch.ID + "/message/" + at.Head.ID.String() + "/job/" +
			at.Head.ID.Job(v.k.Position).String() + "/re-trigger"}
	switch {
	case at.Returned || at.Job.Attempts == 0 && at.Job.GivenBack > 0:
		r.Code, r.By, r.Detail = string(Delayed), "", "A worker gave it back with a delay."
	default:
		r.Detail = fmt.Sprintf("Attempt %d of %d failed: %s", at.Job.Attempts, v.p.MaxAttempts(),
			cmp.Or(at.Job.Error, fmt.Sprintf("status %d", at.Job.StatusCode)))
	}
	l.add(r)
}

// ready adds what keeps a due job back.
func (v *view) ready(ctx context.Context, l *list) {
	place := &v.queue.Job
	since := place.Since
	if since.IsZero() {
		since = place.At
	}
	if place.Above > 0 {
		l.add(apitype.WhyReason{Code: string(BehindPriority), Since: timeAt(since), Jobs: 1,
			Detail: fmt.Sprintf("%s with a higher priority come first; %d jobs in all.", jobsAre(place.Above), place.Ahead),
			Action: "make the consumer take more jobs at a time, or publish it with a higher priority"})
	}
	v.queue.OldestReady = since
	c := counts{due: 1}
	v.flow(ctx, l, &c)
}

// blocked is the reason of jobs that wait for an earlier job of their ordering key; id is the message of
// the one of them that tells which.
func (v *view) blocked(ctx context.Context, id ident.ID, jobs int) apitype.WhyReason {
	r := apitype.WhyReason{Code: string(OrderingKeyBlocked), ConsumerID: v.k.ID, Since: timeAt(id.Time()), Jobs: jobs,
		Detail: "An earlier message of the ordering key is not over, and the consumer gets the messages of a key one " +
			"at a time.",
		Action: "end the job in By: deliver, redrive or delete it; or PUT " + v.path + " with onBlocked=skip"}
	if v.storeErr != nil || v.brief {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, 2*askWithin)
	defer cancel()
	at, err := v.e.o.Store.Blocker(ctx, *v.k, id, v.p.OnBlocked == policy.Block)
	if errors.Is(err, durable.ErrNotFound) && jobs == 1 {
		r = v.due(1, id.Time(), "The job before it in its ordering key is over: a broker takes it soon.")
		if at := v.queue.Job.At; at.After(v.queue.Now) {
			r.Until = timeAt(at)
		}
		return r
	}
	if err != nil {
		return r
	}
	r.By = at.Head.ID.Job(v.k.Position).String()
	r.Because = v.because(ctx, &at)
	return r
}

// because is the reason of the job that blocks others.
func (v *view) because(ctx context.Context, at *durable.Plight) *apitype.WhyReason {
	l := &list{v: v}
	if at.Job.Status.Over() {
		l.add(v.over(at))
		return &l.reasons[0]
	}
	of := *v // with the place of that job
	of.askQueue(ctx, at.Head.ID)
	l.v = &of
	if of.queueErr == nil && of.queue.Job.State == redisq.Leased {
		r := of.inFlight()
		return &r
	}
	if of.queueErr == nil && of.queue.Job.Parked { // one before it, which is too far back to be seen here
		l.add(apitype.WhyReason{Code: string(OrderingKeyBlocked), Since: timeAt(at.Head.ID.Time()), Jobs: 1})
	} else {
		of.open(ctx, l, at)
	}
	if sorted := l.sorted(false); len(sorted) > 0 {
		return &sorted[0]
	}
	return nil
}

// inFlight is the reason of a job that others wait for while it is in flight.
func (v *view) inFlight() apitype.WhyReason {
	r := apitype.WhyReason{Code: string(EndpointSlow), ConsumerID: v.k.ID, Until: timeAt(v.queue.Job.At), Jobs: 1,
		Detail: fmt.Sprintf("Its attempt %d is in flight: the endpoint has not answered.", v.queue.Job.Attempts),
		Action: "make the endpoint answer; a shorter timeout of " + v.path + " counts for the next attempts"}
	if v.k.Type == durable.Pull {
		r.Code, r.Detail = string(WorkersBusy), fmt.Sprintf("A worker has it, attempt %d.", v.queue.Job.Attempts)
		r.Action = "report its outcome, or wait for the end of the lease"
	}
	return r
}

// jobSummary says in one sentence what the reasons of a job say.
func (v *view) jobSummary(l *list) string {
	reasons := l.sorted(false)
	if len(reasons) == 0 {
		return fmt.Sprintf("The job is in flight: attempt %d, until %s at the latest.", v.queue.Job.Attempts,
			clock(v.queue.Job.At, v.now))
	}
	text := "The job waits: "
	if Code(reasons[0].Code).Over() {
		text = "The job does not wait: "
	}
	text += v.phrase(&reasons[0])
	for i := 1; i < min(len(reasons), 3); i++ {
		text += "; " + v.phrase(&reasons[i])
	}
	return text + "."
}
