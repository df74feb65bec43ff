package api

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/ui"
)

const onM = "/ui/channel/c/message/m/action/reveal"

// hiding is a world whose dashboard shows no payload, with a message m that a consumer has responded to.
func hiding(t *testing.T, change func(*ui.Options)) *world {
	t.Helper()
	w, _ := newUIWorld(t, func(o *Options) {
		payloads, err := ui.ParsePayloads("hide")
		require.NoError(t, err)
		of := ui.Options{AdminToken: adminToken, Key: []byte(secret), Payloads: payloads, Version: "1.2.3"}
		if change != nil {
			change(&of)
		}
		o.UI = ui.New(of)
	})
	w.channel()
	w.put("/channel/c/consumer/k", "token="+secret+"-k&type=pull&responses=store").is(201)
	w.insert(durable.Message{Key: "m", ContentType: "application/json", Payload: []byte(`{"order":"hidden-17"}`)})
	w.do("POST", "/channel/c/message/m/response", "answer-18", tokens("k")...).is(202)
	return w
}

func TestAHiddenPayloadIsRevealedOnceAndLogged(t *testing.T) {
	w := hiding(t, nil)
	w.api.o.OpenManagement = false
	login := w.do("POST", "/ui/login", url.Values{"token": {adminToken}}.Encode(), formHeader, browser).is(303)
	session, _, _ := strings.Cut(login.Header("Set-Cookie"), ";")
	cookie := "Cookie: " + session
	hidden := func(r reply) reply {
		t.Helper()
		require.NotContains(t, r.Body, "hidden-17")
		require.NotContains(t, r.Body, "answer-18")
		return r
	}
	require.Contains(t, hidden(w.page("/ui/channel/c/message/m", cookie).is(200)).Body, `href="`+onM+`">Show it</a>`)
	hidden(w.page("/ui/channel/c/message/m?show=responses", cookie).is(200))
	before := len(w.audit(""))
	asked := hidden(w.page(onM, cookie).is(200)).asks()
	require.Len(t, w.audit(""), before, "looking at the question is no look at the payload")

	const own = "Origin: http://broker"
	hidden(w.press(asked, cookie, "Origin: http://evil").is(403))
	hidden(w.press(asked, own).is(303)) // no session: to the login
	forged := asked
	forged.form = strings.Replace(asked.form, "seal=", "seal=x", 1)
	hidden(w.press(forged, cookie, own).is(403))
	elsewhere := asked
	w.insert(durable.Message{Key: "m2", Payload: []byte("hidden-17")})
	elsewhere.action = strings.Replace(asked.action, "/m/", "/m2/", 1)
	hidden(w.press(elsewhere, cookie, own).is(403))
	second := w.do("POST", "/ui/login", url.Values{"token": {adminToken}}.Encode(), formHeader, browser).is(303)
	other, _, _ := strings.Cut(second.Header("Set-Cookie"), ";")
	hidden(w.press(asked, "Cookie: "+other, own).is(403))
	require.Len(t, w.audit(""), before, "none of them is in the log")

	entry := w.change("reveal payload", "/channel/c/message/m", func() {
		r := w.press(asked, cookie, own).is(200)
		require.Contains(t, r.Body, "hidden-17")
		require.Contains(t, r.Body, "answer-18")
		require.Equal(t, "no-store", r.Header("Cache-Control"))
		require.NotContains(t, r.Body, "hx-sse:connect", "it does not follow what happens")
		require.NotContains(t, r.Body, "Show it")
	})
	require.Equal(t, "dashboard session", entry.Who)
	require.Empty(t, entry.Before)
	require.Empty(t, entry.After)
	hidden(w.page("/ui/channel/c/message/m", cookie).is(200))
	hidden(w.do("GET", "/ui/channel/c/message/m", "", cookie, "Accept: text/event-stream"))

	w.press(w.page(onM, adminHeader).is(200).asks(), adminHeader, own).is(200)
	all := w.audit("?resource=channel/c/message/m")
	require.Equal(t, "admin token", all[len(all)-1].Who)
	w.get("/ui/channel/c/message/none/action/reveal", cookie, browser).is(404)
	w.get("/ui/channel/c/message/m/action/show", cookie, browser).is(404)
}

func TestWithoutAnEntryNoPayloadIsRevealed(t *testing.T) {
	w := hiding(t, nil)
	asked := w.page(onM).is(200).asks()
	w.api.o.Store = deafStore{w.store}
	r := w.press(asked).is(500)
	require.NotContains(t, r.Body, "hidden-17")
	require.NotContains(t, r.Body, "answer-18")
	w.api.o.Store = w.store
	require.Contains(t, w.press(asked).is(200).Body, "hidden-17")
	all := w.audit("?resource=channel/c/message/m")
	require.Len(t, all, 1)
	require.Equal(t, "open management", all[0].Who)
}

func TestWhoCannotRevealAPayload(t *testing.T) {
	w := hiding(t, nil)
	link, _ := w.portal("k", "")
	m, err := w.store.MessageByKey(t.Context(), w.cat.Channel("c").No, "m")
	require.NoError(t, err)
	asked := w.page(onM).is(200).asks()
	w.api.o.OpenManagement = false
	owner := w.owner(link)
	job := "/ui/channel/c/consumer/k/job/" + m.Job(w.cat.Consumer("c", "k").Position).String()
	require.NotContains(t, w.page(job, owner).is(200).Body, "reveal")
	w.get(onM, owner, browser).is(401)
	r := w.press(asked, owner, "Origin: http://broker").is(401)
	require.NotContains(t, r.Body, "hidden-17")
	require.Contains(t, w.page(job, adminHeader).is(200).Body, onM)

	reads := hiding(t, func(o *ui.Options) { o.ReadOnly = true })
	require.NotContains(t, reads.page("/ui/channel/c/message/m").is(200).Body, "reveal")
	reads.get(onM, browser).is(405)
	reads.press(asked).is(405)
	shows := hiding(t, func(o *ui.Options) { o.Payloads = ui.Payloads{} })
	require.NotContains(t, shows.page("/ui/channel/c/message/m").is(200).Body, "reveal")
	shows.get(onM, browser).is(404)
	for _, w := range []*world{reads, shows} {
		require.Empty(t, w.audit("?resource=channel/c/message"))
	}
}
