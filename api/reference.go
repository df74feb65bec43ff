package api

import (
	"context"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/asset"
)

// reference serves a file that describes the API, the same to everybody.
func reference(file func() *asset.File) func(*API, context.Context, *fasthttp.RequestCtx) error {
	return func(_ *API, _ context.Context, rc *fasthttp.RequestCtx) error {
		file().Serve(rc)
		return nil
	}
}
