package api

import (
	"cmp"
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/credentials"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/scope"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// API tokens open routes by their scopes. The table of routes says of each what kind of access it needs; demandOf
// turns that into what a scope opens, and testdata/scopes.txt has the result for each route. Where an API token
// stands for the token of a channel or a consumer, on the routes of the data plane, package catalogue compares it.

// errOutOfScope refuses an API token that is right, and does not open the route.
func errOutOfScope(g *catalogue.Grant) error {
	return problem.Newf(fasthttp.StatusForbidden, "out_of_scope",
		"The scopes of this %s do not open this route: %s.", g.What(), g.Scopes)
}

// errOnlyAdmin refuses an API token where tokens are made and ended.
var errOnlyAdmin = problem.New(fasthttp.StatusForbidden, "out_of_scope",
	"No API token makes, lists or ends API tokens: this route needs the admin token.")

// routeKey is the user value with the route of a request, a *Route.
const routeKey = "route"

// demandOf is what a request of a route asks of scopes, with a kind of access that may be stricter than its own.
func (a *API) demandOf(r *Route, access Access, channel, consumer string) scope.Demand {
	d := scope.Demand{Reads: r.Method == get, Dead: r.aboutDead(), Channel: channel, Group: a.groupOf(channel),
		Consumer: consumer}
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

// groupOf returns the group that a channel carries now; "": none.
func (a *API) groupOf(channel string) string {
	if ch := a.o.Catalogue.Channel(channel); ch != nil {
		return ch.Group
	}
	return ""
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
	return a.admitGrant(ctx, rc, access, g)
}

// admitGrant admits a request by a grant.
func (a *API) admitGrant(ctx context.Context, rc *fasthttp.RequestCtx, access Access, g *catalogue.Grant) error {
	opens, err := a.opens(ctx, rc, access, g)
	if err != nil {
		return err
	}
	if !opens {
		return errOutOfScope(g)
	}
	rc.SetUserValue(scopedKey, g)
	rc.SetUserValue(accessKey, access)
	answer.SetKey(rc, share.Token(g.Who()))
	return nil
}

// accessKey is the user value with the access with which a grant was admitted, an Access.
const accessKey = "access"

// opens reports whether a grant opens a request now. Where the group of the channel decides, the copy is refreshed:
// the channel may have another one at another broker.
func (a *API) opens(ctx context.Context, rc *fasthttp.RequestCtx, access Access, g *catalogue.Grant) (bool, error) {
	route, ok := rc.UserValue(routeKey).(*Route)
	if !ok {
		return false, nil
	}
	if channel := param(rc, "channel"); channel != "" && g.Scopes.Has(scope.Group) {
		if err := a.fresh(ctx); err != nil {
			return false, err
		}
	}
	return g.Scopes.Opens(a.demandOf(route, access, param(rc, "channel"), param(rc, "consumer"))), nil
}

// admitTokens admits to the routes of API tokens: the admin, and everybody while management is open.
func (a *API) admitTokens(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if a.scopedToken(rc, AccessTokens) != nil {
		return errOnlyAdmin
	}
	return a.admitReader(ctx, rc, AccessTokens)
}

// recheck returns nil while the request would be admitted now as it was.
func (a *API) recheck(ctx context.Context, rc *fasthttp.RequestCtx) error {
	if g := scoped(rc); g != nil {
		if now := a.o.Catalogue.GrantByID(g.ID); now == nil || now.Version() != g.Version() {
			return catalogue.ErrAPIToken
		}
		if access, ok := rc.UserValue(accessKey).(Access); ok {
			if opens, err := a.opens(ctx, rc, access, g); err != nil || !opens {
				return cmp.Or(err, errOutOfScope(g))
			}
		}
	}
	return standing(rc).Check()
}

// tokensOf reports whether a grant sees, sets and makes the tokens and keys of resources, which outlive its own
// token. Of scopes, only management:write does.
func tokensOf(g *catalogue.Grant) bool { return g.Scopes.Opens(scope.Demand{Door: scope.Management}) }

// veil empties the token of a resource in an answer that must not show it: tokens are not shown, or the API token of
// the request would leave something that lasts longer.
func (a *API) veil(rc *fasthttp.RequestCtx, token *string) {
	if g := scoped(rc); a.o.HideTokens || g != nil && !tokensOf(g) {
		*token = ""
	}
}

// showOnce shows a token that the request has made, or brought.
func showOnce(rc *fasthttp.RequestCtx, made bool, token *string, is string) {
	if g := scoped(rc); made && (g == nil || tokensOf(g)) {
		*token = is
	}
}

// brought returns the token that a request brought, of which the store may have a digest, or that of the resource.
func brought(token *string, is string) string {
	if token != nil {
		return *token
	}
	return is
}

// maySetToken refuses an API token that asks for a token or key of a resource, or brings one, and manages no tokens.
func maySetToken(rc *fasthttp.RequestCtx) error {
	if g := scoped(rc); g != nil && !tokensOf(g) {
		return errTokenOutlives
	}
	return nil
}

// mayBring is maySetToken for the field token of a PUT, which may be absent.
func mayBring(rc *fasthttp.RequestCtx, token *string) error {
	if token == nil {
		return nil
	}
	return maySetToken(rc)
}

// errTokenOutlives refuses what would leave a holder of an API token something that lasts longer than that.
var errTokenOutlives = problem.New(fasthttp.StatusForbidden, "out_of_scope",
	"The tokens and keys of channels and consumers outlive an API token, so the scopes of this one do not make or set "+
		"them: that needs management:write or the admin token.")

// mayMove refuses an API token that gives a channel another group and does not manage groups: a group has limits and a
// pause, which a channel leaves with it.
func mayMove(rc *fasthttp.RequestCtx) error {
	if g := scoped(rc); g != nil && !g.Scopes.Opens(scope.Demand{Door: scope.Management}) {
		return errOutOfScope(g)
	}
	return nil
}

// mayForward refuses a consumer whose dead letters go to a channel that the scopes of an API token do not open.
func (a *API) mayForward(rc *fasthttp.RequestCtx, disposal string) error {
	to, forwards := strings.CutPrefix(disposal, "forward:")
	if g := scoped(rc); forwards && g != nil && !g.Scopes.Opens(scope.Demand{Door: scope.Management, Channel: to,
		Group: a.groupOf(to)}) {
		return errOutOfScope(g)
	}
	return nil
}
