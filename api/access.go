package api

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/catalogue"
	"github.com/penstock-broker/penstock/problem"
)

// The headers that carry tokens.
const (
	headerAdminToken    = "X-Broker-Admin-Token"
	headerChannelToken  = "X-Broker-Channel-Token"
	headerConsumerToken = "X-Broker-Consumer-Token"
)

var (
	errTokenMissing = problem.New(fasthttp.StatusUnauthorized, "token_missing",
		"This needs a token: X-Broker-Admin-Token, or where a consumer may act, the consumer's.")
	errAdminToken = problem.New(fasthttp.StatusForbidden, "admin_token_mismatch",
		"X-Broker-Admin-Token does not match.")
	errNoAdmin = problem.New(fasthttp.StatusForbidden, "admin_disabled",
		"No admin token is configured, so nobody may do this.")
)

// admit decides what the route's access alone can decide. Consumer and
// re-trigger routes decide in their handlers, which know the job.
func (a *API) admit(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	switch access {
	case AccessAdmin:
		return a.checkAdmin(rc)
	case AccessManagement, AccessOwn:
		return a.admitReader(ctx, rc, access)
	default:
		return nil
	}
}

// admitReader admits everybody while management is open, else the bearers of
// tokens.
func (a *API) admitReader(ctx context.Context, rc *fasthttp.RequestCtx, access Access) error {
	var refusal error
	if a.o.OpenManagement {
		if refusal = a.checkOpen(rc); refusal == nil {
			return nil
		}
	}
	h := &rc.Request.Header
	sent := func(name string) bool { return len(h.Peek(name)) > 0 }
	switch {
	case sent(headerAdminToken):
		return a.checkAdmin(rc)
	case access == AccessOwn && (sent(headerChannelToken) || sent(headerConsumerToken)):
		_, _, err := a.authorizeConsumer(ctx, rc)
		return err
	case refusal != nil:
		return refusal
	default:
		return a.checkAdmin(rc)
	}
}

// checkAdmin answers whether the request comes from the admin. Without a
// configured token it is refused whatever it carries.
func (a *API) checkAdmin(rc *fasthttp.RequestCtx) error {
	token := rc.Request.Header.Peek(headerAdminToken)
	switch {
	case a.o.AdminToken == "":
		return errNoAdmin
	case len(token) == 0:
		return errTokenMissing
	case !catalogue.TokenMatches(token, a.o.AdminToken):
		return errAdminToken
	}
	return nil
}
