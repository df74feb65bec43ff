package api

import (
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/scope"
	"github.com/penstock-broker/penstock/internal/tool/answer"
)

// API tokens open routes by their scopes. The table of routes says of each what kind of access it needs; demandOf
// turns that into what a scope opens, and testdata/scopes.txt has the result for each route. Where an API token
// stands for the token of a channel or a consumer, on the routes of the data plane, package catalogue compares it.

// errOutOfScope refuses an API token that is right, and does not open the route.
func errOutOfScope(g *catalogue.Grant) error {
	return problem.Newf(fasthttp.StatusForbidden, "out_of_scope",
		"The scopes of this API token do not open this route: %s.", g.Scopes)
}

// errOnlyAdmin refuses an API token where tokens are made and ended.
var errOnlyAdmin = problem.New(fasthttp.StatusForbidden, "out_of_scope",
	"No API token makes, lists or ends API tokens: this route needs the admin token.")

// routeKey is the user value with the route of a request, a *Route.
const routeKey = "route"

// demandOf is what a request of a route asks of scopes, with a kind of access that may be stricter than its own.
func demandOf(r *Route, access Access, channel, consumer string) scope.Demand {
	d := scope.Demand{Reads: r.Method == get, Dead: r.aboutDead(), Channel: channel, Consumer: consumer}
	switch access {
	case AccessManagement, AccessPublished:
		d.Door = scope.Management
	case AccessOwn, AccessJob, AccessSender:
		d.Door = scope.Owner
	case AccessConsumer, AccessForm:
		d.Door = scope.Sole
	}
	return d
}

// aboutDead reports whether the route is about dead letters, or shows the job that one is.
func (r *Route) aboutDead() bool {
	const job = "/channel/{channel}/consumer/{consumer}/job/{job}"
	return strings.Contains(r.Path, "/dlq") || strings.Contains(r.Path, "/redrive") ||
		strings.HasPrefix(r.Path, job) && (r.Method == get || r.Method == del) || r.Path == job+"/requeue-dead-job"
}

// scopedToken returns the API token with which a request asks to be admitted, right or wrong. nil: it has none, or
// has the token of an owner in a header of its own, beside which an API token stands for that of the channel.
func (a *API) scopedToken(rc *fasthttp.RequestCtx, access Access) []byte {
	h := &rc.Request.Header
	if access == AccessAdmin || access == AccessRetrigger || access == AccessReceiver {
		return nil
	}
	if admin := h.Peek(headerAdminToken); len(admin) > 0 {
		if apitoken.Is(admin) {
			return admin
		}
		return nil
	}
	owners := (access.forConsumers() || access == AccessConsumer || access == AccessForm) &&
		len(h.Peek(headerConsumerToken)) > 0 ||
		(access.forProducers() || access == AccessSender || access == AccessForm) && len(h.Peek(headerProducerToken)) > 0
	if bearer, err := credentials.Bearer(h); err == nil && !owners && apitoken.Is(bearer) {
		return bearer
	}
	return nil
}

// scopedKey is the user value with the grant with which a request was admitted, a *catalogue.Grant.
const scopedKey = "grant"

// scoped returns the grant with which a request was admitted, nil where it was not by an API token.
func scoped(rc *fasthttp.RequestCtx) *catalogue.Grant {
	g, _ := rc.UserValue(scopedKey).(*catalogue.Grant)
	return g
}

// admitScoped admits a request by the scopes of its API token.
func (a *API) admitScoped(ctx context.Context, rc *fasthttp.RequestCtx, access Access, token []byte) error {
	if err := a.spared(rc); err != nil {
		return err
	}
	g, err := a.o.Catalogue.Grant(ctx, token)
	if err != nil {
		return err
	}
	return a.admitGrant(rc, access, g)
}

// admitGrant admits a request by a grant.
func (a *API) admitGrant(rc *fasthttp.RequestCtx, access Access, g *catalogue.Grant) error {
	route, ok := rc.UserValue(routeKey).(*Route)
	if !ok || !g.Scopes.Opens(demandOf(route, access, param(rc, "channel"), param(rc, "consumer"))) {
		return errOutOfScope(g)
	}
	rc.SetUserValue(scopedKey, g)
	answer.SetKey(rc, a.manager(rc))
	return nil
}

// admitTokens admits to the routes of API tokens: the admin, and everybody while management is open.
func (a *API) admitTokens(rc *fasthttp.RequestCtx) error {
	if a.scopedToken(rc, AccessTokens) != nil {
		return errOnlyAdmin
	}
	return a.admitReader(rc, rc, AccessTokens)
}

// judge returns nil while the request would be admitted now as it was.
func (a *API) judge(rc *fasthttp.RequestCtx) error {
	if g := scoped(rc); g != nil {
		if now := a.o.Catalogue.GrantByID(g.ID); now == nil || now.Version() != g.Version() {
			return catalogue.ErrAPIToken
		}
	}
	return standing(rc).Judge()
}

// veil empties the token of a resource in an answer to an API token that may not change it: it would open more. channel
// is the one that the resource is, or is of; "" for a producer.
func veil(rc *fasthttp.RequestCtx, channel string, token *string) {
	if g := scoped(rc); g != nil && !g.Scopes.Opens(scope.Demand{Door: scope.Management, Channel: channel}) {
		*token = ""
	}
}

// mayMove refuses an API token that gives a channel another group and does not manage groups: a group has limits and a
// pause, which a channel leaves with it.
func mayMove(rc *fasthttp.RequestCtx) error {
	if g := scoped(rc); g != nil && !g.Scopes.Opens(scope.Demand{Door: scope.Management}) {
		return errOutOfScope(g)
	}
	return nil
}

// mayForward refuses a consumer whose dead letters go to a channel that the scopes of an API token do not open.
func mayForward(rc *fasthttp.RequestCtx, disposal string) error {
	to, forwards := strings.CutPrefix(disposal, "forward:")
	if g := scoped(rc); forwards && g != nil && !g.Scopes.Opens(scope.Demand{Door: scope.Management, Channel: to}) {
		return errOutOfScope(g)
	}
	return nil
}
