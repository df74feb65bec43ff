package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// referenceExchanges are GETs of the description of the API.
func referenceExchanges(w *world) (out []wired) {
	for _, path := range []string{"/openapi.json", "/docs", "/docs?q=lease", "/docs/try", "/docs/try.js",
		"/docs/errors"} {
		out = append(out, wired{"GET " + strings.TrimSuffix(path, "?q=lease"), path, w.get(path).is(200)})
	}
	return out
}

func TestTheReferenceIsForEverybodyAndTheSameUntilItChanges(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement = false })
	for path, has := range map[string]string{"/openapi.json": `"openapi": "3.1.0"`,
		"/docs": "POST /channel/{channel}/broadcast", "/docs/errors": `id="duplicate_message_id"`,
		"/docs?q=lease": "lease_lost", "/docs/try": `data-path="/channel/{channel}/broadcast"`, "/docs/try.js": "fetch("} {
		r := w.get(path).is(200)
		require.Contains(t, r.Body, has)
		require.Contains(t, r.Header("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, path == "/docs/try", strings.Contains(r.Body, "<script"), path)
		tag := r.Header("ETag")
		require.True(t, strings.HasPrefix(tag, `"`), tag)
		require.Empty(t, w.get(path, "If-None-Match: "+tag).is(304).Body)
		packed := w.get(path, "Accept-Encoding: gzip").is(200)
		require.Equal(t, "gzip", packed.Header("Content-Encoding"))
		require.Less(t, len(packed.Body), len(r.Body)/2)
		require.NotEqual(t, tag, packed.Header("ETag"))
		w.get(path, "Accept-Encoding: gzip", "If-None-Match: "+packed.Header("ETag")).is(304)
		w.get(path, "Accept-Encoding: gzip", "If-None-Match: "+tag).is(200)
		path, _, _ = strings.Cut(path, "?")
		w.get(path+"/").problem(404, "no_such_path")
		w.do("POST", path, "").problem(405, "method_not_allowed")
	}
}

func TestASearchOfTheReferenceIsBounded(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	list := w.get("/docs").is(200).Body
	require.Equal(t, list, w.get("/docs?q=").is(200).Body)
	require.Equal(t, list, w.get("/docs?q=%20%09").is(200).Body)
	w.get("/docs?q=" + strings.Repeat("%C3%A9", 100)).is(200)
	w.get("/docs?q="+strings.Repeat("%C3%A9", 101)).problem(400, "invalid_query")
	w.get("/docs?q="+strings.Repeat("a", 4000)).problem(400, "invalid_query")
	w.get("/docs?q=lease&q=job").problem(400, "invalid_query")
	w.get("/docs?query=lease").problem(400, "unknown_parameter")
	r := w.get("/docs?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E%00%ff").is(200)
	require.NotContains(t, r.Body, "<script")
	require.Contains(t, r.Body, "&lt;script&gt;")
	require.Less(t, len(w.get("/docs?q=e").is(200).Body), 64<<10)
}
