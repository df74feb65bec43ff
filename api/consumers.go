package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The list of the consumers of all channels. What it shows of a consumer is what GET of the consumer shows;
// the counts come from one question for all of them, see jobs.Overview.

// consumersQueries are the parameters of the list.
var consumersQueries = append([]string{"state", "channel", "held", "sort"}, placeQueries...)

// An Overview counts the jobs of many consumers: a jobs.Overview.
type Overview interface {
	Counts(ctx context.Context, consumers []uint32) ([]jobs.Count, error)
}

// states are the values of the parameter state.
var states = []string{"ACTIVE", "PAUSED", "GONE", "DEAD", "PROBING"}

// heldValues are the values of the parameter held: codes as why has them, of which the first ones keep all
// jobs of a consumer back.
var heldValues = []string{"true", "false", string(why.Paused), string(why.Gone), string(why.Tombstoned),
	string(why.Probing), string(why.RetryAfter), string(why.AdaptiveSlow), string(why.AdaptiveHeartbeat),
	string(why.ChannelPaused), string(why.GroupPaused)}

// sorts are the values of the parameter sort.
var sorts = []string{"oldest", "dead", "queued", "failing"}

// A listedConsumer is one line of the list.
type listedConsumer struct {
	ch    *catalogue.Channel
	k     *durable.Consumer
	held  *durable.Hold // by its answers; nil: it is not
	count jobs.Count
}

// A consumersQuery is what a client wants to see.
type consumersQuery struct {
	pageQuery
	state, channel, held, sort string
}

func readConsumersQuery(rc *fasthttp.RequestCtx) (q consumersQuery, err error) {
	if q.pageQuery, err = readPage(rc, defaultPage, maxPage); err != nil {
		return q, err
	}
	if q.state, err = readOne(rc, q.pageQuery, "state", "", states...); err != nil {
		return q, err
	}
	if q.held, err = readOne(rc, q.pageQuery, "held", "", heldValues...); err != nil {
		return q, err
	}
	if q.sort, err = readOne(rc, q.pageQuery, "sort", "", sorts...); err != nil {
		return q, err
	}
	switch channels := rc.QueryArgs().PeekMulti("channel"); len(channels) {
	case 0:
	case 1:
		q.channel = string(channels[0])
		q.keep.Set("channel", q.channel)
	default:
		return q, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter channel occurs more than once.")
	}
	return q, nil
}

