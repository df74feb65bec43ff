package api

import (
	"html"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/ui"
)

// A question is the form of a page that asks before an action.
type question struct {
	reply
	action, form string
}

var hiddenFields = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// asks is the form on a page.
func (r reply) asks() question {
	r.t.Helper()
	m := regexp.MustCompile(`<form class="acts" method="post" action="([^"]*)">`).FindStringSubmatch(r.Body)
	require.Len(r.t, m, 2, r.Body)
	form := url.Values{}
	for _, field := range hiddenFields.FindAllStringSubmatch(r.Body, -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	return question{r, html.UnescapeString(m[1]), form.Encode()}
}

// press sends the form as a browser does.
func (w *world) press(q question, headers ...string) reply {
	w.t.Helper()
	if len(headers) == 0 {
		headers = []string{"Origin: http://broker", "Sec-Fetch-Site: same-origin"}
	}
	return w.do("POST", q.action, q.form, append(headers, formHeader, browser)...)
}

// doAction asks and presses.
func (w *world) doAction(path string) reply {
	w.t.Helper()
	return w.press(w.page(path).is(200).asks())
}

const onK, onC = "/ui/channel/c/consumer/k/action/", "/ui/channel/c/action/"

func (w *world) stateOf(path string) string { return w.get(path).is(200).json()["State"].(string) }

func TestAnActionOfTheDashboardChangesAStateInTwoSteps(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	w.enqueue(k, w.insert(durable.Message{}))
	const path = "/channel/c/consumer/k"
	r := w.page(onK + "pause").is(200)
	require.Equal(t, "Pause k?", r.title())
	require.Contains(t, r.Body, "1 job waits and is held.")
	require.Equal(t, "ACTIVE", w.stateOf(path), "the page changes nothing")
	q := r.asks()
	to := w.press(q).is(303).Header("Location")
	require.Equal(t, "PAUSED", w.stateOf(path))
	page := w.page(to).is(200)
	require.Contains(t, page.Body, "Done: it is paused.")
	require.Contains(t, page.Body, onK+"resume")
	require.NotContains(t, page.Body, onK+"pause")
	require.NotContains(t, w.page(strings.Replace(to, "done=pause", "done=revive", 1)).Body, "Done:",
		"the sentence has a signature")

	again := w.press(q).is(409)
	require.Contains(t, again.Body, "there is nothing to do any more")
	require.Contains(t, w.page(onK+"pause").is(200).Body, "its state is PAUSED")
	w.doAction(onK + "resume").is(303)
	require.Equal(t, "ACTIVE", w.stateOf(path))
	w.setState(k, durable.StateDead)
	to = w.doAction(onK + "revive").is(303).Header("Location")
	require.Contains(t, w.page(to).is(200).Body, "Done: it is revived.")
	require.Contains(t, w.get(path).json()["StateReason"], "revived;")

	require.Contains(t, w.page("/ui/channel/c").is(200).Body, onC+"pause")
	w.doAction(onC + "pause").is(303)
	require.Equal(t, "PAUSED", w.stateOf("/channel/c"))
	w.doAction(onC + "resume").is(303)
	require.Equal(t, "ACTIVE", w.stateOf("/channel/c"))
	for _, none := range []string{onK + "explode", onC + "purge", "/ui/channel/c/consumer/none/action/pause",
		"/ui/channel/none/action/pause", onK + "delete"} {
		w.page(none).is(404)
	}
}

func TestAnActionAsksAgainWhenTheNumberHasChanged(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("k", "pull")
	w.enqueue(k, w.insert(durable.Message{}))
	q := w.page(onK + "purge").is(200)
	require.Contains(t, q.Body, "1 waiting job would end.")
	w.enqueue(k, w.insert(durable.Message{}))
	r := w.press(q.asks()).is(409)
	require.Contains(t, r.Body, "It was 1 waiting job.")
	require.Contains(t, r.Body, "2 waiting jobs would end.")
	require.EqualValues(t, 2, w.get("/channel/c/consumer/k").json()["Queued"])
	to := w.press(r.asks()).is(303).Header("Location")
	require.Contains(t, w.page(to).is(200).Body, "Done: 2 jobs purged.")
	require.EqualValues(t, 0, w.get("/channel/c/consumer/k").json()["Queued"])
	require.Contains(t, w.page(onK+"purge").is(200).Body, "There is nothing to do.")
	require.Contains(t, w.page(onK+"retry").is(200).Body, "0 delayed jobs would be due at once.")
}

func TestOnlyAFormOfTheDashboardDoesSomething(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.consumer("other", "push")
	q := w.page(onK + "pause").is(200).asks()
	for _, from := range []string{"Origin: https://evil.example", "Origin: null", "Origin: http://localhost:3000",
		"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
		r := w.press(q, from)
		require.Contains(t, []int{303, 403}, r.Status, from)
		require.NotContains(t, r.Header("Location"), "done=", from)
	}
	for _, form := range []string{"", "bound=ACTIVE", "bound=ACTIVE&seal=x.y", "bound=ACTIVE&seal=zzzzzz.AAAA",
		strings.Replace(q.form, "ACTIVE", "PAUSED", 1), q.form + "x"} {
		r := w.press(question{q.reply, q.action, form}).is(403)
		require.Contains(t, r.Body, "Nothing was done", form)
		r.asks()
	}
	for _, other := range []string{"/ui/channel/c/consumer/other/action/pause", onC + "pause", onK + "test"} {
		w.press(question{q.reply, other, q.form}).is(403)
	}
	require.Equal(t, "ACTIVE", w.stateOf("/channel/c/consumer/k"))
	require.Equal(t, "ACTIVE", w.stateOf("/channel/c/consumer/other"))
	w.do("DELETE", onK+"pause", "").is(405)
	w.press(q).is(303)
}

func TestAnActionIsBoundToItsLogin(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) { o.OpenManagement = false })
	w.put("/channel/c", "", adminHeader).is(201)
	w.put("/channel/c/consumer/k", "type=pull", adminHeader).is(201)
	w.page(onK + "pause").is(303)
	w.do("POST", onK+"pause", "", formHeader).is(303)
	login := func() string {
		r := w.do("POST", "/ui/login", "token="+adminToken, formHeader).is(303)
		value, _, _ := strings.Cut(r.Header("Set-Cookie"), ";")
		return "Cookie: " + value
	}
	first, second := login(), login()
	own := []string{"Origin: http://broker", "Sec-Fetch-Site: same-origin"}
	q := w.page(onK+"pause", first).is(200).asks()
	require.Contains(t, w.press(q, append(own, second)...).is(403).Body, "of another login")
	w.press(q, append(own, adminHeader)...).is(403)
	require.Equal(t, "ACTIVE", w.get("/channel/c/consumer/k", adminHeader).json()["State"])
	w.press(q, append(own, first)...).is(303)
	require.Equal(t, "PAUSED", w.get("/channel/c/consumer/k", adminHeader).json()["State"])
}

