package main

import (
	"fmt"
	"regexp"
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

// A person presses what cannot be taken back: retry, revive, rotate, purge and delete; and the API knows of it.
func TestTheHarmfulButtonsOfTheDashboardInABrowser(t *testing.T) {
	parallel(t)
	var answer atomic.Int32
	sink := newSink(t, func(int, received) int { return int(answer.Load()) })
	p := embeddedWorld(t).with(quick...).start("BROKER_ALLOW_DELETE=true", "BROKER_RETRY_MAX_DELAY=1h")
	s := p.stage(t, "k="+sink.URL)
	s.put(s.path("/consumer/k"), "backoff", "constant:1h")
	a := newActor(t, p)
	on := func(consumer, action string) {
		t.Helper()
		require.Empty(t, a.Open(p.base+"/ui"+s.path("/consumer/", consumer)))
		a.press(`a[href$="/action/` + action + `"]`)
		a.look(action)
		a.press("form.acts button")
		a.look(action + "-done")
	}

	answer.Store(503)
	at := s.publish("late")
	eventually(t, "a delayed job", func() bool {
		j := s.message(at).Jobs
		return len(j) > 0 && j[0].NextAttemptAt != nil
	})
	answer.Store(204)
	on("k", "retry")
	s.awaitStatus(at, "DELIVERED")

	answer.Store(410)
	at = s.publish("gone")
	s.awaitState("k", "GONE")
	answer.Store(204)
	on("k", "revive")
	s.awaitState("k", "ACTIVE")
	s.awaitStatus(at, "DELIVERED")

	on("k", "rotate")
	secret := regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`).FindString(a.HTML())
	require.NotEmpty(t, secret)
	require.NotContains(t, p.log.String(), secret)
	s.publish("signed")
	eventually(t, "a signed request", func() bool {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return sink.got[len(sink.got)-1].header.Get("Webhook-Signature") != ""
	})
	require.Empty(t, a.Open(p.base+"/ui"+s.path("/consumer/k")))
	require.NotContains(t, a.HTML(), secret, "it was shown once")

	s.join("pull")
	for i := range 3 {
		s.publish(fmt.Sprint(i))
	}
	s.awaitQueued("pull", 3)
	on("pull", "purge")
	letters := func() int { return *s.counted("pull").DeadLetters }
	require.Equal(t, 3, letters())
	require.Empty(t, a.Open(p.base+"/ui/dlq?channel="+s.channel+"&consumer=pull"))
	a.press(`main > .acts a[href*="/action/delete"]`)
	require.Contains(t, a.HTML(), "3 dead letters")
	a.look("delete")
	a.press("form.acts button")
	eventually(t, "the letters are deleted", func() bool { return letters() == 0 })
}

// Somebody who has a link alone sees and presses what is of their consumer, also in a frame of another site.
func TestAPortalLinkInABrowser(t *testing.T) {
	parallel(t)
	failing := newSink(t, func(int, received) int { return 400 })
	p := embeddedWorld(t).with(quick...).start("BROKER_OPEN_MANAGEMENT=false", "BROKER_MAX_RETRIES=0")
	admin := []string{"X-Broker-Admin-Token", adminToken}
	put := func(path, form string) {
		r := p.do("PUT", path, form, append(admin, "Content-Type", "application/x-www-form-urlencoded")...)
		require.Equal(t, 201, r.status, r.body)
	}
	put("/producer/shop", "token=p-token")
	put("/channel/orders", "token=c-token")
	put("/channel/orders/consumer/billing", "token=k&callbackUrl="+failing.URL)
	put("/channel/orders/consumer/other", "token=k&type=pull")
	r := p.do("POST", "/channel/orders/broadcast", `{"order":1}`, "X-Broker-Channel-Token", "c-token",
		"X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token", "p-token")
	require.Equal(t, 201, r.status, r.body)
	const billing = "/channel/orders/consumer/billing"
	r = p.do("POST", billing+"/portal-link", `{"TTL":"1h"}`, admin...)
	require.Equal(t, 200, r.status, r.body)
	link := r.json(t)["URL"].(string)
	require.True(t, strings.HasPrefix(link, p.base+"/ui/portal?link="), link)

	a := newActor(t, p)
	require.Empty(t, a.Open(link))
	require.Contains(t, a.HTML(), "<h1>billing: ")
	require.NotContains(t, a.HTML(), "other")
	a.look("portal")
	a.press(`nav a[href^="/ui/dlq"]`)
	eventually(t, "the cause", func() bool {
		a.Open(p.base + "/ui/dlq?channel=orders&consumer=billing")
		return strings.Contains(a.HTML(), "status 400")
	})
	a.look("portal-dlq")
	a.press(`td a[href*="/job/"]`)
	require.Contains(t, a.HTML(), "order")
	a.look("portal-job")
	a.press(`nav a`)
	a.press(`a[href$="/action/pause"]`)
	a.press("form.acts button")
	require.Contains(t, a.HTML(), "Done: it is paused.")
	require.Equal(t, "PAUSED", p.do("GET", billing, "", admin...).json(t)["State"])
	require.Contains(t, p.log.String(), `"by_link":true`)
	a.Open(p.base + "/ui/channels") // the console tells of the 401
	require.Contains(t, a.HTML(), "the link opens the pages of one consumer alone")
	a.look("portal-elsewhere")
	_, secret, _ := strings.Cut(link, "link=")
	require.NotContains(t, p.log.String(), secret)
}
