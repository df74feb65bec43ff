package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/browser"
)

// actor is a browser on a dashboard, which presses what a person would.
type actor struct {
	*browser.Browser
	t *testing.T
	p *process
}

func newActor(t *testing.T, p *process) *actor {
	t.Helper()
	a := &actor{browser.Start(t), t, p}
	a.Screen(1200, "light")
	return a
}

// press follows a link or button, and has no errors of the page.
func (a *actor) press(selector string) {
	a.t.Helper()
	require.Empty(a.t, a.Press(selector), selector)
}

// look keeps pictures of the page at both widths, which must need no scrolling sideways.
func (a *actor) look(name string) {
	a.t.Helper()
	for _, theme := range []string{"dark", "light"} {
		for _, width := range []int{360, 1200} {
			a.Screen(width, theme)
			_, content, _ := a.Size()
			require.LessOrEqual(a.t, content, width, "%s has to be scrolled sideways", name)
			keepPicture(a.t, fmt.Sprintf("action-%s-%d-%s.png", name, width, theme), a.Picture())
		}
	}
}

// A person logs in, presses the buttons of a consumer and of a channel, and the API knows of it.
func TestTheButtonsOfTheDashboardInABrowser(t *testing.T) {
	parallel(t)
	fine := newSink(t, func(int, received) int { return 204 })
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	admin := []string{"X-Broker-Admin-Token", adminToken}
	put := func(path, form string) {
		r := p.do("PUT", path, form, append(admin, "Content-Type", "application/x-www-form-urlencoded")...)
		require.Equal(t, 201, r.status, r.body)
	}
	put("/channel/orders", "token=c")
	put("/channel/orders/consumer/billing", "token=k&callbackUrl="+fine.URL)
	state := func(path string) string {
		r := p.do("GET", path, "", admin...)
		require.Equal(t, 200, r.status, r.body)
		return r.json(t)["State"].(string)
	}
	const billing = "/channel/orders/consumer/billing"
	a := newActor(t, p)
	require.Empty(t, a.Open(p.base+"/ui"+billing))
	a.Type("#token", adminToken)
	a.press(".login button")
	require.Contains(t, a.HTML(), "<h1>billing: ", "the login leads to the page that was asked for")
	a.look("consumer")
	a.press(`a[href$="/action/pause"]`)
	require.Contains(t, a.HTML(), "Pause billing?")
	a.look("pause")
	require.Equal(t, "ACTIVE", state(billing))
	a.press("form.acts button")
	require.Contains(t, a.HTML(), "Done: it is paused.")
	require.Equal(t, "PAUSED", state(billing))
	a.look("paused")
	a.press(`a[href$="/action/test"]`)
	a.press("form.acts button")
	require.Contains(t, a.HTML(), "The test was delivered")
	a.look("test")
	a.press(`.acts a`)
	a.press(`a[href$="/action/resume"]`)
	a.press("form.acts button")
	require.Equal(t, "ACTIVE", state(billing))
	require.Empty(t, a.Open(p.base+"/ui/channel/orders"))
	a.press(`a[href$="/action/pause"]`)
	a.press("form.acts button")
	require.Equal(t, "PAUSED", state("/channel/orders"))
	a.look("channel-paused")
	a.press(`form[action="/ui/logout"] button`)
	require.Contains(t, a.HTML(), "<h1>Log in</h1>")
	require.NotContains(t, p.log.String(), adminToken)
}

// A person sends a message, which fails, redrives the dead letter by canary, and sends the message again.
func TestTheFormsOfTheDashboardInABrowser(t *testing.T) {
	parallel(t)
	refuse := atomic.Bool{}
	refuse.Store(true)
	sink := newSink(t, func(int, received) int {
		if refuse.Load() {
			return 400
		}
		return 204
	})
	p := embeddedWorld(t).with(quick...).start("BROKER_ALLOW_DELETE=true")
	p.put("/producer/shop", "token", "p-token")
	p.put("/channel/orders", "token", "c-token")
	p.put("/channel/orders/consumer/billing", "token", "k", "callbackUrl", sink.URL, "maxRetries", "0")
	a := newActor(t, p)
	require.Empty(t, a.Open(p.base+"/ui/channel/orders"))
	a.press(`a[href^="/ui/publish"]`)
	a.Type("#producer", "shop")
	a.Type("#token", "wrong")
	a.Type("#payload", `{"first":1}`)
	a.look("publish")
	a.Press(".send button") // the console tells of the 403
	require.Contains(t, a.HTML(), "The message was not sent")
	require.Contains(t, a.HTML(), `{"first":1}`)
	a.look("publish-wrong")
	a.Clear("#token")
	a.Type("#token", "p-token")
	a.press(".send button")
	require.Contains(t, a.HTML(), "billing", "the page of the message")
	letters := func() string {
		return p.do("GET", "/channel/orders/consumer/billing/dlq", "").body
	}
	eventually(t, "a dead letter", func() bool {
		return strings.Contains(letters(), "JobURL") ||
			strings.Contains(letters(), `"Fingerprint"`)
	})
	const dlq = "/ui/dlq?channel=orders&consumer=billing"
	require.Empty(t, a.Open(p.base+dlq))
	a.look("dlq")
	refuse.Store(false)
	a.press(`td a[href*="canary=true"]`)
	require.Contains(t, a.HTML(), "1 dead letter of the cause")
	a.look("redrive")
	a.press("form.acts button")
	require.Contains(t, a.HTML(), "redrive")
	eventually(t, "the redrive is done", func() bool {
		return strings.Contains(p.do("GET", "/channel/orders/consumer/billing/redrives", "").body, `"DONE"`)
	})
	require.Empty(t, a.Open(p.base+"/ui/redrives?channel=orders&consumer=billing"))
	require.Contains(t, a.HTML(), "No redrive of billing is under way")
	a.look("redrives")
	require.NotContains(t, letters(), `"Fingerprint"`)
	require.NotContains(t, p.log.String(), "p-token")
	require.Contains(t, p.log.String(), "an action was done by the dashboard")
}
