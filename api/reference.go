package api

import (
	"bytes"
	"context"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/openapi"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/asset"
)

// reference serves a file that describes the API, the same to everybody.
func reference(file func() *asset.File) func(*API, context.Context, *fasthttp.RequestCtx) error {
	return func(_ *API, _ context.Context, rc *fasthttp.RequestCtx) error {
		file().Serve(rc)
		return nil
	}
}

// getDocs answers with the list of routes, or with what a search for q finds there.
func (a *API) getDocs(_ context.Context, rc *fasthttp.RequestCtx) error {
	all := rc.QueryArgs().PeekMulti("q")
	if len(all) > 1 {
		return problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter q occurs more than once.")
	}
	if len(all) == 0 || len(bytes.TrimSpace(all[0])) == 0 {
		openapi.Routes().Serve(rc)
		return nil
	}
	if utf8.RuneCount(all[0]) > openapi.MaxQuery {
		return problem.Newf(fasthttp.StatusBadRequest, "invalid_query", "The parameter q has more than %d characters.",
			openapi.MaxQuery)
	}
	openapi.Found(string(all[0])).Serve(rc)
	return nil
}
