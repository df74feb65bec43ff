package api

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// The audit log. admit, which decides who may do what, puts who it is and what the route does into the context of
// the request (name); the store writes the entry with the change. A handler that changes no row of the store calls
// Store.Audit itself, before it acts.

// actorKey is the user value with who is asking, where a page of the dashboard has decided it.
const actorKey = "actor"

// name says in the context of a request that was admitted who makes which change.
func (a *API) name(rc *fasthttp.RequestCtx, access Access) {
	route, ok := rc.UserValue(routeKey).(*Route)
	if !ok || route.Audit == "" {
		return
	}
	d := auditlog.NewDeed(a.actor(rc, access), a.addressOf(rc), route.Audit, route.resource(rc))
	d.Portray = a.o.Portray
	if access == AccessAdmin && a.byFailSafe(rc) {
		return // it repeats what was to be done anyway
	}
	request.Of(rc).Bind(auditlog.DeedKey{}, d)
}

// byFailSafe reports whether the fail-safe of a broker of this installation calls re-trigger for a message.
func (a *API) byFailSafe(rc *fasthttp.RequestCtx) bool {
	if string(rc.Request.Header.UserAgent()) != apitype.FailSafe {
		return false
	}
	want := a.o.Prints.Pass(param(rc, "channel"), param(rc, "message"))
	return want != "" && hmac.Equal([]byte(want), rc.Request.Header.Peek(auditlog.FailSafeHeader))
}

// withParams keeps what a POST says of a change that no row shows: its parameters, and the members of JSON. A PUT has
// secrets in its body, and AccessForm a token.
func (route *Route) withParams(rc *fasthttp.RequestCtx) {
	d := auditlog.Of(request.Of(rc))
	if d == nil || route.Method == put || route.Access == AccessForm {
		return
	}
	params := map[string]any{}
	for _, name := range route.Query {
		if value := rc.QueryArgs().Peek(name); value != nil {
			params[name] = string(value)
		}
	}
	if body := rc.Request.Body(); len(body) > 0 && body[0] == '{' {
		var members map[string]any
		if json.Unmarshal(body, &members) == nil {
			for name, value := range members {
				params[name] = value
			}
		}
	}
	if len(params) > 0 {
		d.Params = params
	}
}

// audit writes the entry of a change that changes no row, before it is made.
func (a *API) audit(rc *fasthttp.RequestCtx) error {
	return within(rc, a.o.Store.Audit)
}

// Reveal writes an entry for a payload that a page is about to show.
func (p pages) Reveal(ctx context.Context, who, channel, message string) error {
	if who == "" {
		who = p.actor(p.rc, AccessUI)
	}
	d := auditlog.NewDeed(who, p.addressOf(p.rc), "reveal payload", messagePath(channel, message))
	return p.o.Store.Audit(auditlog.With(ctx, d))
}

// actor says who makes a request: the kind of principal, and which one.
func (a *API) actor(rc *fasthttp.RequestCtx, access Access) string {
	if who, ok := rc.UserValue(actorKey).(string); ok {
		return who
	}
	if g := scoped(rc); g != nil {
		return g.Who()
	}
	consumer := func() string { return "consumer " + param(rc, "channel") + "/" + param(rc, "consumer") }
	switch access {
	case AccessForm:
		if producer := param(rc, "producer"); producer != "" {
			return "producer " + producer
		}
		return consumer()
	case AccessLink:
		return "revive link of " + consumer()
	}
	if st := standing(rc); st != nil {
		if st.Consumer != nil {
			return consumer()
		}
		if st.Producer != nil {
			return "producer " + st.Producer.ID
		}
	}
	switch {
	case a.o.OpenManagement && access != AccessAdmin && access != AccessRetrigger:
		return "open management" // a token was not looked at
	case a.checkAdmin(rc) == nil:
		return "admin token"
	case access == AccessRetrigger:
		return "consumer of the job"
	}
	return "open management"
}

// addressOf is the address of the client, without its port.
func (a *API) addressOf(rc *fasthttp.RequestCtx) string {
	if from := a.client(rc); from.IsValid() {
		return from.String()
	}
	return ""
}

// resource is the path of the resource that a request names: up to its last ID, without a link that is a secret.
func (route *Route) resource(rc *fasthttp.RequestCtx) string {
	var path, whole strings.Builder
	for _, segment := range strings.Split(route.Path, "/")[1:] {
		id, ok := strings.CutPrefix(segment, "{")
		if id = strings.TrimSuffix(id, "}"); ok && id == "link" {
			break
		}
		if !ok {
			whole.WriteString("/" + segment)
			continue
		}
		whole.WriteString("/" + param(rc, id))
		path.Reset()
		path.WriteString(whole.String())
	}
	if path.Len() == 0 {
		return route.Path
	}
	return path.String()
}

var auditQueries = append([]string{"from", "to", "resource", "order"}, pageQueries...)

// getAudit lists entries of the audit log.
func (a *API) getAudit(ctx context.Context, rc *fasthttp.RequestCtx) error {
	q, err := readPage(rc, defaultPage, maxPage)
	if err != nil {
		return err
	}
	of := durable.AuditQuery{Limit: q.Size}
	if of.FromMs, of.ToMs, err = readAuditTimes(rc, &q); err != nil {
		return err
	}
	order, err := readOne(rc, q, "order", "asc", "asc", "desc")
	if err != nil {
		return err
	}
	of.Back = order == "desc"
	switch named := rc.QueryArgs().PeekMulti("resource"); {
	case len(named) > 1:
		return problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter resource occurs more than once.")
	case len(named) == 1 && len(named[0]) > 0:
		of.Resource = "/" + strings.Trim(string(named[0]), "/")
		q.keep.Set("resource", of.Resource)
	}
	if q.First != "" {
		if of.First, err = strconv.ParseUint(q.First, 10, 63); err != nil || of.First == 0 {
			return problem.New(fasthttp.StatusBadRequest, "unknown_first",
				"The parameter first must be the number of an entry.")
		}
	}
	page, next, err := a.o.Store.AuditEntries(ctx, of)
	if err != nil {
		return err
	}
	view := apitype.AuditList{Result: []apitype.AuditEntry{}}
	for i := range page {
		view.Result = append(view.Result, apitype.ViewAudit(&page[i]))
	}
	if next > 0 {
		view.Pages = q.next("/audit", strconv.FormatUint(next, 10))
	}
	return answerResource(rc, fasthttp.StatusOK, view, time.UnixMilli(a.o.NowMs()), false)
}

// readAuditTimes reads from and to, Unix ms; 0: absent.
func readAuditTimes(rc *fasthttp.RequestCtx, q *pageQuery) (fromMs, toMs int64, err error) {
	for name, ms := range map[string]*int64{"from": &fromMs, "to": &toMs} {
		values := rc.QueryArgs().PeekMulti(name)
		if len(values) == 0 || len(values) == 1 && len(values[0]) == 0 {
			continue
		}
		t, err := parseTime(string(values[0]))
		if err != nil || len(values) > 1 || t.UnixMilli() <= 0 {
			return 0, 0, problem.Newf(fasthttp.StatusBadRequest, "invalid_date",
				"The parameter %s must be one RFC 3339 time, such as 2026-01-31T15:04:05Z.", name)
		}
		*ms = t.UnixMilli()
		q.keep.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
	return fromMs, toMs, nil
}
