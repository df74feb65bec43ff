package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/ui"
)

const (
	rawOfM    = "/ui/channel/c/message/m/raw"
	onRaw     = "/ui/channel/c/message/m/action/reveal-raw"
	rawPolicy = "sandbox; default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

// A payload comes from anybody. The raw view has its bytes, and no browser runs any of them.
func TestTheRawViewIsThePayloadAndNothingOfItRuns(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	for _, c := range []struct{ key, contentType, payload, shown string }{
		{"page", "text/html", "<script>alert(1)</script>", "text/plain; charset=utf-8"},
		{"json", "application/json", ` {"n":1.0} `, "text/plain; charset=utf-8"},
		{"svg", "image/svg+xml", `<svg onload="alert(1)"/>`, "text/plain; charset=utf-8"},
		{"large", "text/plain", strings.Repeat("x", 300_000), "text/plain; charset=utf-8"},
		{"bytes", "text/html", "\xff\x00<script>", "application/octet-stream"},
	} {
		m := w.insert(durable.Message{Key: c.key, ContentType: c.contentType, Payload: []byte(c.payload)})
		page := "/ui/channel/c/message/" + c.key
		require.Contains(t, w.page(page).is(200).Body, `href="`+page+`/raw">raw</a>`)
		r := w.get(page+"/raw", browser).is(200)
		require.Equal(t, c.payload, r.Body, c.key)
		require.Equal(t, c.shown, r.Header("Content-Type"), c.key)
		require.Equal(t, rawPolicy, r.Header("Content-Security-Policy"))
		require.Equal(t, "nosniff", r.Header("X-Content-Type-Options"))
		require.Equal(t, "no-store", r.Header("Cache-Control"))
		require.Equal(t, "same-origin", r.Header("Cross-Origin-Resource-Policy"))
		want := ""
		if c.key == "bytes" {
			want = `attachment; filename="payload-` + m.ID.String() + `.bin"`
		}
		require.Equal(t, want, r.Header("Content-Disposition"))
		require.Empty(t, w.do("HEAD", page+"/raw", "").is(200).Body)
	}
	w.insert(durable.Message{Key: "none"})
	require.NotContains(t, w.page("/ui/channel/c/message/none").is(200).Body, "/raw")
	require.Empty(t, w.get("/ui/channel/c/message/none/raw").is(200).Body)
	w.get("/ui/channel/c/message/unknown/raw", browser).is(404)
	w.get("/ui/channel/unknown/message/m/raw", browser).is(404)
}

func TestTheRawViewOfAHiddenPayloadAsksAndIsLogged(t *testing.T) {
	w := hiding(t, nil)
	require.Contains(t, w.page("/ui/channel/c/message/m").is(200).Body, `href="`+rawOfM+`">raw</a>`)
	r := w.get(rawOfM, browser).is(303)
	require.Equal(t, onRaw, r.Header("Location"))
	require.NotContains(t, r.Body, "hidden-17")
	asked := w.page(onRaw).is(200).asks()
	require.NotContains(t, asked.Body, "hidden-17")
	require.Empty(t, w.audit("?resource=channel/c/message/m"))
	w.press(asked, "Origin: http://evil").is(303) // open management is not open to other sites
	shown := w.page(onM).is(200).asks()           // the question of the page is another one
	shown.action = onRaw
	require.NotContains(t, w.press(shown).is(403).Body, "hidden-17")
	require.Empty(t, w.audit("?resource=channel/c/message/m"))
	w.change("reveal payload", "/channel/c/message/m", func() {
		r := w.press(asked).is(200)
		require.Equal(t, `{"order":"hidden-17"}`, r.Body)
		require.Equal(t, rawPolicy, r.Header("Content-Security-Policy"))
		require.Equal(t, "text/plain; charset=utf-8", r.Header("Content-Type"))
	})

	reads := hiding(t, func(o *ui.Options) { o.ReadOnly = true })
	require.NotContains(t, reads.page("/ui/channel/c/message/m").is(200).Body, "/raw")
	require.NotContains(t, reads.get(rawOfM, browser).is(403).Body, "hidden-17")
	link, _ := w.portal("k", "")
	w.api.o.OpenManagement = false
	w.get(rawOfM, w.owner(link), browser).is(401)
	w.get(rawOfM, browser).is(303) // to the login
}
