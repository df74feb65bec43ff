package api

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// portal asks for a link to the pages of a consumer, and returns its path and end.
func (w *world) portal(consumer, body string) (link string, until time.Time) {
	w.t.Helper()
	r := w.do("POST", "/channel/c/consumer/"+consumer+"/portal-link", body, "X-Broker-Admin-Token: "+adminToken).is(200)
	var p apitype.PortalLink
	require.NoError(w.t, json.Unmarshal([]byte(r.Body), &p))
	u, err := url.Parse(p.URL)
	require.NoError(w.t, err)
	require.Equal(w.t, "http://broker", u.Scheme+"://"+u.Host)
	return u.RequestURI(), p.ExpiresAt.Time
}

// owner takes a link, and returns the header with its cookie.
func (w *world) owner(link string) string {
	w.t.Helper()
	r := w.get(link, browser).is(303)
	require.Equal(w.t, "/ui/channel/c/consumer/k", r.Header("Location"))
	cookie := r.Header("Set-Cookie")
	for _, said := range []string{"penstock_portal=", "; HttpOnly", "; SameSite=Lax", "; path=/ui", "expires="} {
		require.Contains(w.t, cookie, said)
	}
	value, _, _ := strings.Cut(cookie, ";")
	return "Cookie: " + value
}

func TestAPortalLinkOpensThePagesOfItsConsumerAlone(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	other := w.consumer("other", "push")
	m := w.insert(durable.Message{Key: "m", Payload: []byte(`{"order":17}`)})
	w.kill(k, m)
	w.kill(other, m)
	w.api.o.OpenManagement = false
	w.get("/ui/channel/c/consumer/k", browser).is(303)
	link, until := w.portal("k", `{"TTL":"2h"}`)
	require.WithinRange(t, until, time.Now().Add(2*time.Hour-2*time.Minute), time.Now().Add(2*time.Hour))
	cookie := w.owner(link)

	const dlq, redrives, replays = "/ui/dlq?channel=c&consumer=k", "/ui/redrives?channel=c&consumer=k",
		"/ui/replays?channel=c&consumer=k"
	for _, path := range []string{"/ui/channel/c/consumer/k", "/ui" + jobPath(k, m), dlq, redrives, replays, onK + "pause",
		onK + "redrive"} {
		r := w.page(path, cookie).is(200)
		for _, link := range uiLinks(r.Body) { // each leads to something that is opened
			require.Contains(t, []int{200, 303}, w.get(link, cookie, browser).Status, "%s of %s", link, path)
		}
		require.NotContains(t, r.Body, "other", path)
		require.NotContains(t, r.Body, "purge", path)
		require.NotContains(t, r.Body, "rotate", path)
		require.NotContains(t, r.Body, `action="/ui/search"`, path)
	}
	require.Equal(t, "/ui/channel/c/consumer/k", w.get("/ui/", cookie, browser).is(303).Header("Location"))
	for _, path := range []string{"/ui/channels", "/ui/channel/c", "/ui/consumers", "/ui/channel/c/consumer/other",
		"/ui" + jobPath(other, m), "/ui/channel/c/message/m", "/ui/dlq", "/ui/dlq?channel=c",
		"/ui/dlq?channel=c&consumer=other",
		"/ui/redrives?channel=c&consumer=other", "/ui/dlq/export?channel=c&consumer=other",
		"/ui/replays", "/ui/scheduled?channel=c", "/ui/bulks", "/ui/brokers",
		"/ui/publish?channel=c", "/ui/search?q=m", onK + "purge", onK + "rotate", onC + "pause",
		"/ui/channel/c/consumer/other/action/pause", "/ui/dlq?channel=c&consumer=other&channel=c&consumer=k"} {
		r := w.get(path, cookie, browser).is(401)
		require.Contains(t, r.Body, "token_missing", path)
		require.NotContains(t, r.Body, "order", path)
	}
	w.get("/channel/c/consumer/k", cookie).is(401)
	w.get("/channels", cookie).is(401)

	asked := w.page(onK+"pause", cookie).is(200).asks()
	w.press(asked, cookie, "Origin: http://broker", "Sec-Fetch-Site: same-origin").is(303)
	require.Equal(t, durable.StatePaused, w.cat.Consumer("c", "k").State)
	w.press(w.page(onK+"resume", cookie).is(200).asks(), cookie, "Origin: http://evil").is(403)
	w.press(w.page(onK+"resume", cookie).is(200).asks(), "Sec-Fetch-Site: same-origin").is(303) // to the login
	second, _ := w.portal("k", "")
	w.press(w.page(onK+"resume", cookie).is(200).asks(), w.owner(second), "Sec-Fetch-Site: same-origin").is(403)
	require.Equal(t, durable.StatePaused, w.cat.Consumer("c", "k").State, "none of them did anything")
}

