package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/browser"
)

// The buttons of a group pause it and resume it, and a publish meets what they did.
func TestTheButtonsOfAGroupInABrowser(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s := p.stage(t, "k")
	p.put("/group/shops", "name", "All shops")
	p.put(s.path(), "group", "shops")
	b := browser.Start(t)
	require.Empty(t, b.Open(p.base+"/ui/channels"))
	require.Empty(t, b.Press(`a[href="/ui/groups"]`))
	require.Contains(t, b.Eval("document.querySelector('h1').textContent"), "No group is paused")
	require.Empty(t, b.Press(`a[href="/ui/group/shops/action/pause"]`))
	require.Equal(t, 201, s.post("before").status, "the question changes nothing")
	require.Empty(t, b.Press("button.main"))
	require.Contains(t, b.HTML(), "Done: it is paused.")
	require.Contains(t, b.Eval("document.querySelector('h1').textContent"), "One group is paused")
	requireProblem(t, s.post("meanwhile"), 503, "group_paused")
	require.Empty(t, b.Press(`a[href="/ui/group/shops/action/resume"]`))
	require.Empty(t, b.Press("button.main"))
	require.Contains(t, b.HTML(), "Done: it goes on.")
	require.Equal(t, 201, s.post("after").status)
	require.Contains(t, p.do("GET", "/audit", "").body, `"pause group"`)
}

// A payload that is a page runs nothing, loads nothing and goes nowhere, by itself in the raw view.
func TestARawPayloadReachesNothingOfTheDashboard(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s := p.stage(t, "k")
	const attack = `<!doctype html><title>attacked</title><script>document.title = "attacked"; fetch("/channels")</script>` +
		`<img src="/ui/icon.svg" onerror="document.title='attacked'"><meta http-equiv="refresh" content="0; url=/ui/login">`
	at := s.publish(attack, "Content-Type", "text/html")
	b := browser.Start(t)
	b.RunScripts("UTC")
	require.Empty(t, b.Open(p.base+"/ui"+at))
	require.Empty(t, b.Press(`a[href$="/raw"]`))
	require.True(t, strings.HasSuffix(b.Eval("location.href"), "/raw"), "it goes nowhere")
	require.Equal(t, "null", b.Eval("self.origin"), "it has an origin of its own")
	require.Equal(t, "text/plain", b.Eval("document.contentType"))
	require.NotContains(t, b.Eval("document.title"), "attacked")
	require.Equal(t, attack, b.Eval("document.body.textContent"), "it is shown as a text")
	require.Equal(t, "0", b.Eval("String(document.querySelectorAll('script, img, meta[http-equiv]').length)"))
}
