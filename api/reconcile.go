package api

import (
	"context"
	"net/url"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	// reconcileTimeout bounds one question for the books.
	reconcileTimeout = 30 * time.Second
	// sweptMargin is how long before its end the retention of a message is over for the books.
	sweptMargin = time.Minute
)

var errBooksBusy = &problem.Problem{Status: 429, Code: "books_busy", RetryAfter: 1,
	Detail: "This broker balances the books of a channel already. Ask again in a second."}

// reconcile answers the books of each consumer of a channel. One question at a time is answered: it
// reads much where much waits.
func (a *API) reconcile(ctx context.Context, rc *fasthttp.RequestCtx) error {
	now := time.UnixMilli(a.o.NowMs()).UTC()
	from, to, err := readTimes(string(rc.URI().QueryString()), now)
	if err != nil {
		return err
	}
	ch, err := a.channel(ctx, rc)
	if err != nil {
		return err
	}
	kept, _, err := a.kept(ctx, ch)
	if err != nil {
		return err
	}
	if kept > 0 { // of what is older, the store has a part
		if kept := time.UnixMilli(kept).UTC().Add(sweptMargin); from.Before(kept) {
			from = kept
		}
	}
	if to.Before(from) {
		to = from
	}
	select {
	case a.books <- struct{}{}:
		defer func() { <-a.books }()
	default:
		return errBooksBusy
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	view := apitype.Reconciliation{Result: []apitype.Books{}, From: apitype.Time{Time: from}, To: apitype.Time{Time: to}}
	after, through := ident.Before(from.UnixMilli()), ident.Before(to.UnixMilli())
	if to == now { // with those of the moments until the store is read
		through = ident.Max()
	}
	for _, k := range ch.Consumers {
		if k.Deleted() {
			continue
		}
		b, err := a.o.Auditor.Books(ctx, *k, after, through)
		if err != nil {
			return err
		}
		view.Result = append(view.Result, apitype.Books{ConsumerID: k.ID, Accepted: b.Accepted, Delivered: b.Delivered,
			Queued: b.Queued(), InFlight: b.InFlight,
			Dead: b.Dead, Expired: b.Expired, Filtered: b.Filtered, Balanced: b.Difference() == 0, Difference: b.Difference()})
	}
	return answerJSON(rc, fasthttp.StatusOK, view)
}

// readTimes reads from and to. Without them all messages up to now are meant.
func readTimes(query string, now time.Time) (from, to time.Time, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return from, to, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The query string is not well encoded.")
	}
	from, to = time.UnixMilli(0).UTC(), now
	for name, at := range map[string]*time.Time{"from": &from, "to": &to} {
		list := values[name]
		if len(list) > 1 {
			return from, to, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter "+name+
				" occurs more than once.")
		}
		if len(list) == 0 {
			continue
		}
		t, err := parseTime(list[0])
		if err != nil {
			return from, to, problem.New(fasthttp.StatusBadRequest, "invalid_date", "The parameter "+name+
				" must be an RFC 3339 time, such as 2026-01-31T15:04:05Z.")
		}
		*at = t.UTC().Truncate(time.Millisecond)
	}
	if from.After(to) {
		return from, to, problem.New(fasthttp.StatusBadRequest, "invalid_date",
			"The parameter from must not be later than to.")
	}
	return from, to, nil
}
