package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	// timelineJobs is the largest number of jobs on a page of a timeline.
	timelineJobs = 100
	// timelineSteps is the largest number of steps of each kind on a page. A step has up to a KiB
	// of error and a KiB of answer.
	timelineSteps = 200
)

// A timeline is a page of a timeline that is being made.
type timeline struct {
	a       *API
	ch      *catalogue.Channel
	m       *durable.Message
	own     *durable.Producer // only this producer's message is shown; nil: all
	hide    bool              // answers, and texts that may name a callback, are left out
	path    string
	size    int
	pos     int   // the page begins with the job at this position
	fromMs  int64 // and that job's steps from this time on
	result  []apitype.TimelineEvent
	changed time.Time
	parent  tracing.Parent // the creation context of the message,
	traced  bool           // if it has one
}

func (a *API) messageTimeline(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, timelineSteps, timelineSteps)
	if err != nil {
		return err
	}
	ch, m, err := a.messageInPath(ctx, rc)
	if err != nil {
		return err
	}
	t := &timeline{a: a, ch: ch, m: m, own: publisher(rc), hide: a.forProducer(rc), path: messagePath(ch.ID, m.PathID()),
		size: q.Size}
	if t.own != nil && m.ProducerNo != t.own.No {
		return errUnknownMessage
	}
	if err := t.begin(q.First); err != nil {
		return err
	}
	consumers, rest := t.consumers()
	return t.answer(ctx, rc, q, consumers, rest)
}

// consumers returns those whose jobs a page shows, and where the page after them begins; "": there is none.
func (t *timeline) consumers() (consumers []*durable.Consumer, rest string) {
	for next := t.pos; next < len(t.ch.Consumers) && rest == ""; next++ {
		switch k := t.ch.Consumers[next]; {
		case !k.Concerns(t.m.Head()):
		case len(consumers) < timelineJobs:
			consumers = append(consumers, k)
		default:
			rest = t.m.ID.Job(next).String()
		}
	}
	return consumers, rest
}

func (a *API) jobTimeline(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, timelineSteps, timelineSteps)
	if err != nil {
		return err
	}
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	m, err := a.jobInPath(ctx, rc, ch, k)
	if err != nil {
		return err
	}
	t := &timeline{a: a, ch: ch, m: m, own: publisher(rc), hide: a.forProducer(rc), path: consumerPath(ch.ID, k.ID) +
		"/job/" + m.ID.Job(k.Position).String(), size: q.Size, pos: k.Position}
	if t.own != nil && m.ProducerNo != t.own.No {
		return errUnknownJob
	}
	if err := t.begin(q.First); err != nil {
		return err
	}
	if t.pos != k.Position {
		return errUnknownStep
	}
	return t.answer(ctx, rc, q, []*durable.Consumer{k}, "")
}

var errUnknownStep = problem.New(fasthttp.StatusBadRequest, "unknown_first",
	"The parameter first names no place in this timeline; take it from Pages.")

// begin reads the parameter first: the ID of a job, alone or with a time: its steps from then on.
func (t *timeline) begin(first string) error {
	if first == "" {
		return nil
	}
	job, at, timed := strings.Cut(first, ".")
	id, err := ident.Parse(job)
	message, pos, ok := id.Split()
	if err != nil || !ok || message != t.m.ID || !t.ch.HasJobAt(t.m.Head(), pos) {
		return errUnknownStep
	}
	t.pos = pos
	if timed {
		if t.fromMs, err = strconv.ParseInt(at, 10, 64); err != nil || t.fromMs < 0 {
			return errUnknownStep
		}
	}
	return nil
}

// answer answers with the steps of the jobs of these consumers. rest is where the page after all
// of them begins; "": there is none.
func (t *timeline) answer(ctx context.Context, rc *fasthttp.RequestCtx, q pageQuery, consumers []*durable.Consumer,
	rest string) error {
	if err := t.readTrace(ctx); err != nil {
		return err
	}
	view, err := t.view(ctx, q, consumers, rest)
	if err != nil {
		return err
	}
	return answerResource(rc, fasthttp.StatusOK, view, t.changed, false)
}