func TestASecretIsRotatedAndShownOnce(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.consumer("pull", "pull")
	r := w.doAction(onK + "rotate").is(200)
	first := regexp.MustCompile("whsec_[A-Za-z0-9+/=]+").FindString(html.UnescapeString(r.Body))
	require.Greater(t, len(first), 20)
	require.NotContains(t, w.page("/ui/channel/c/consumer/k").is(200).Body, first)
	require.NotContains(t, html.UnescapeString(w.doAction(onK+"rotate").is(200).Body), first)
	require.NotContains(t, w.page("/ui/channel/c/consumer/pull").is(200).Body, "action/rotate")
	require.Contains(t, w.page("/ui/channel/c/consumer/pull/action/rotate").is(200).Body, "There is nothing to do")
}

func TestAnActionIsThatOfItsRoute(t *testing.T) {
	var lines strings.Builder
	w, _ := newUIWorld(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&lines, nil))
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Log: o.Log})
		o.Access, _ = ParseAccessLog("all")
	})
	w.channel()
	k := w.consumer("k", "pull")
	w.enqueue(k, w.insert(durable.Message{}))
	q := w.page(onK + "purge").asks()
	r := w.press(q, "Origin: http://broker", "X-Request-ID: mine").is(303)
	require.Equal(t, "mine", r.Header("X-Request-ID"))
	log := lines.String()
	for _, line := range []string{`msg="queued jobs of a consumer were purged".*request_id=mine`,
		`msg="an action was done by the dashboard" action=purge channel=c consumer=k .*request_id=mine jobs=1`,
		`route="POST /channel/{channel}/consumer/{consumer}/purge" status=200 .*request_id=mine`} {
		require.Regexp(t, line, log)
	}
	require.NotContains(t, log, adminToken)
}