var linkOnPage = regexp.MustCompile(`href="(/ui/[^"#]*)"`)

// uiLinks are the pages to which a page leads.
func uiLinks(body string) (out []string) {
	for _, m := range linkOnPage.FindAllStringSubmatch(body, -1) {
		out = append(out, strings.ReplaceAll(m[1], "&amp;", "&"))
	}
	return out
}

func TestAPortalLinkEndsWithItsConsumerAndIsNoOther(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.consumer("other", "push")
	w.api.o.OpenManagement = false
	link, _ := w.portal("k", "{}")
	cookie := w.owner(link)
	const page = "/ui/portal"
	for _, wrong := range []string{page, page + "?link=", page + "?link=x", page + "?link=" + strings.Repeat("x", 3000),
		link[:len(link)-1], link + "x", strings.Replace(link, "link=", "link=A", 1), page + "?link=....",
		page + "?link=." + adminToken} {
		r := w.get(wrong, browser).is(410)
		require.Contains(t, r.Body, "link_invalid", wrong)
		require.Empty(t, r.Header("Set-Cookie"), wrong)
	}
	of := func(consumer, token string, ttl time.Duration) ui.PortalOf {
		return ui.PortalOf{Channel: "c", Consumer: consumer, No: w.cat.Consumer("c", "k").No, Token: token,
			Until: time.Now().Add(ttl)}
	}
	ended := w.api.o.UI.PortalLink(of("k", secret+"-k", -time.Second))
	w.get(ended, browser).is(410)
	elsewhere := w.api.o.UI.PortalLink(of("other", secret+"-other", time.Hour))
	w.get(elsewhere, browser).is(410)
	w.get(w.api.o.UI.PortalLink(of("k", "", time.Hour)), browser).is(410)

	admin := "X-Broker-Admin-Token: " + adminToken
	w.do("DELETE", "/channel/c/consumer/k", "", admin).is(204)
	require.Contains(t, w.get("/ui/channel/c/consumer/k", cookie, browser).is(410).Body, "link_invalid")
	w.do("PUT", "/channel/c/consumer/k", "type=pull", admin, formHeader).is(201)
	w.get("/ui/channel/c/consumer/k", cookie, browser).is(410)
	w.get(link, browser).is(410)
	r := w.get("/ui/channel/c/consumer/k", cookie, "Accept: text/event-stream").is(200)
	require.Contains(t, r.Body, "penstock:login", "an open page asks again, and is told")

	for body, code := range map[string]string{`{"TTL":"59m"}`: "invalid_ttl", `{"TTL":"25h"}`: "invalid_ttl",
		`{"TTL":"soon"}`: "invalid_ttl", `{"TTL":4}`: "invalid_body", `{"Ttl":"4h"}`: "", `{"For":"4h"}`: "invalid_body",
		"TTL=4h": "invalid_body", "[]": "invalid_body"} {
		r := w.do("POST", "/channel/c/consumer/k/portal-link", body, admin)
		if code == "" {
			r.is(200)
			continue
		}
		r.is(400)
		require.Contains(t, r.Body, `"`+code+`"`, body)
	}
	w.do("POST", "/channel/c/consumer/none/portal-link", "", admin).is(404)
	w.do("POST", "/channel/c/consumer/k/portal-link", "").is(401)
}

