package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// An onlooker has both servers before its eyes at one moment: whoever uses it holds their locks. It is
// the store and the queue of an explainer whose calls never fail.
type onlooker struct {
	*durable.Store
	w *world
}

// openJobs calls f for each job of a consumer that is not over.
func (o onlooker) openJobs(k *durable.Consumer, f func(m *durable.Message, state durable.JobState)) {
	p := o.w.store.look()
	for _, m := range p.of(k.ChannelNo) {
		if !k.Concerns(m.Head()) {
			continue
		}
		if state := p.state(jobKey{k.No, m.ID}); !state.Status.Over() {
			f(m, state)
		}
	}
}

func (o onlooker) Probe(_ context.Context, consumer uint32, ids []ident.ID) (out []redisq.Standing, _ error) {
	for _, id := range ids {
		out = append(out, o.lane(consumer).Standing(id))
	}
	return out, nil
}

// lane returns the keys of a consumer, which Redis may not know.
func (o onlooker) lane(consumer uint32) *queuemodel.Consumer {
	if k := o.w.server.lanes[consumer]; k != nil {
		return k
	}
	return queuemodel.New()
}

func (o onlooker) Outlook(_ context.Context, consumer uint32, job ident.ID, limits redisq.Limits) (redisq.Outlook,
	error) {
	return o.lane(consumer).Outlook(o.w.server.nowMs(), job, limits), nil
}

func (o onlooker) Outlooks(ctx context.Context, consumers []uint32, job ident.ID,
	limits []redisq.Limits) ([]redisq.Outlook, []error) {
	out, errs := make([]redisq.Outlook, len(consumers)), make([]error, len(consumers))
	for i, consumer := range consumers {
		out[i], errs[i] = o.Outlook(ctx, consumer, job, limits[i])
	}
	return out, errs
}

// wonder asks at times why each open job does not move (I26).
func (w *world) wonder() {
	r := draw(w.seed, word("wonder"))
	for w.faulty() {
		time.Sleep(r.between(50*time.Millisecond, 700*time.Millisecond))
		w.checkWhy()
	}
}

// checkWhy checks that every open job which is not in flight has a reason, that the reason is true, and
// that its consumer has one exactly where a job waits.
func (w *world) checkWhy() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	o := onlooker{w.store.Store, w}
	e := why.New(why.Options{Store: o, Queue: o, Policies: policies, NowMs: w.store.nowMs,
		NoWorkerAfter: 5 * time.Second, RationalDelay: rationalDelay})
	for _, one := range w.store.consumers() {
		k := &one
		if k.Deleted() {
			continue
		}
		ch := &catalogue.Channel{Channel: w.store.channel(k.ChannelNo)}
		waiting := 0
		o.openJobs(k, func(m *durable.Message, _ durable.JobState) {
			if at := o.lane(k.No).Standing(m.ID); at.State == redisq.Leased {
				return
			}
			waiting++
			got, _, found, err := e.Job(context.Background(), ch, k, m.ID)
			if err != nil || !found || len(got.Reasons) == 0 {
				w.checker.report(m.ID, "I26: an open job of consumer %d has no reason: %v", k.No, err)
				return
			}
			if wrong := w.untrue(o, k, m, &got.Reasons[0]); wrong != "" {
				w.checker.report(m.ID, "I26: a job of consumer %d is %s, and %s", k.No, got.Reasons[0].Code, wrong)
			}
		})
		got := e.Consumer(context.Background(), ch, k)
		reasons := slices.DeleteFunc(got.Reasons, func(r apitype.WhyReason) bool { // of a consumer without jobs, too
			return why.Code(r.Code) == why.ChannelPaused && ch.Paused
		})
		if (waiting > 0) != (len(reasons) > 0) {
			w.checker.report(none, "I26: consumer %d has %d open jobs that wait, and %d reasons: %s", k.No, waiting,
				len(reasons), got.Summary)
		}
	}
}

// untrue says what contradicts a reason of a job, "" when nothing does.
func (w *world) untrue(o onlooker, k *durable.Consumer, m *durable.Message, r *apitype.WhyReason) string {
	at := o.lane(k.No).Outlook(w.server.nowMs(), m.ID, redisq.Limits{}).Job
	state := map[why.Code]durable.ConsumerState{why.Paused: durable.StatePaused, why.Gone: durable.StateGone,
		why.Tombstoned: durable.StateDead, why.Probing: durable.StateProbing}
	want, held := state[why.Code(r.Code)]
	if r.Until != nil && w.store.nowMs()-r.Until.UnixMilli() > time.Second.Milliseconds() {
		return "its end has passed"
	}
	switch {
	case held && k.State != want:
		return "its consumer is " + k.State.String()
	case held:
	case k.State != durable.StateActive:
		return "its consumer is held: " + k.State.String()
	case why.Code(r.Code) == why.Backoff || why.Code(r.Code) == why.Delayed:
		if r.Until == nil {
			return "has no end"
		}
		ahead := time.Duration(w.store.nowMs()-w.server.nowMs()) * time.Millisecond
		if at.State == redisq.Delayed && !at.At.Add(ahead).Equal(r.Until.Time) {
			return "ends at another time"
		}
	case why.Code(r.Code) == why.OrderingKeyBlocked:
		if r.Because == nil {
			return "nothing blocks it"
		}
		if why.Code(r.Because.Code) == why.Delivered {
			return "what blocks it is over"
		}
	case why.Code(r.Code) == why.Due && at.State == redisq.Delayed && r.Until == nil &&
		at.At.UnixMilli() > w.server.nowMs():
		return "it waits for a time"
	case why.Code(r.Code).Over():
		return "it is open"
	}
	return ""
}

// Peek is asked only where the workers are known.
func (o onlooker) Peek(context.Context, uint32, *redisq.Cursor, int) ([]redisq.Waiting, error) {
	return nil, nil
}
