package api

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/sqs"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

const (
	headerRequestID   = request.HeaderID
	maxRequestIDBytes = 128
)

// Handler answers one request.
func (a *API) Handler(rc *fasthttp.RequestCtx) {
	setRequestID(rc)
	a.o.Principals.Certify(rc)
	if a.draining.Load() {
		rc.SetConnectionClose()
	}
	a.o.Gateway.Handle(rc, a.route, func(err error) { a.refuseUnsigned(rc, err) })
}

// route leads a request to its route, in this store or in another one.
func (a *API) route(rc *fasthttp.RequestCtx) {
	if !a.leads() {
		a.Serve(rc)
		return
	}
	if a.o.Stores.Serve(rc) {
		return
	}
	a.Serve(rc)
	if rc.Response.StatusCode() == fasthttp.StatusNotFound && strings.HasPrefix(string(rc.Path()), "/receipt/") {
		a.o.Stores.ServeReceipt(rc)
	}
}

// Serve leads a request to its route in this store. The one that let it in may be the API of another store.
func (a *API) Serve(rc *fasthttp.RequestCtx) {
	if _, ok := broadcastChannel(rc); ok {
		a.publish(rc)
		return
	}
	a.router.Handler(rc)
}

// refuseUnsigned refuses a request that the gateway does not let in.
func (a *API) refuseUnsigned(rc *fasthttp.RequestCtx, err error) {
	a.fail(rc, err)
	if a.o.Access.On() && a.o.Access.wants(rc.Response.StatusCode()) {
		a.logAccess(rc, "gateway", time.Since(rc.Time()))
	}
}

// fail answers an error.
func (a *API) fail(rc *fasthttp.RequestCtx, err error) {
	Refuse(rc, problem.FromChange(err))
}

// Refuse answers an error in the form that the client reads.
func Refuse(rc *fasthttp.RequestCtx, err error) {
	if sqs.Asks(rc) {
		sqs.Refuse(rc, err)
		return
	}
	problem.Write(rc, err)
}

// instrument counts the requests of a route and turns a panic of its handler
// into a 500: one bad request must not end the process.
func (a *API) instrument(m *routeMetrics, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		start := time.Now()
		defer func() {
			if v := recover(); v != nil {
				a.metrics.panics.Inc()
				id := requestID(rc)
				a.log.Error("panic in a request handler", "panic", fmt.Sprint(v), "request_id", id, "stack", string(debug.Stack()))
				rc.Response.Reset()
				rc.Response.Header.Set(headerRequestID, id)
				Refuse(rc, problem.ErrInternal)
			}
			a.countFailure(rc)
			took := time.Since(start)
			m.observe(rc.Response.StatusCode(), took)
			if a.o.Access.On() && a.o.Access.wants(rc.Response.StatusCode()) {
				a.logAccess(rc, m.name, took)
			}
		}()
		next(rc)
	}
}

// setRequestID sets the X-Request-ID of the response. It is the client's, or a new one when
// the client's is missing or unfit for a log line.
func setRequestID(rc *fasthttp.RequestCtx) {
	if id := rc.Request.Header.Peek(headerRequestID); len(id) > 0 && len(id) <= maxRequestIDBytes && visibleASCII(id) {
		rc.Response.Header.SetBytesV(headerRequestID, id)
		return
	}
	var text [20]byte
	rc.Response.Header.SetBytesV(headerRequestID, appendRequestID(text[:0]))
}

// requestID returns what setRequestID chose.
func requestID(rc *fasthttp.RequestCtx) string {
	return string(rc.Response.Header.Peek(headerRequestID))
}

var requestIDText = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// appendRequestID appends 20 characters. A request ID is no secret, so the fast generator
// suffices.
func appendRequestID(text []byte) []byte {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:8], rand.Uint64())
	binary.BigEndian.PutUint32(b[8:], rand.Uint32())
	return requestIDText.AppendEncode(text, b[:])
}
