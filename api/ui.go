package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/history"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
)

// The dashboard shows what the routes of the API answer. Package ui makes the pages, and asks here.

// A Dashboard makes the pages: a ui.Dashboard.
type Dashboard interface {
	Serve(ctx context.Context, rc *fasthttp.RequestCtx, visit ui.Visit)
	PortalLink(of ui.PortalOf) string
}

// dashboard serves a page, by the path of its route.
func dashboard(page string) func(*API, context.Context, *fasthttp.RequestCtx) error {
	return func(a *API, ctx context.Context, rc *fasthttp.RequestCtx) error {
		refusal := a.checkAdmin(rc)
		if refusal == errAdminToken {
			a.o.Lockout.Failed(a.client(rc))
		}
		byAdmin := refusal == nil
		byOpen := !byAdmin && a.o.OpenManagement && a.checkOpen(rc) == nil
		open := byAdmin || byOpen
		var held *answer.Body
		if byOpen {
			answer.SetKey(rc, a.manager(rc))
		}
		from := pages{a, &held, rc, byOpen}
		send := func(payload []byte) {
			held.Send(rc, answer.Text{B: payload})
			held = nil
		}
		hold := func(n int) (err error) {
			held, err = answer.Open(a.o.Answers, answer.KeyOf(rc), n)
			return err
		}
		a.o.UI.Serve(context.WithValue(ctx, forPage{}, true), rc, ui.Visit{Page: page, Open: open, Source: from, Send: send,
			Hold: hold})
		if held != nil {
			held.Drop()
		}
		return nil
	}
}

// forPage is the key of the contexts of pages. What is read with one does not ask the store for a newer
// catalogue, nor Redis for counts: the copy is a poll old at most, and the sample of the consumers ten seconds.
type forPage struct{}

func isForPage(ctx context.Context) bool { return ctx.Value(forPage{}) != nil }

// pages answers what pages show: it is their ui.Source.
type pages struct {
	*API
	held **answer.Body // the memory of a payload, until the page is made

	rc     *fasthttp.RequestCtx // the request for the page
	byOpen bool                 // it needed no token, because management is open to it
}

// Get reads what a GET of a route answers, without a request.
func (p pages) Get(ctx context.Context, route string, ids map[string]string, query url.Values, into any) error {
	var rq fasthttp.Request
	var rc fasthttp.RequestCtx
	rq.SetRequestURI("/?" + query.Encode())
	rc.Init(&rq, nil, nil)
	for name, id := range ids {
		rc.SetUserValue(name, id)
	}
	if err := p.gets[route](p.API, ctx, &rc); err != nil {
		return err
	}
	return json.Unmarshal(rc.Response.Body(), into)
}

// sampled returns the last sample for a page; nil: it is none, or too old.
func (a *API) sampled(ctx context.Context) *sampler.Sample {
	if !isForPage(ctx) {
		return nil
	}
	return a.recentSample()
}

// countOf is the count of a consumer in a sample.
func countOf(s *sampler.Sample, consumer uint32) jobs.Count {
	l := s.Of[consumer]
	return jobs.Count{Backlog: jobs.Backlog{Queued: l.Waiting, Delayed: l.Delayed, InFlight: l.InFlight, Dead: l.Dead,
		Oldest: l.Oldest}, Delayed: l.Delayed, Known: l.Known, AtLeast: l.AtLeast}
}

// mostTrouble is the number of consumers in trouble that the first page shows.
const mostTrouble = 25

// A troubled is a consumer that needs a person.
type troubled struct {
	listedConsumer
	need ui.Need
}

// inTrouble returns the consumers that need a person, the worst first, and adds up all consumers where o is not
// nil. It asks no store.
func (p pages) inTrouble(s *sampler.Sample, o *ui.Overview) (out []troubled) {
	all, err := p.matching(consumersQuery{})
	if err != nil || s == nil {
		return nil
	}
	now := time.UnixMilli(p.o.NowMs())
	for _, l := range all {
		l.count = countOf(s, l.k.No)
		standing := ui.Standing{Stopped: l.isIn("DEAD") || l.isIn("GONE"), Oldest: l.count.Oldest, Dead: l.count.Dead}
		if !standing.Oldest.IsZero() {
			standing.MaxAge = p.o.Policies.Of(l.k.Policy).MaxAge
		}
		if need := standing.Need(now); need != ui.Fine {
			out = append(out, troubled{l, need})
		}
		if o == nil {
			continue
		}
		o.Waiting, o.InFlight, o.Dead = o.Waiting+l.count.Queued, o.InFlight+l.count.InFlight, o.Dead+l.count.Dead
		if !l.count.Oldest.IsZero() && (o.Oldest.IsZero() || l.count.Oldest.Before(o.Oldest)) {
			o.Oldest, o.OldestChannel, o.OldestConsumer = l.count.Oldest, l.ch.ID, l.k.ID
		}
	}
	slices.SortStableFunc(out, func(a, b troubled) int {
		return cmp.Or(int(b.need)-int(a.need), cmp.Compare(oldestOf(&a), oldestOf(&b)), b.count.Dead-a.count.Dead)
	})
	return out
}

