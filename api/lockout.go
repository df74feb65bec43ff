package api

import (
	"math"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// client returns the address of the client of a request, behind proxies that are trusted.
func (a *API) client(rc *fasthttp.RequestCtx) netip.Addr { return a.o.Proxies.Client(rc) }

// manager is the key of a management request: that of its client, so that one behind a trusted proxy takes nothing
// from the others behind it.
func (a *API) manager(rc *fasthttp.RequestCtx) share.Key { return share.Management(a.client(rc)) }

// spared returns nil while the tokens of the client's address are looked at.
func (a *API) spared(rc *fasthttp.RequestCtx) error {
	if wait := a.o.Lockout.Limited(a.client(rc)); wait > 0 {
		return tooMany(wait)
	}
	return nil
}

func tooMany(wait time.Duration) *problem.Problem {
	return problem.TooManyFailures(int(math.Ceil(wait.Seconds())))
}

// countFailure counts an answer that refuses a wrong token, and replaces it where the address has sent too many. It
// costs a comparison for every other answer.
func (a *API) countFailure(rc *fasthttp.RequestCtx) {
	if rc.Response.StatusCode() < fasthttp.StatusBadRequest || a.o.Lockout == nil || !problem.OfWrongToken(rc) {
		return
	}
	if wait := a.o.Lockout.Failed(a.client(rc)); wait > 0 {
		rc.Response.Header.Del(fasthttp.HeaderWWWAuthenticate)
		Refuse(rc, tooMany(wait))
	}
}