// listAllConsumers lists consumers with their counts.
func (a *API) listAllConsumers(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readConsumersQuery(rc)
	if err != nil {
		return err
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	all, err := a.matching(q)
	if err != nil {
		return err
	}
	if q.sort != "" { // the counts decide which ones are on the page
		if err := a.countAll(ctx, all); err != nil {
			return err
		}
		sortConsumers(all, q.sort)
	}
	page, next, err := q.cut(all)
	if err != nil {
		return err
	}
	if q.sort == "" {
		if err := a.countAll(ctx, page); err != nil {
			return err
		}
	}
	view := apitype.ConsumerList{Result: make([]apitype.ListedConsumer, len(page))}
	var at time.Time
	for i := range page {
		view.Result[i] = a.viewListed(&page[i])
		a.veil(rc, &view.Result[i].Token)
		at = newest(at, page[i].k.ChangedAt)
	}
	a.recall(ctx, page, view.Result)
	if next != nil {
		view.Pages = q.nextAt("/consumers", next.k.ID, next.ch.ID)
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}

// recall adds what the last attempts of the consumers of a page have shown.
func (a *API) recall(ctx context.Context, page []listedConsumer, shown []apitype.ListedConsumer) {
	if a.o.Why == nil || len(page) == 0 {
		return
	}
	nos, views := make([]uint32, len(page)), make([]*apitype.Consumer, len(page))
	for i := range page {
		nos[i], views[i] = page[i].k.No, &shown[i].Consumer
	}
	a.o.Why.Recall(ctx, nos, views)
}

// matching returns the consumers that a client wants to see, by the IDs of channel and consumer.
func (a *API) matching(q consumersQuery) (out []listedConsumer, err error) {
	channels := a.o.Catalogue.Channels("", 1<<30)
	if q.channel != "" {
		ch := a.o.Catalogue.Channel(q.channel)
		if ch == nil {
			return nil, catalogue.ErrUnknownChannel
		}
		channels = []*catalogue.Channel{ch}
	}
	var holds map[uint32]durable.Hold
	if a.o.Holds != nil {
		holds = a.o.Holds.Known()
	}
	for _, ch := range channels {
		for _, k := range a.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers)) {
			l := listedConsumer{ch: ch, k: k}
			if h, ok := holds[k.No]; ok {
				l.held = &h
			}
			if (q.state == "" || l.isIn(q.state)) && (q.held == "" || a.isHeld(&l, q.held)) {
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// isIn reports whether the consumer is in a state of states.
func (l *listedConsumer) isIn(state string) bool {
	if l.k.State == durable.StateProbing {
		return state == "PROBING" || state == "DEAD" // which is what GET shows
	}
	return l.k.State.String() == state
}

// holds are the codes of what keeps all jobs of the consumer back.
func (l *listedConsumer) holds() []why.Code { return why.Holding(l.k.State, l.held != nil) }

// isHeld reports whether a value of the parameter held is true of the consumer.
func (a *API) isHeld(l *listedConsumer, want string) bool {
	codes := l.holds()
	switch want := why.Code(want); want {
	case "true":
		return len(codes) > 0
	case "false":
		return len(codes) == 0
	case why.ChannelPaused:
		return l.ch.Paused
	case why.GroupPaused:
		return l.ch.GroupPaused
	case why.AdaptiveSlow:
		return a.pace(l.k) == durable.PaceSlow
	case why.AdaptiveHeartbeat:
		return a.pace(l.k) == durable.PaceHeartbeat
	default:
		return slices.Contains(codes, want)
	}
}

// pace is how fast the rate balancer lets a consumer go.
func (a *API) pace(k *durable.Consumer) durable.PaceMode {
	if a.o.Rates == nil || !a.o.Policies.Of(k.Policy).Adaptive {
		return durable.PaceNormal
	}
	return a.o.Rates.Mode(k.No)
}

// countAll counts the jobs of consumers.
func (a *API) countAll(ctx context.Context, all []listedConsumer) error {
	if s := a.sampled(ctx); s != nil {
		for i := range all {
			all[i].count = countOf(s, all[i].k.No)
		}
		return nil
	}
	nos := make([]uint32, len(all))
	for i := range all {
		nos[i] = all[i].k.No
	}
	counts, err := a.o.Overview.Counts(ctx, nos)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].count = counts[i]
	}
	return nil
}

// sortConsumers sorts consumers by a value of sorts: the worst first, those alike by their IDs. Consumers
// that Redis does not know are last.
func sortConsumers(all []listedConsumer, by string) {
	const never = int64(1) << 62
	worse := map[string]func(l *listedConsumer) int64{
		"dead":    func(l *listedConsumer) int64 { return -int64(l.count.Dead) },
		"queued":  func(l *listedConsumer) int64 { return -int64(l.count.Queued) },
		"failing": func(l *listedConsumer) int64 { return -int64(l.count.Delayed) },
		"oldest": func(l *listedConsumer) int64 {
			if l.count.Oldest.IsZero() {
				return never
			}
			return l.count.Oldest.UnixMilli()
		},
	}[by]
	slices.SortStableFunc(all, func(a, b listedConsumer) int { return cmp.Compare(worse(&a), worse(&b)) })
}

// cut returns the page that begins at the consumer first of the channel place, and the consumer behind it. In
// the order of the IDs the first one need not exist.
func (q *consumersQuery) cut(all []listedConsumer) (page []listedConsumer, next *listedConsumer, err error) {
	start := 0
	if q.First != "" {
		place := cmp.Or(q.Place, q.channel)
		start = slices.IndexFunc(all, func(l listedConsumer) bool {
			if q.sort == "" && place != "" {
				return cmp.Or(strings.Compare(l.ch.ID, place), strings.Compare(l.k.ID, q.First)) >= 0
			}
			return l.k.ID == q.First && (place == "" || l.ch.ID == place)
		})
		switch {
		case start < 0 && q.sort == "" && place != "":
			start = len(all)
		case start < 0:
			return nil, nil, problem.New(fasthttp.StatusBadRequest, "unknown_first",
				"The parameter first names no consumer of the list. Begin again without it.")
		}
	}
	page = all[start:]
	if len(page) > q.Size {
		next, page = &page[q.Size], page[:q.Size]
	}
	return page, next, nil
}

// viewListed returns the view of a consumer with its counts.
func (a *API) viewListed(l *listedConsumer) apitype.ListedConsumer {
	v := apitype.ListedConsumer{ChannelID: l.ch.ID, ConsumerURL: consumerPath(l.ch.ID, l.k.ID),
		Consumer: a.viewConsumer(l.ch.ID, l.k)}
	if mode := a.pace(l.k); mode != durable.PaceNormal {
		v.Rate = mode.String()
		if r := a.o.Rates.Pace(l.k.No); r.N > 0 {
			v.CurrentRate = policy.Rate(r).String()
		}
	}
	if codes := l.holds(); len(codes) > 0 {
		if v.HeldBy = string(codes[0]); codes[0] == why.RetryAfter {
			v.HeldUntil = &apitype.Time{Time: l.held.Until()}
		}
	}
	v.DeadLetters = &l.count.Dead
	if l.count.Known {
		v.Queued, v.InFlight, v.Approximate = &l.count.Queued, &l.count.InFlight, l.count.AtLeast
		if !l.count.Oldest.IsZero() {
			v.OldestQueuedAt = &apitype.Time{Time: l.count.Oldest}
		}
	}
	return v
}