func TestADashboardMayOnlyRead(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), ReadOnly: true})
	})
	w.channel()
	w.consumer("k", "push")
	for _, path := range []string{"/ui/channel/c", "/ui/channel/c/consumer/k"} {
		require.NotContains(t, w.page(path).is(200).Body, "/action/")
	}
	for _, path := range []string{onK + "pause", onC + "pause", onK + "none"} {
		require.Contains(t, w.page(path).is(405).Body, "BROKER_UI is read-only")
		require.Contains(t, w.do("POST", path, "", formHeader).is(405).Body, "method_not_allowed")
	}
	require.Equal(t, "ACTIVE", w.stateOf("/channel/c/consumer/k"))
}

func TestDeadLettersAreRedrivenByCause(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), AllowDelete: true})
	})
	w.channel()
	k := w.consumer("k", "push")
	for range 3 {
		w.kill(k, w.insert(durable.Message{}))
	}
	const dlq = "/ui/dlq?channel=c&consumer=k"
	page := w.page(dlq).is(200)
	m := regexp.MustCompile(`/action/redrive\?canary=true&amp;fingerprint=(\w+)"`).FindStringSubmatch(page.Body)
	require.Len(t, m, 2, page.Body)
	of := "?fingerprint=" + m[1]
	r := w.page(onK + "redrive?canary=true&fingerprint=" + m[1]).is(200)
	require.Contains(t, r.Body, "3 dead letters of the cause "+m[1]+" would be jobs again.")
	require.Contains(t, r.Body, "One goes first")
	w.kill(k, w.insert(durable.Message{}))
	r = w.press(r.asks()).is(409)
	require.Contains(t, r.Body, "It was 3 dead letters.")
	require.NotContains(t, w.get("/channel/c/consumer/k/redrives").is(200).Body, `"ID"`)
	to := w.press(r.asks()).is(303).Header("Location")
	require.Equal(t, "/ui/redrives?channel=c&consumer=k", to)
	redrives := w.get("/channel/c/consumer/k/redrives").is(200).Body
	require.Contains(t, redrives, `"Canary":true`)
	require.Contains(t, redrives, `"Matched":4`)
	id := regexp.MustCompile(`"ID":"(\w+)"`).FindStringSubmatch(redrives)[1]
	for _, path := range []string{to, dlq} {
		require.Contains(t, w.page(path).is(200).Body, "running, step 1", path)
	}
	require.Equal(t, "1 redrive of k under way", w.page(to).title())
	w.doAction(onK + "redrive-pause?redrive=" + id).is(303)
	require.Contains(t, w.page(to).Body, "redrive-resume?redrive="+id)
	w.doAction(onK + "redrive-resume?redrive=" + id).is(303)
	w.doAction(onK + "redrive-cancel?redrive=" + id).is(303)
	require.Contains(t, w.get("/channel/c/consumer/k/redrives").Body, `"CANCELLED"`)
	require.Contains(t, w.page(onK+"redrive-cancel?redrive="+id).is(200).Body, "its state is CANCELLED")
	w.page(onK + "redrive-pause?redrive=9").is(404)
	w.page(onK + "redrive-pause").is(404)
	w.page(onK + "redrive?fingerprint=nonsense").is(400)
	w.get(onK + "redrive?colour=red").is(400)

	w.press(question{r, onK + "delete" + of, r.asks().form}).is(403)
	w.doAction(onK + "delete" + of).is(303)
	require.Contains(t, w.page(dlq).is(200).title(), "k has no dead letters")
	require.Contains(t, w.page(onK+"redrive").is(200).Body, "There is nothing to do.")
}
