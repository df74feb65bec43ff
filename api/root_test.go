package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

const browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

func TestTheRootIsAPageForBrowsersAndJSONForAllOthers(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.UI = nil })
	w.channel()
	for accept, page := range map[string]bool{
		browser: true, "Accept: text/html": true, "Accept: TEXT/HTML": true, "Accept: text/*": true,
		"Accept: text/html;level=1": true, "Accept: text/html, */*": true,
		"Accept: application/json;q=0.9, text/html": true, "Accept: application/json;q=0.4, text/html;q=0.5": true,
		"Accept: text/html, application/json": true, "Accept: */*;q=0.1, text/html;q=0.1": true,
		"X-Nothing: 1": false, "Accept: */*": false, "Accept: application/json": false,
		"Accept: application/json, text/plain, */*": false, "Accept: application/json, text/html": false,
		"Accept: text/html;q=0.5, application/json": false, "Accept: text/html;q=0": false,
		"Accept: text/html;q=0, */*": false, "Accept: text/html;q=0.1, */*;q=0.2": false, "Accept: image/png": false,
		"Accept: text/html;q=x": false, "Accept: text/html;q=2": false, "Accept: text/html;q=NaN": false,
		"Accept: ,;=,": false, "Accept: application/*, text/html;q=0.9": false,
		"Accept: " + strings.Repeat("a/b,", 3000): false,
	} {
		r := w.get("/", accept).is(200)
		require.Equal(t, "Accept", r.Header("Vary"), accept)
		require.Equal(t, page, strings.HasPrefix(r.Header("Content-Type"), "text/html"), accept)
		require.Equal(t, page, strings.HasPrefix(r.Body, "<!DOCTYPE html>"), accept)
		require.Contains(t, r.Body, "1.2.3", "the version")
		require.Contains(t, r.Body, documentation)
		for _, held := range []string{secret, "/channel/c"} {
			require.NotContains(t, r.Body, held)
		}
		if !page {
			var root apitype.Root
			require.NoError(t, json.Unmarshal([]byte(r.Body), &root))
			require.Equal(t, "Penstock", root.Name)
			require.Equal(t, "/readyz", root.Links.Ready)
		}
	}
}

func TestTheRootIsCachedByItsTagAndSaysWhatItSaysToEverybody(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OpenManagement, o.UI = false, nil })
	for _, accept := range []string{browser, "Accept: */*"} {
		r := w.get("/", accept).is(200)
		require.Contains(t, r.Header("Cache-Control"), "max-age")
		again := w.get("/", accept, "If-None-Match: "+r.Header("ETag")).is(304)
		require.Empty(t, again.Body)
		require.Equal(t, "Accept", again.Header("Vary"))
		require.Equal(t, r.Body, w.get("/", accept, adminHeader, "Host: stranger.example",
			"Origin: http://stranger.example").is(200).Body)
		bare := w.do("HEAD", "/", "", accept).is(200)
		require.Equal(t, r.Header("ETag"), bare.Header("ETag"))
	}
	require.NotEqual(t, w.get("/", browser).Header("ETag"), w.get("/").Header("ETag"))
}

// The page loads nothing: neither from the broker nor from elsewhere, and its policy allows nothing but
// its own style.
func TestTheRootPageLoadsNothing(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Version.Version, o.UI = "<script>1</script>", nil })
	r := w.get("/", browser).is(200)
	require.NotContains(t, r.Body, "<script")
	require.Contains(t, r.Body, "&lt;script&gt;")
	for _, loads := range []string{"src=", "@import", "url(", "<form", "<iframe"} {
		require.NotContains(t, r.Body, loads)
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(r.Body)
	require.Len(t, style, 2)
	require.Contains(t, r.Header("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-"+hashOf(style[1])+"'")
	require.Equal(t, "nosniff", r.Header("X-Content-Type-Options"))
	require.Contains(t, r.Body, `name="viewport"`)
	require.Contains(t, r.Body, "prefers-color-scheme:dark")
}

// Each path that the root names is there.
func TestTheLinksOfTheRootLeadSomewhere(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.UI = nil })
	var paths []string
	for _, m := range regexp.MustCompile(`href="(/[^"]*)"`).FindAllStringSubmatch(w.get("/", browser).Body, -1) {
		paths = append(paths, m[1])
	}
	links, ok := w.get("/").json()["Links"].(map[string]any)
	require.True(t, ok)
	for _, link := range links {
		if path, _ := link.(string); strings.HasPrefix(path, "/") {
			paths = append(paths, path)
		}
	}
	require.Greater(t, len(paths), 10)
	for _, path := range paths {
		require.Equal(t, http.StatusOK, w.get(path).Status, path)
	}
	require.Contains(t, w.get("/nothing").problem(404, "no_such_path").Body, "GET /")
}
