package api

import (
	"context"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// jobQueries are the parameters of the jobs of a consumer.
var jobQueries = append([]string{"status", "order"}, pageQueries...)

// A Lister lists the open jobs of a consumer: a jobs.Lister.
type Lister interface {
	List(ctx context.Context, of jobs.Listing) (page []jobs.Listed, next ident.ID, err error)
	Are(ctx context.Context, k *durable.Consumer, status string, rows []durable.JobRow) ([]bool, error)
}

// listJobs lists the jobs of a consumer that are not delivered.
func (a *API) listJobs(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	of := jobs.Listing{Limit: q.Size}
	if of.Status, err = readOne(rc, q, "status", "", "QUEUED", "DELAYED", "INFLIGHT", "DEAD"); err != nil {
		return err
	}
	order, err := readOne(rc, q, "order", "asc", "asc", "desc")
	if err != nil {
		return err
	}
	of.Back = order == "desc"
	ch, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	of.Consumer = k
	if q.First != "" {
		if of.From, err = a.deadFrom(ctx, ch, k, q.First); err != nil {
			return err
		}
	}
	view, next, at, err := a.jobPage(ctx, ch, of)
	if err != nil {
		return err
	}
	if next != "" {
		view.Pages = q.next(consumerPath(ch.ID, k.ID)+"/jobs", next)
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}

// jobPage is a page of jobs, with the ID of the job where the next one begins, and when the newest change of
// them was.
func (a *API) jobPage(ctx context.Context, ch *catalogue.Channel, of jobs.Listing) (view apitype.JobList, next string,
	at time.Time, err error) {
	list, k := a.o.Lister.List, of.Consumer
	if of.Status == jobs.Dead {
		list = a.deadPage
	}
	page, behind, err := list(ctx, of)
	if err != nil {
		return view, "", at, err
	}
	view.Result = make([]apitype.Job, len(page))
	at, held := k.ChangedAt, a.heldNow(k)
	for i := range page {
		j := located{ch, k, page[i].Job, nil}
		if j.state.Status == jobs.Queued {
			j.held = held
		}
		at = newest(at, j.state.ChangedAt)
		v := j.view()
		v.JobURL, v.MessageURL = j.path(), messagePath(ch.ID, page[i].Row.PathID())
		view.Result[i] = v
	}
	if !behind.IsZero() {
		next = behind.Job(k.Position).String()
	}
	return view, next, at, nil
}

// deadPage is a page of dead letters.
func (a *API) deadPage(ctx context.Context, of jobs.Listing) (page []jobs.Listed, next ident.ID, err error) {
	list := a.o.Store.DeadJobs
	if of.Back {
		list = a.o.Store.DeadJobsBack
		if of.From.IsZero() {
			of.From = ident.Max()
		}
	}
	dead, err := list(ctx, of.Consumer.No, of.From, of.Limit+1)
	if err != nil {
		return nil, next, err
	}
	if len(dead) > of.Limit {
		next, dead = dead[of.Limit].ID, dead[:of.Limit]
	}
	ids := make([]ident.ID, len(dead))
	for i := range dead {
		ids[i] = dead[i].ID
	}
	rows, err := a.o.Store.JobRowsOf(ctx, of.Consumer, ids)
	if err != nil {
		return nil, next, err
	}
	byID := make(map[ident.ID]durable.JobRow, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	for _, d := range dead {
		row, ok := byID[d.ID]
		if !ok { // its message is removed
			row.ID = d.ID
		}
		page = append(page, jobs.Listed{Row: row, Job: stateOfDead(&d)})
	}
	return page, next, nil
}

// stateOfDead is the state of a dead letter.
func stateOfDead(d *durable.DeadJob) jobs.Job {
	return jobs.Job{ID: d.ID, Status: jobs.Dead, Attempts: d.Attempts, ChangedAt: time.UnixMilli(d.DiedMs).UTC(),
		StatusCode: d.StatusCode, Error: d.Error, Reason: d.Reason}
}

// heldNow returns until when a push consumer is held, as this broker knows; nil: it is not.
func (a *API) heldNow(k *durable.Consumer) *apitype.Time {
	if a.o.Holds == nil || k.Type != durable.Push {
		return nil
	}
	h, _, ok := a.o.Holds.KnownOf(k.No, time.Now())
	if !ok {
		return nil
	}
	return &apitype.Time{Time: h.Until()}
}

// readOne reads a parameter that has one of some values, in any case, and adds it to those that links carry.
// "": it is absent and usual is empty.
func readOne(rc *fasthttp.RequestCtx, q pageQuery, name, usual string, values ...string) (string, error) {
	all := rc.QueryArgs().PeekMulti(name)
	if len(all) == 0 {
		return usual, nil
	}
	if len(all) > 1 {
		return "", problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s occurs more than once.", name)
	}
	for _, v := range values {
		if strings.EqualFold(string(all[0]), v) {
			q.keep.Set(name, v)
			return v, nil
		}
	}
	meant := ""
	if best := problem.Nearest(string(all[0]), values); best != "" {
		meant = " Did you mean " + best + "?"
	}
	if name == "status" {
		return "", problem.Newf(fasthttp.StatusBadRequest, "invalid_status", "The parameter status must be one of %s.%s",
			strings.Join(values, ", "), meant)
	}
	return "", problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter %s must be one of %s.%s", name,
		strings.Join(values, ", "), meant)
}