// oldestOf orders consumers by their oldest job; those without one are last.
func oldestOf(t *troubled) int64 {
	if t.count.Oldest.IsZero() {
		return 1 << 62
	}
	return t.count.Oldest.UnixMilli()
}

// Troubled returns how many consumers need a person.
func (p pages) Troubled() int {
	return len(p.inTrouble(p.sampled(context.WithValue(context.Background(), forPage{}, true)), nil))
}

// Overview says how the whole broker is doing. It costs three statements: the history, its marks, and the last
// attempts of the consumers in trouble.
func (p pages) Overview(ctx context.Context, over ui.Span) (o ui.Overview) {
	channels := p.o.Catalogue.Channels("", 1<<30)
	o.Channels = len(channels)
	for _, ch := range channels {
		o.Consumers += len(p.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers)))
	}
	s := p.sampled(ctx)
	if s != nil {
		o.Counted, o.CountedAt = true, s.At
	}
	if p.o.Brokers != nil {
		for _, b := range p.o.Brokers() {
			for i := range o.Answers {
				if b.Note != nil {
					o.Answers[i] += b.Note.Answers[i]
				}
			}
		}
	}
	bad := p.inTrouble(s, &o)
	o.Troubled = len(bad)
	page := make([]listedConsumer, min(len(bad), mostTrouble))
	o.Trouble = make([]apitype.ListedConsumer, len(page))
	for i := range page {
		page[i] = bad[i].listedConsumer
		o.Trouble[i] = p.viewListed(&page[i])
	}
	p.recall(ctx, page, o.Trouble)
	now := p.o.NowMs()
	view, err := (&history.Reader{Store: p.o.Store, NowMs: p.o.NowMs}).Range(ctx, p.past(over, now))
	if err == nil && len(view.Result) > 0 {
		o.History = &view
	}
	p.health(ctx, &o, err)
	return o
}

// past is the question about a span that ends now.
func (p pages) past(over ui.Span, nowMs int64) history.Query {
	return history.Query{Step: history.StepIn(over.Slot), Slot: over.Slot, FromMs: nowMs - over.Length.Milliseconds(),
		ToMs: nowMs}
}

// health says what is wrong with store and queue. failure is that of reading the store.
func (p pages) health(ctx context.Context, o *ui.Overview, failure error) {
	if failure == nil && p.o.Writable != nil {
		failure = p.o.Writable()
	}
	if failure != nil {
		o.StoreError = problem.FromChange(failure).Detail
	}
	if p.o.PingQueue != nil && p.ping(ctx, p.o.PingQueue) != nil {
		o.QueueError = "Redis does not answer."
	}
	if p.o.Warning != nil {
		o.Warning = p.o.Warning()
	}
}

// Consumer says how a consumer is doing.
func (p pages) Consumer(ctx context.Context, channel, id string, over ui.Span) (c ui.Consumer, err error) {
	ch, k, err := p.known(channel, id)
	if err != nil {
		return c, err
	}
	l := listedConsumer{ch: ch, k: k}
	if p.o.Holds != nil {
		if h, ok := p.o.Holds.Known()[k.No]; ok {
			l.held = &h
		}
	}
	if s := p.sampled(ctx); s != nil {
		l.count = countOf(s, k.No)
	} else {
		c.Missing = append(c.Missing, "The jobs of the consumer are not counted at present.")
	}
	c.ListedConsumer = p.viewListed(&l)
	c.Why = p.o.Why.Portray(ctx, ch, k, &c.Consumer)
	if k.Type.String() == "pull" {
		var w apitype.Workers
		if err := p.Get(ctx, "/channel/{channel}/consumer/{consumer}/workers", map[string]string{"channel": ch.ID,
			"consumer": k.ID}, nil, &w); err != nil {
			c.Missing = append(c.Missing, "The workers cannot be listed now.")
		}
		c.Workers = w.Result
	}
	q := p.past(over, p.o.NowMs())
	q.ChannelNo, q.ConsumerNo = ch.No, k.No
	if c.History, err = (&history.Reader{Store: p.o.Store, NowMs: p.o.NowMs}).Slots(ctx, q); err != nil {
		c.Missing = append(c.Missing, "The history cannot be read now.")
	}
	return c, nil
}
