package api

import (
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// contain is the outermost layer of every request. A panic in the layers around the routes
// fails the request and not the process; each route has a recover of its own, see
// instrument. After the panic the position in the request is unknown, so contain closes the
// connection.
func contain(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		if guard.Do("http server", func() error { next(rc); return nil }) == nil {
			return
		}
		rc.Response.Reset()
		setRequestID(rc)
		rc.SetConnectionClose()
		Refuse(rc, problem.ErrInternal)
	}
}
