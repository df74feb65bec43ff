package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/test/script"
)

// The page with a request for each route works from top to bottom, also again, and no route of the pages that it is for
// is missing.
func TestThePageOfEachRouteByCurlHasEachAndWorks(t *testing.T) {
	parallel(t)
	p, _ := startDemoBroker(t, emptyWorld(t).with("BROKER_ALLOW_DELETE=true", "BROKER_PUBLIC_URL=http://127.0.0.1:8080",
		"BROKER_ADMIN_TOKEN=guide-admin", "BROKER_OPEN_MANAGEMENT=true"))
	var out string
	for range 2 {
		out = script.Run{Env: scriptEnv(), Within: 2 * patience, Instead: []string{"--fail-with-body",
			`--fail-with-body -w '%{stderr}\n@@ %{method} %{url_effective}\n'`, "http://127.0.0.1:8080", p.base}}.Page(t,
			"docs/how-to/each-route-by-curl.md")
	}
	sent := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^@@ (\S+) `+regexp.QuoteMeta(p.base)+`([^?\s]*)`).FindAllStringSubmatch(
		out, -1) {
		sent[m[1]+" "+m[2]] = true
	}
	require.Greater(t, len(sent), 50)
	routes := 0
	for _, page := range []string{"resources", "consuming", "messages", "replays",
		"scheduling", "bulk", "notices"} {
		text := fromRoot(t, "docs/"+page+".md")
		for _, r := range api.Routes() {
			if !strings.Contains(text, "<!-- route "+r.Method+" "+r.Path+" ") {
				continue
			}
			routes++
			like := regexp.MustCompile("^" + r.Method + " " + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(
				regexp.QuoteMeta(r.Path), "[^/]+") + "$")
			found := false
			for one := range sent {
				found = found || like.MatchString(one)
			}
			require.True(t, found, "the page has no request for %s %s", r.Method, r.Path)
		}
	}
	require.Greater(t, routes, 50)
}
