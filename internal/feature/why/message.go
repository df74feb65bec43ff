package why

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/limit"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// mostConsumers bounds the consumers of a message that an answer is about.
const mostConsumers = 1000

// Message answers why the jobs of a message do not move, or how they ended: the reasons of each consumer
// of its channel. producer is the one of the message. found is false where the channel has no consumer, or
// no such message.
func (e *Explainer) Message(ctx context.Context, ch *catalogue.Channel, id ident.ID) (w apitype.Why, producer uint32,
	found bool, err error) {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, 2*askWithin)
	defer cancel()
	plights, err := e.o.Store.Plights(asking, ch.No, id, mostConsumers+1)
	if err != nil || len(plights) == 0 {
		return w, 0, false, err
	}
	l := &list{}
	t := tally{more: len(plights) > mostConsumers}
	var waiting []*view
	var open []*durable.Plight
	for i := range plights[:min(len(plights), mostConsumers)] {
		at := &plights[i]
		k := e.o.Catalogue.ConsumerByNo(at.ConsumerNo)
		if k == nil { // the copy is behind; the next question finds it
			continue
		}
		v := e.view(ctx, ch, k, read{has: at.Circumstances, from: asked})
		l.v = v
		switch {
		case k.Deleted() && !k.Concerns(at.Head), v.notFor(l, at):
		case k.Deleted() || at.Job.Status.Over():
			v.job(ctx, l, at)
			t.over++
		default:
			waiting, open = append(waiting, v), append(open, at)
		}
	}
	e.askQueues(ctx, waiting, id)
	for i, v := range waiting {
		n := len(l.reasons)
		v.taskless = true                           // one statement for each consumer
		l.v, v.brief = v, l.has(OrderingKeyBlocked) // one statement for the first of them
		v.open(ctx, l, open[i])
		if len(l.reasons) == n {
			t.inFlight++
		} else {
			t.waiting++
		}
	}
	now := time.UnixMilli(e.o.NowMs()).UTC()
	w = apitype.Why{Summary: t.summary(l, now), Reasons: l.sorted(false), At: *timeAt(now)}
	return w, plights[0].ProducerNo, true, nil
}

// askQueues asks Redis about one job of many consumers, in few round trips.
func (e *Explainer) askQueues(ctx context.Context, views []*view, job ident.ID) {
	if len(views) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	consumers, limits := make([]uint32, len(views)), make([]redisq.Limits, len(views))
	for i, v := range views {
		consumers[i], limits[i] = v.k.No, limit.Of(v.p, v.pace)
	}
	outlooks, errs := e.o.Queue.Outlooks(ctx, consumers, job, limits)
	for i, v := range views {
		v.queue, v.queueErr = outlooks[i], errs[i]
		v.translate()
	}
}

// A tally counts the jobs of a message.
type tally struct {
	waiting, inFlight, over int
	more                    bool // there are consumers that were not looked at
}

func (t *tally) summary(l *list, now time.Time) string {
	text := fmt.Sprintf("%s of the message: %d waiting, %d in flight, %d over", jobsAre(t.waiting+t.inFlight+t.over),
		t.waiting, t.inFlight, t.over)
	if t.more {
		text = fmt.Sprintf("Of the first %d consumers: ", mostConsumers) + text
	}
	v := &view{now: now}
	for i, r := range l.sorted(false) {
		if i == 3 || i > 0 && Code(r.Code).Over() {
			break
		}
		text += "; " + r.ConsumerID + ": " + v.phrase(&r)
	}
	return text + "."
}

// NoConsumers answers for a message of a channel that has no consumer.
func (e *Explainer) NoConsumers() apitype.Why {
	return apitype.Why{Summary: "The message has no jobs: its channel had no consumer.", Reasons: []apitype.WhyReason{},
		At: apitype.Time{Time: time.UnixMilli(e.o.NowMs()).UTC()}}
}

