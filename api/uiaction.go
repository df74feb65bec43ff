package api

import (
	"context"
	"encoding/json"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Do sends a request to a route of the API in this process, with the connection and the request ID of the request
// for the page. It takes the way of any other request, so its refusals, log lines and metrics are those of the route.
//
// Where management is open to whoever asked for the page, the request is checked as one without a token. Otherwise the
// dashboard has seen the admin token, in the header or at the login, and the request has it; or it has seen an API
// token, whose scopes are checked for the request.
func (p pages) Do(r ui.Request) (ui.Answer, error) {
	var rc fasthttp.RequestCtx
	rc.Init2(p.rc.Conn(), nil, true)
	from, h := &p.rc.Request.Header, &rc.Request.Header
	h.SetMethod(r.Method)
	h.SetRequestURI(r.Path)
	h.SetHostBytes(from.Host())
	h.SetUserAgentBytes(from.UserAgent())
	h.Set(headerRequestID, requestID(p.rc))
	if p.byOpen {
		for _, name := range []string{fasthttp.HeaderOrigin, "Sec-Fetch-Site"} {
			for _, value := range from.PeekAll(name) {
				h.AddBytesV(name, value)
			}
		}
	} else if g, ok := p.rc.UserValue(loginKey).(*catalogue.Grant); ok {
		rc.SetUserValue(loginKey, g)
	} else {
		h.Set(headerAdminToken, p.o.AdminToken)
	}
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	rc.Request.SetBodyRaw(r.Body)
	if r.Who != "" {
		rc.SetUserValue(actorKey, r.Who)
	}
	p.Handler(&rc)
	a := ui.Answer{Status: rc.Response.StatusCode(), Location: string(rc.Response.Header.Peek(fasthttp.HeaderLocation)),
		Body: rc.Response.Body()}
	if a.Status < fasthttp.StatusBadRequest {
		return a, nil
	}
	var said apitype.Problem
	if err := json.Unmarshal(a.Body, &said); err != nil {
		return a, problem.ErrInternal
	}
	code := said.Code
	return a, problem.New(a.Status, code, said.Detail)
}

// Load says what a consumer has to do now, as the store and Redis know it.
func (p pages) Load(ctx context.Context, channel, consumer string) (l ui.Load, err error) {
	if err := p.o.Catalogue.Refresh(ctx); err != nil {
		return l, err
	}
	ch, k, err := p.known(channel, consumer)
	if err != nil {
		return l, err
	}
	view := p.viewConsumer(ch.ID, k)
	l = ui.Load{State: view.State, Type: view.Type}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	b, err := p.o.Jobs.Backlog(ctx, *k)
	if err != nil {
		p.log.Debug("the jobs of a consumer cannot be counted", "consumer", k.No, "error", err)
		return l, nil
	}
	l.Counted, l.Waiting, l.Delayed, l.InFlight, l.Dead = true, b.Queued, b.Delayed, b.InFlight, b.Dead
	return l, nil
}

// loginKey is the user value with the grant of the login of whoever asked for a page, a *catalogue.Grant.
const loginKey = "login"

// Grant returns what an API token opens.
func (p pages) Grant(ctx context.Context, token []byte) (ui.Grant, error) {
	g, err := p.o.Catalogue.Grant(ctx, token)
	if err != nil {
		return ui.Grant{}, err
	}
	return p.grantOf(g), nil
}

// GrantByID returns what the API token of an ID opens, while it lasts.
func (p pages) GrantByID(id string) (ui.Grant, bool) {
	g := p.o.Catalogue.GrantByID(id)
	if g == nil {
		return ui.Grant{}, false
	}
	return p.grantOf(g), true
}

func (p pages) grantOf(g *catalogue.Grant) ui.Grant {
	out := ui.Grant{ID: g.ID, Version: g.Version(), Scopes: g.Scopes, GroupOf: p.groupOf}
	if at, ends := g.Until(); ends {
		out.Until = at
	}
	return out
}

// Act makes the scopes of an API token count for what Do sends.
func (p pages) Act(id string) {
	g := p.o.Catalogue.GrantByID(id)
	if g == nil {
		g = new(catalogue.Grant) // it has just ended, and opens nothing
	}
	p.rc.SetUserValue(loginKey, g)
	answer.SetKey(p.rc, share.Token(g.Who()))
}

// Manage makes memory of the page count as that of management.
func (p pages) Manage() { answer.SetKey(p.rc, p.manager(p.rc)) }
