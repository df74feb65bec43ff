package gateway

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/internal/tool/signed"
)

// LeastSecret is the length of the shortest secret, bytes.
const LeastSecret = 16

var (
	errUnsigned = problem.New(401, "signature_required", "Each request to this broker is signed: X-Broker-Signature: "+
		"t=<Unix seconds>,v1=<hex HMAC-SHA256 of t.body> is missing or malformed. Nothing was done.")
	errMismatch = problem.New(403, "signature_mismatch", "X-Broker-Signature does not match the body and the secret of "+
		"the gateway, or its time is too far from that of the broker. Nothing was done.")
)

// A Gateway checks the signatures of requests. A nil one demands none.
type Gateway struct {
	Secret    []byte
	Tolerance time.Duration     // difference of the clocks, in both directions
	Exempt    []string          // beginnings of paths
	MaxBody   int               // bytes
	Bodies    *share.Bound      // of bodies that come, used under the address of the client
	Proxies   forwarded.Trusted // whose X-Forwarded-For says where a request is from
	Now       func() time.Time
}

// Handle calls next, or refuse with why the request is refused. The body that was read is that of the request then.
func (g *Gateway) Handle(rc *fasthttp.RequestCtx, next fasthttp.RequestHandler, refuse func(error)) {
	if g == nil || g.exempt(rc) {
		next(rc)
		return
	}
	header := rc.Request.Header.Peek(signed.Header)
	if len(header) == 0 { // before the body is read
		refuse(errUnsigned)
		return
	}
	client := share.Address(g.Proxies.Client(rc))
	body, taken, err := intake.Read(rc, g.Bodies, client, g.MaxBody)
	if err != nil {
		refuse(err)
		return
	}
	defer g.Bodies.Give(client, taken)
	switch err := signed.Check(header, g.Secret, body, g.Now(), g.Tolerance); {
	case errors.Is(err, signed.ErrMalformed):
		refuse(errUnsigned)
		return
	case err != nil:
		refuse(errMismatch)
		return
	}
	if rc.RequestBodyStream() != nil {
		rc.Request.SetBodyStream(bytes.NewReader(body), len(body))
	}
	next(rc)
}

// exempt reports whether the path needs no signature. One that is written in another way than it is read needs one.
func (g *Gateway) exempt(rc *fasthttp.RequestCtx) bool {
	path, written := string(rc.Path()), string(rc.URI().PathOriginal())
	for _, begin := range g.Exempt {
		if strings.HasPrefix(path, begin) && strings.HasPrefix(written, begin) {
			return true
		}
	}
	return false
}