func TestThePagesOfAPortalMayBeInTheFramesOfTheSetting(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Frames: []string{"https://app.example",
			"https://b.example:8443"}})
		o.PublicURL = "https://broker.example/at"
	})
	w.channel()
	w.consumer("k", "push")
	r := w.do("POST", "/channel/c/consumer/k/portal-link", "").is(200)
	require.Contains(t, r.Body, `"URL":"https://broker.example/at/ui/portal?link=`)
	w.api.o.OpenManagement = false
	_, link, _ := strings.Cut(r.json()["URL"].(string), "/at")
	const tls = "X-Forwarded-Proto: https"
	cookie := w.get(link, browser, tls).is(303).Header("Set-Cookie")
	for _, said := range []string{"; secure", "; SameSite=None", "; Partitioned"} {
		require.Contains(t, cookie, said)
	}
	value, _, _ := strings.Cut(cookie, ";")
	const allowed = "frame-ancestors https://app.example https://b.example:8443;"
	for path, status := range map[string]int{"/ui/channel/c/consumer/k": 200, "/ui/channels": 401} {
		require.Contains(t, w.get(path, browser, "Cookie: "+value).is(status).Header("Content-Security-Policy"), allowed)
	}
	w.api.o.OpenManagement = true
	require.Contains(t, w.get("/ui/channel/c/consumer/k", browser).is(200).Header("Content-Security-Policy"),
		"frame-ancestors 'none'", "the pages of everybody else")
}

// A link that was made with an API token opens nothing once that token has ended, or no longer opens its consumer.
func TestAPortalLinkEndsWithTheAPITokenThatMadeIt(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.api.o.OpenManagement = false
	w.put("/group/g", "", adminHeader).is(200)
	w.put("/group/h", "", adminHeader).is(201)
	for _, word := range []string{"channel:c", "group:g", "consumer:c/k"} {
		w.put("/channel/c", "group=g", adminHeader).is(200)
		token, id := w.token(word)
		r := w.post("/channel/c/consumer/k/portal-link", bearer(token)).is(200).json()
		u, err := url.Parse(r["URL"].(string))
		require.NoError(t, err)
		cookie := w.owner(u.RequestURI())
		w.page("/ui/channel/c/consumer/k", cookie).is(200)
		forged := strings.Replace(u.RequestURI(), "."+id+".", ".aaaaaaaaaa.", 1)
		w.get(forged, browser).is(410)
		w.put("/channel/c", "group=h", adminHeader).is(200)
		if word == "group:g" {
			w.get("/ui/channel/c/consumer/k", cookie, browser).is(410)
			w.put("/channel/c", "group=g", adminHeader).is(200)
		}
		w.page("/ui/channel/c/consumer/k", cookie).is(200)
		w.do("DELETE", "/tokens/"+id, "", adminHeader).is(204)
		w.get("/ui/channel/c/consumer/k", cookie, browser).is(410)
		w.get(u.RequestURI(), browser).is(410)
	}
}

func TestAPortalLinkEndsWithTheTokenOfItsConsumer(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.api.o.OpenManagement = false
	link, _ := w.portal("k", "")
	cookie := w.owner(link)
	w.put("/channel/c/consumer/k", "name=Other", adminHeader).is(200)
	asked := w.page(onK+"pause", cookie).is(200).asks()
	w.put("/channel/c/consumer/k", "token="+secret+"-new", adminHeader).is(200)
	require.Contains(t, w.get("/ui/channel/c/consumer/k", cookie, browser).is(410).Body, "link_invalid")
	w.get(link, browser).is(410)
	w.press(asked, cookie, "Origin: http://broker", "Sec-Fetch-Site: same-origin").is(410)
	require.Equal(t, durable.StateActive, w.cat.Consumer("c", "k").State)
	second, _ := w.portal("k", "")
	w.page("/ui/channel/c/consumer/k", w.owner(second)).is(200)
}
