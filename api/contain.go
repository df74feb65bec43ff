package api

import (
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/problem"
)

// contain is the outermost layer of every request: a panic in what is around the
// routes (each of which has a recover of its own, see instrument) fails the request
// and not the process. What was read of it is not known then, so its connection ends.
func contain(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		if guard.Do("http server", func() error { next(rc); return nil }) == nil {
			return
		}
		rc.Response.Reset()
		setRequestID(rc)
		rc.SetConnectionClose()
		problem.Write(rc, problem.ErrInternal)
	}
}