// view is what answer answers. The headers of the message are read.
func (t *timeline) view(ctx context.Context, q pageQuery, consumers []*durable.Consumer,
	rest string) (view apitype.Timeline, err error) {
	if q.First == "" {
		t.result = append(t.result, t.accepted())
	}
	t.changed = t.m.ID.Time()
	if len(consumers) > 0 {
		byNo := make(map[uint32]*durable.Consumer, len(consumers))
		page := durable.StepPage{ID: t.m.ID, ChannelNo: t.m.ChannelNo, FromMs: t.fromMs, Limit: t.size}
		for _, k := range consumers {
			byNo[k.No] = k
			page.Consumers = append(page.Consumers, k.No)
		}
		slices.Sort(page.Consumers) // as the positions in the channel are
		steps, next, more, err := t.a.o.Store.Steps(ctx, page)
		if err != nil {
			return view, err
		}
		if more {
			rest = fmt.Sprintf("%s.%d", t.m.ID.Job(byNo[next.ConsumerNo].Position), next.AtMs)
		}
		for len(steps) > 0 {
			k, n := byNo[steps[0].ConsumerNo], 1
			for n < len(steps) && steps[n].ConsumerNo == k.No {
				n++
			}
			t.job(k, steps[:n])
			steps = steps[n:]
		}
		for _, k := range consumers {
			if k.Deleted() && !(more && next.ConsumerNo <= k.No) {
				if err := t.endOfDeleted(ctx, k); err != nil {
					return view, err
				}
			}
		}
	}
	slices.SortStableFunc(t.result, func(a, b apitype.TimelineEvent) int { return a.At.Compare(b.At.Time) })
	view = apitype.Timeline{Result: t.result, TraceID: t.publishTrace()}
	view.TraceURL = t.a.o.Traces.link(view.TraceID)
	if view.Result == nil {
		view.Result = []apitype.TimelineEvent{}
	}
	if rest != "" {
		view.Pages = q.next(t.path+"/timeline", rest)
	}
	for i := range view.Result {
		t.changed = newest(t.changed, view.Result[i].At.Time)
	}
	return view, nil
}

func (t *timeline) accepted() apitype.TimelineEvent {
	e := apitype.TimelineEvent{At: apitype.Time{Time: t.m.ID.Time()}, Event: apitype.EventAccepted}
	node := t.m.ID.Node()
	e.Broker, e.Detail = &node, "broker "+strconv.Itoa(node)
	e.TraceID = t.publishTrace()
	e.TraceURL = t.a.o.Traces.link(e.TraceID)
	return e
}

// job adds the steps of one job.
func (t *timeline) job(k *durable.Consumer, steps []durable.Step) {
	redrivenMs := int64(0)
	for i := range steps {
		s := &steps[i]
		if s.Kind == durable.StepRedriven {
			redrivenMs = s.AtMs
		}
		e := t.event(k, s)
		t.tell(&e, k, s, redrivenMs)
		if s.Kind == durable.StepDelivered || s.Kind == durable.StepReplayed && s.Reason == durable.NoReason {
			attempt := e
			attempt.Event = apitype.EventAttempt
			if !slices.ContainsFunc(steps, s.NotedBy) {
				t.result = append(t.result, attempt)
			}
			e.DurationMs = nil
		}
		t.result = append(t.result, e)
	}
}

func (t *timeline) event(k *durable.Consumer, s *durable.Step) apitype.TimelineEvent {
	e := apitype.TimelineEvent{
		At: apitype.Time{Time: time.UnixMilli(s.AtMs)}, Event: s.Kind.String(), ConsumerID: k.ID, JobID: t.m.ID.Job(
			k.Position).String(),
		Attempt: s.Attempt, Status: s.StatusCode, DurationMs: s.DurationMs, ReasonCode: s.Reason.String(),
	}
	var detail []string
	if !t.hide {
		e.Worker, e.WorkerVersion = presence.Held(s.Worker)
	}
	if s.ReplayNo > 0 {
		r := durable.Replay{No: s.ReplayNo}
		e.Replay = r.ID()
		detail = append(detail, "replay "+e.Replay)
	}
	if s.Node > 0 {
		node := s.Node - 1
		e.Broker = &node
		detail = append(detail, "broker "+strconv.Itoa(node))
	}
	if e.Worker != "" {
		detail = append(detail, strings.TrimSpace("worker "+e.Worker+" "+e.WorkerVersion))
	}
	switch s.Kind {
	case durable.StepAttempt:
		e.Phase = s.Phase.String()
	case durable.StepLeaseEnded, durable.StepGivenBack:
		e.DurationMs = nil
	case durable.StepRedriven:
		detail = append(detail, s.How.String())
	}
	detail = append(detail, cmp.Or(e.Phase, e.ReasonCode))
	switch {
	case s.Kind == durable.StepFailed: // the reason is the broker's, as in the responses
		detail = append(detail, strings.ToValidUTF8(s.Text, "\uFFFD"))
	case !t.hide: // an error may name the callback, and the answer is the consumer's
		detail = append(detail, strings.ToValidUTF8(s.Text, "\uFFFD"))
		if len(s.Answer) > 0 {
			what := "answer: "
			if k.Type == durable.Pull {
				what = "detail: "
			}
			detail = append(detail, what+strings.ToValidUTF8(string(wholeRunes(s.Answer)), "\uFFFD"))
		}
	}
	e.Detail = strings.Join(slices.DeleteFunc(detail, func(part string) bool { return part == "" }), "; ")
	return e
}

// endOfDeleted adds the end of the job of a deleted consumer, where it is not stored.
func (t *timeline) endOfDeleted(ctx context.Context, k *durable.Consumer) error {
	states, err := t.a.o.Jobs.StatesOf(ctx, k, []ident.ID{t.m.ID})
	if err == nil && states[0].Reason == durable.ConsumerDeleted {
		t.result = append(t.result, t.event(k, &durable.Step{Kind: durable.StepDead, AtMs: k.StateMs,
			Reason: durable.ConsumerDeleted, Text: states[0].Error}))
	}
	return err
}
