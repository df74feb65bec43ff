package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The summaries of the older implementation, for programs that watch it. They are taken from the last sample,
// and cost no statement; before the first one they are counted as the list of consumers is.

// mostSummed is the number of consumers in one summary.
const mostSummed = 10_000

var errManySummed = problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "There are more than %d consumers to "+
	"answer. Name a channel with the parameter channel.", mostSummed)

// summaryQueries are the parameters of the summaries.
var summaryQueries = []string{"channel"}

// summed returns those consumers of a summary, with their counts, that are wanted.
func (a *API) summed(ctx context.Context, rc *fasthttp.RequestCtx, wanted func(*listedConsumer) bool) ([]listedConsumer,
	error) {
	var q consumersQuery
	switch channels := rc.QueryArgs().PeekMulti("channel"); len(channels) {
	case 0:
	case 1:
		q.channel = string(channels[0])
	default:
		return nil, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter channel occurs more than once.")
	}
	if err := a.fresh(ctx); err != nil {
		return nil, err
	}
	all, err := a.matching(q)
	if err != nil {
		return nil, err
	}
	if s := a.recentSample(); s != nil {
		for i := range all {
			all[i].count = countOf(s, all[i].k.No)
		}
	} else if err := a.countAll(ctx, all); err != nil {
		return nil, err
	}
	kept := all[:0]
	for i := range all {
		if wanted(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	if len(kept) > mostSummed && q.channel == "" {
		return nil, errManySummed
	}
	return kept, nil
}

// recentSample returns the last sample; nil: there is none, or it is old.
func (a *API) recentSample() *sampler.Sample {
	if a.o.Sample == nil {
		return nil
	}
	s := a.o.Sample()
	if s == nil || a.o.NowMs()-s.At.UnixMilli() > (6*sampler.Every).Milliseconds() {
		return nil
	}
	return s
}

// The numbers of the states of a job.
const oldQueued, oldInFlight, oldDead = 1001, 1002, 1004

// getJobStatus counts the jobs of each consumer by the states of the older implementation. Delivered jobs are not
// counted: that would be a look at all of them.
func (a *API) getJobStatus(ctx context.Context, rc *fasthttp.RequestCtx) error {
	all, err := a.summed(ctx, rc, func(l *listedConsumer) bool {
		return l.count.Dead > 0 || l.count.Known && l.count.Queued+l.count.InFlight > 0
	})
	if err != nil {
		return err
	}
	view := apitype.JobStatus{}
	for i := range all {
		l := &all[i]
		var states []apitype.StateCount
		add := func(status, n int, oldest time.Time) {
			if n == 0 {
				return
			}
			s := apitype.StateCount{Status: status, Count: n}
			if !oldest.IsZero() {
				s.Oldest = &apitype.Time{Time: oldest}
			}
			states = append(states, s)
		}
		if l.count.Known {
			add(oldQueued, l.count.Queued, l.count.Oldest)
			add(oldInFlight, l.count.InFlight, time.Time{})
		}
		add(oldDead, l.count.Dead, time.Time{})
		if view[l.ch.ID] == nil {
			view[l.ch.ID] = map[string][]apitype.StateCount{}
		}
		view[l.ch.ID][l.k.ID] = states
	}
	return answerJSON(rc, fasthttp.StatusOK, view)
}

// getDLQStatus counts the dead letters of each consumer that has some.
func (a *API) getDLQStatus(ctx context.Context, rc *fasthttp.RequestCtx) error {
	all, err := a.summed(ctx, rc, func(l *listedConsumer) bool { return l.count.Dead > 0 })
	if err != nil {
		return err
	}
	view := apitype.DLQStatus{Consumers: make([]apitype.DeadCount, len(all))}
	for i := range all {
		l := &all[i]
		view.Consumers[i] = apitype.DeadCount{ChannelID: l.ch.ID, ChannelName: l.ch.Name, ConsumerID: l.k.ID,
			ConsumerName: l.k.Name, DeadCount: l.count.Dead}
	}
	return answerJSON(rc, fasthttp.StatusOK, view)
}
