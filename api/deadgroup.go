package api

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/cause"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// groupsShown is above the number of groups that a consumer has.
const groupsShown = 1000

// getDeadGroups lists the dead letters of a consumer by cause. The numbers are counters.
func (a *API) getDeadGroups(ctx context.Context, rc *fasthttp.RequestCtx) error {
	_, k, err := a.consumer(ctx, rc)
	if err != nil {
		return err
	}
	groups, err := a.o.Store.DeadGroups(ctx, k.No, groupsShown)
	if err != nil {
		return err
	}
	view, at := apitype.DeadGroups{Result: make([]apitype.DeadGroup, 0, len(groups))}, k.ChangedAt
	for _, g := range groups {
		last := time.UnixMilli(g.LastMs).UTC()
		at = newest(at, last)
		view.Result = append(view.Result, apitype.DeadGroup{
			Fingerprint: g.Fingerprint.String(), Status: g.StatusCode, Sample: g.Sample, Count: g.Jobs,
			FirstAt: apitype.Time{Time: time.UnixMilli(g.FirstMs)}, LastAt: apitype.Time{Time: last},
			SampleJob: g.SampleID.Job(k.Position).String(),
		})
	}
	return answerResource(rc, fasthttp.StatusOK, view, at, false)
}

// readDeadQuery reads the parameters that say which dead letters a list has, and whether the newest
// message is the first one. The links to further pages keep them.
func readDeadQuery(rc *fasthttp.RequestCtx, q *pageQuery) (of durable.DeadSelection, down bool, err error) {
	values, err := url.ParseQuery(string(rc.URI().QueryString()))
	if err != nil {
		return of, false, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The query string is not well encoded.")
	}
	one := map[string]string{}
	for _, name := range []string{"fingerprint", "reason", "from", "to"} {
		switch len(values[name]) {
		case 0:
			continue
		case 1:
		default:
			return of, false, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter "+name+
				" occurs more than once.")
		}
		one[name] = values[name][0]
		q.keep.Set(name, one[name])
	}
	order, err := readOne(rc, *q, "order", "asc", "asc", "desc")
	if err != nil {
		return of, false, err
	}
	of, err = deadSelection(letterWords{fingerprint: one["fingerprint"], reason: one["reason"], from: one["from"],
		to: one["to"]}, "The parameter ", strings.ToLower)
	return of, order == "desc", err
}

// letterWords are the words of a request that says which dead letters it means; "" means all.
type letterWords struct{ fingerprint, reason, from, to string }

// deadSelection reads words. what and spell make the names of them for a refusal.
func deadSelection(w letterWords, what string, spell func(string) string) (of durable.DeadSelection, err error) {
	if w.fingerprint != "" {
		if of.Fingerprint, of.HasFingerprint = cause.Parse(strings.ToLower(w.fingerprint)); !of.HasFingerprint {
			return of, problem.New(fasthttp.StatusBadRequest, "invalid_fingerprint", what+spell("Fingerprint")+
				" must be one that dlq/groups shows: 16 hexadecimal digits, or other.")
		}
	}
	for code := range strings.SplitSeq(w.reason, ",") {
		if w.reason == "" {
			break
		}
		reason, ok := durable.ParseReason(strings.TrimSpace(code))
		if !ok {
			return of, invalidReason(what+spell("Reason"), code)
		}
		of.Reasons.Add(reason)
	}
	for _, t := range []struct {
		name, text string
		ms         *int64
	}{{"From", w.from, &of.FromMs}, {"To", w.to, &of.ToMs}} {
		if t.text == "" {
			continue
		}
		at, err := parseTime(t.text)
		if err != nil || at.UnixMilli() <= 0 {
			return of, problem.New(fasthttp.StatusBadRequest, "invalid_date", what+spell(t.name)+
				" must be an RFC 3339 time, such as 2026-01-31T15:04:05Z.")
		}
		*t.ms = at.UnixMilli()
	}
	if of.ToMs > 0 && of.FromMs > of.ToMs {
		return of, problem.New(fasthttp.StatusBadRequest, "invalid_date", what+spell("From")+" must not be later than "+
			spell("To")+".")
	}
	return of, nil
}

// invalidReason refuses a code that is none.
func invalidReason(what, code string) error {
	known := durable.ReasonCodes()
	meant := ""
	if best := problem.Nearest(code, known); best != "" {
		meant = " Did you mean " + best + "?"
	}
	return problem.Newf(fasthttp.StatusBadRequest, "invalid_reason",
		"%s must be one or more codes, with commas between: %s.%s", what, strings.Join(known, ", "), meant)
}
