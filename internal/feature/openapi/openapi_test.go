package openapi

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func TestThePagesHaveEachRouteTypeAndCode(t *testing.T) {
	d := read()
	routes, failures := string(renderRoutes()), string(renderErrors())
	n := 0
	for _, p := range d.Paths {
		for _, m := range p.Value {
			n++
			require.Equal(t, 1, strings.Count(routes, `id="`+m.Value.ID+`"`), m.Value.ID)
			for _, c := range m.Value.Codes {
				require.Contains(t, failures, `id="`+strings.Fields(c)[1]+`"`)
			}
		}
	}
	require.Greater(t, n, 100)
	require.Greater(t, len(d.Components.Schemas), 50)
	for _, s := range d.Components.Schemas {
		require.Equal(t, 1, strings.Count(routes, `id="type-`+s.Name+`"`), s.Name)
	}
	require.Greater(t, len(d.Codes), 100)
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(routes+failures, -1) {
		require.False(t, ids[m[1]], "two elements have the id %s", m[1])
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(` href="(?:/docs/errors)?#([^"]+)"`).FindAllStringSubmatch(routes+failures, -1) {
		require.True(t, ids[m[1]], "nothing has the id %s", m[1])
	}
}

// The policy names the hash of the style, and a page has no other style, no script and nothing from elsewhere.
func TestThePolicyAllowsTheStyleOfThePageOnly(t *testing.T) {
	for _, page := range []string{string(renderRoutes()), string(renderErrors())} {
		_, rest, _ := strings.Cut(page, "<style>")
		inside, _, _ := strings.Cut(rest, "</style>")
		require.Contains(t, pagePolicy, "sha256-"+hashOf(inside))
		require.NotRegexp(t, `<script|<img|<link|<iframe| style=| on[a-z]+=|ZgotmplZ`, page)
	}
}

func TestTheDocumentInTheBinaryIsThatOfTheRepository(t *testing.T) {
	committed, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	require.Equal(t, string(committed), string(text()), "make openapi writes both")
	require.Less(t, len(packed), 64<<10, "it is in every broker")
}

func TestAFileIsServedInGzipAndOnceOnly(t *testing.T) {
	var rc fasthttp.RequestCtx
	rc.Request.Header.Set("Accept-Encoding", "br, gzip")
	JSON().Serve(&rc)
	unpacked, err := rc.Response.BodyGunzip()
	require.NoError(t, err)
	require.True(t, json.Valid(unpacked))
	require.Equal(t, text(), unpacked)
	tag := string(rc.Response.Header.Peek("ETag"))
	rc = fasthttp.RequestCtx{}
	rc.Request.Header.Set("Accept-Encoding", "gzip")
	rc.Request.Header.Set("If-None-Match", `"other", W/`+tag)
	JSON().Serve(&rc)
	require.Equal(t, 304, rc.Response.StatusCode())
	require.Empty(t, rc.Response.Body())
}

func TestTextsOfTheTableAreEscaped(t *testing.T) {
	require.Equal(t, "a <code>&lt;b&gt;</code> &amp; c", string(marked("a `<b>` & c")))
}

// A command has the tokens that the route asks for, and the example of its body.
func TestACommandIsWhole(t *testing.T) {
	for _, want := range []string{
		"curl -i \\\n  -X POST \\\n  -H &#34;X-Broker-Channel-Token: $CHANNEL_TOKEN&#34; \\\n" +
			"  -H &#34;X-Broker-Producer-Token: $PRODUCER_TOKEN&#34; \\\n" +
			"  -H &#34;X-Broker-Producer-ID: shop&#34; \\\n  -d &#39;hello&#39; \\\n" +
			"  &#34;$PENSTOCK_URL/channel/orders/broadcast&#34;",
		"--data-urlencode &#39;name=Orders&#39;",
	} {
		require.Contains(t, string(renderRoutes()), want)
	}
}
