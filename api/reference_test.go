package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// referenceExchanges are GETs of the description of the API.
func referenceExchanges(w *world) (out []wired) {
	for _, path := range []string{"/openapi.json", "/docs", "/docs/errors"} {
		out = append(out, wired{"GET " + path, path, w.get(path).is(200)})
	}
	return out
}

func TestTheReferenceIsForEverybodyAndTheSameUntilItChanges(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	for path, has := range map[string]string{"/openapi.json": `"openapi": "3.1.0"`,
		"/docs": "POST /channel/{channel}/broadcast", "/docs/errors": `id="duplicate_message_id"`} {
		r := w.get(path).is(200)
		require.Contains(t, r.Body, has)
		require.Contains(t, r.Header("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, r.Body, "<script")
		tag := r.Header("ETag")
		require.True(t, strings.HasPrefix(tag, `"`), tag)
		require.Empty(t, w.get(path, "If-None-Match: "+tag).is(304).Body)
		packed := w.get(path, "Accept-Encoding: gzip").is(200)
		require.Equal(t, "gzip", packed.Header("Content-Encoding"))
		require.Less(t, len(packed.Body), len(r.Body)/4)
		require.NotEqual(t, tag, packed.Header("ETag"))
		w.get(path, "Accept-Encoding: gzip", "If-None-Match: "+packed.Header("ETag")).is(304)
		w.get(path, "Accept-Encoding: gzip", "If-None-Match: "+tag).is(200)
		w.get(path+"/").problem(404, "no_such_path")
		w.do("POST", path, "").problem(405, "method_not_allowed")
	}
}