// Scheduled answers why a scheduled message is not sent.
func (e *Explainer) Scheduled(ch *catalogue.Channel, m *durable.Scheduled) apitype.Why {
	now := time.UnixMilli(e.o.NowMs()).UTC()
	l, v := &list{}, &view{now: now}
	path := "/channel/" + ch.ID + "/scheduled-message/" + m.PathID()
	if e.o.Writable != nil && e.o.Writable() != nil {
		l.add(apitype.WhyReason{Code: string(StoreUnavailable), Jobs: 1,
			Detail: "The durable store takes no writes: nothing is sent until it does.",
			Action: "GET /readyz, and the log of the broker, say what the store answers."})
	}
	if ch.Paused && m.Status == durable.ScheduleWaiting {
		l.add(apitype.WhyReason{Code: string(ChannelPaused),
			Detail: "The channel accepts no messages: the message is sent when it does.",
			Action: "POST /channel/" + ch.ID + "/resume"})
	}
	if ch.GroupPaused && m.Status == durable.ScheduleWaiting {
		l.add(apitype.WhyReason{Code: string(GroupPaused), By: ch.Group,
			Detail: "The group of the channel accepts no messages: the message is sent when it does.",
			Action: "POST /group/" + ch.Group + "/resume"})
	}
	if m.Status == durable.ScheduleWaiting {
		l.add(apitype.WhyReason{Code: string(Scheduled), Since: timeAt(m.ID.Time()), Until: msAt(m.DueMs), Jobs: 1,
			By: m.Recurrence, Detail: "The message waits for its time.",
			Action: "PUT " + path + " with another time; DELETE " + path})
	}
	if l.reasons == nil {
		return apitype.Why{Summary: "The message was sent at " + clock(time.UnixMilli(m.DueMs), now) + ".",
			Reasons: []apitype.WhyReason{}, At: *timeAt(now)}
	}
	reasons := l.sorted(false)
	text := "The message waits: " + v.phrase(&reasons[0])
	for i := range reasons[1:] {
		text += "; " + v.phrase(&reasons[i+1])
	}
	return apitype.Why{Summary: text + ".", Reasons: reasons, At: *timeAt(now)}
}

// Unavailable answers while neither the store nor the memory of this broker can say more.
func (e *Explainer) Unavailable() apitype.Why {
	return apitype.Why{Summary: "The store does not answer, so nothing can be said of the jobs.",
		At: apitype.Time{Time: time.UnixMilli(e.o.NowMs()).UTC()},
		Reasons: []apitype.WhyReason{{Code: string(StoreUnavailable), Approximate: true,
			Detail: "The durable store does not answer: nothing is delivered until it does.",
			Action: "GET /readyz, and the log of the broker, say what the store answers."}}}
}

// Hide removes the texts that may name a callback, or quote an answer.
func Hide(w *apitype.Why) {
	for i := range w.Reasons {
		hide(&w.Reasons[i])
	}
}

func hide(r *apitype.WhyReason) {
	switch Code(r.Code) {
	case Backoff, EndpointFailing, AdaptiveHeartbeat, AdaptiveSlow, Gone, Tombstoned, Probing, Paused, RetryAfter:
		r.Detail, r.By = "", ""
	case Dead, Expired:
		r.Detail = ""
	}
	if r.Because != nil {
		hide(r.Because)
	}
}

// AcceptedOnly answers for a message that is in the journal of this broker, and not yet in the store.
func (e *Explainer) AcceptedOnly(ch *catalogue.Channel) apitype.Why {
	now := time.UnixMilli(e.o.NowMs()).UTC()
	r := apitype.WhyReason{Code: string(AcceptedOnly), Jobs: 1,
		Detail: "The message was answered 202 and is flushed to the journal of this broker. It has jobs as soon as the " +
			"durable store takes it.",
		Action: "GET /readyz says whether the store answers"}
	if ch.Paused {
		r.Detail += " The channel is paused: it waits for the end of that."
		r.Action = "POST /channel/" + ch.ID + "/resume"
	}
	if ch.GroupPaused {
		r.Detail += " The group of the channel is paused: it waits for the end of that."
		r.Action = "POST /group/" + ch.Group + "/resume"
	}
	l := &list{v: &view{now: now, k: &durable.Consumer{}}}
	if e.o.Writable != nil && e.o.Writable() != nil {
		l.add(apitype.WhyReason{Code: string(StoreUnavailable), Jobs: 1,
			Detail: "The durable store does not answer, or takes no writes.",
			Action: "GET /readyz, and the log of the broker, say what the store answers."})
	}
	l.add(r)
	return apitype.Why{Summary: "The message waits: " + phrases[AcceptedOnly] + ".", Reasons: l.sorted(false),
		At: *timeAt(now)}
}
