package api

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
	"github.com/penstock-broker/penstock/internal/tool/answer"
)

// pagePolicy is what each answer of the dashboard says.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// pageScript is the script of a page, with the nonce that the policy of the answer names.
var pageScript = regexp.MustCompile(`<script src="/ui/script.js" nonce="([0-9a-f]{32})"></script>`)

// newUIWorld is a world whose API has a sampler. count takes a sample.
func newUIWorld(t *testing.T, change func(*Options)) (w *world, count func()) {
	t.Helper()
	var s *sampler.Sampler
	w = newWorld(t, func(o *Options) {
		store := o.Store.(*durable.Store)
		queue := o.Lister.(*jobs.Lister).Queue.(jobs.OverviewQueue)
		s = sampler.New(sampler.Options{Counter: &jobs.Overview{Store: store, Queue: queue}, Catalogue: o.Catalogue,
			NowMs: func() int64 { return time.Now().UnixMilli() }, Log: slog.Default()})
		o.Sample = s.Latest
		if change != nil {
			change(o)
		}
	})
	return w, func() {
		t.Helper()
		require.NoError(t, w.cat.Refresh(t.Context()))
		require.NoError(t, s.Round(t.Context()))
	}
}

// page is a GET of a page of the dashboard, which loads nothing from elsewhere and has nothing inline.
func (w *world) page(path string, headers ...string) reply {
	w.t.Helper()
	r := w.get(path, append(headers, browser)...)
	policy, body := pagePolicy, r.Body
	if m := pageScript.FindStringSubmatch(body); m != nil {
		policy += "; connect-src 'self'; script-src 'nonce-" + m[1] + "'"
		if strings.Contains(body, "<iframe ") {
			policy += "; frame-src 'self'"
		}
		body = strings.Replace(body, m[0], "", 1)
	}
	require.Equal(w.t, policy, r.Header("Content-Security-Policy"), path)
	require.Equal(w.t, "nosniff", r.Header("X-Content-Type-Options"), path)
	if strings.HasPrefix(r.Header("Content-Type"), "text/html") {
		require.Equal(w.t, "no-store", r.Header("Cache-Control"))
		for _, inline := range []string{"<script", "<style", " style=", " onclick", "javascript:", "http-equiv"} {
			require.NotContains(w.t, body, inline, path)
		}
		for _, loaded := range regexp.MustCompile(`(?:src|href|action)="([^"]*)"`).FindAllStringSubmatch(r.Body, -1) {
			require.Regexp(w.t, "^(/ui/|#)", loaded[1], path)
		}
	}
	return r
}

// title is the state that a page begins with.
func (r reply) title() string {
	r.t.Helper()
	m := regexp.MustCompile(`(?s)<h1[^>]*>(.*?)</h1>`).FindStringSubmatch(r.Body)
	require.Len(r.t, m, 2, r.Body)
	return m[1]
}

// uiExchanges are the routes of the dashboard.
func uiExchanges(w *world) (out []wired) {
	const revealed = "/ui/channel/{channel}/message/{message}/action/{action}"
	m := w.insert(durable.Message{Key: "m"})
	job := m.ID.Job(w.cat.Consumer("c", "pull").Position).String()
	w.do("PUT", "/group/g", "name=g", formHeader)
	for _, r := range Routes() {
		if r.Access != AccessUI || r.Method != get || r.Path == "/ui/portal" || r.Path == "/ui/dlq/export" ||
			r.Path == revealed || r.Path == "/ui/bench/report" || strings.HasSuffix(r.Path, "/raw") {
			continue
		}
		path := strings.NewReplacer("/consumer/k", "/consumer/pull", "/job/j", "/job/"+job).Replace(example(r.Path))
		out = append(out, wired{"GET " + r.Path, "GET " + path, w.get(path).is(200)})
	}
	out = append(out, wired{"GET /ui/", "GET /ui/", w.get("/ui/", "Accept: text/event-stream").is(200)})
	binary := w.insert(durable.Message{Key: "binary", Payload: []byte{0xff}})
	require.NotEmpty(w.t, binary)
	const raw = "/ui/channel/{channel}/message/{message}/raw"
	out = append(out, wired{"GET " + raw, "GET /ui/channel/c/message/m/raw", w.get("/ui/channel/c/message/m/raw").is(200)},
		wired{"GET " + raw, "GET /ui/channel/c/message/binary/raw", w.get("/ui/channel/c/message/binary/raw").is(200)})
	out = append(out, wired{"GET /ui/bench/report", "GET /ui/bench/report",
		w.get("/ui/bench/report?report=" + benchReport).is(200)})
	linked := w.do("POST", "/channel/c/consumer/pull/portal-link", `{"TTL":"1h"}`).is(200)
	link, err := url.Parse(linked.json()["URL"].(string))
	require.NoError(w.t, err)
	out = append(out, wired{"POST /channel/{channel}/consumer/{consumer}/portal-link",
		"POST /channel/c/consumer/pull/portal-link", linked},
		wired{"GET /ui/portal", "GET /ui/portal", w.get(link.RequestURI()).is(303)})
	w.kill(w.cat.Consumer("c", "pull"), m)
	out = append(out, wired{"GET /ui/dlq/export", "GET /ui/dlq/export",
		w.get("/ui/dlq/export?channel=c&consumer=pull").is(200)})
	for route, path := range map[string]string{
		"/ui/channel/{channel}/consumer/{consumer}/action/{action}": "/ui/channel/c/consumer/pull/action/pause",
		"/ui/group/{group}/action/{action}":                         "/ui/group/g/action/pause",
		"/ui/channel/{channel}/action/{action}":                     "/ui/channel/c/action/pause"} {
		out = append(out, wired{"POST " + route, "POST " + path, w.doAction(path).is(303)})
	}
	payloads, err := ui.ParsePayloads("hide")
	require.NoError(w.t, err)
	whole := w.api.o.UI
	w.api.o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Version: "1.2.3", Payloads: payloads})
	out = append(out, wired{"GET " + revealed, "GET " + onM, w.get(onM).is(200)},
		wired{"POST " + revealed, "POST " + onM, w.doAction(onM).is(200)})
	w.api.o.UI = whole
	w.put("/producer/sender", "token=s").is(201)
	out = append(out, wired{"POST /ui/publish", "POST /ui/publish", w.do("POST", "/ui/publish",
		"channel=c&producer=sender&token=s", formHeader).is(200)})
	for _, path := range []string{"/ui/login", "/ui/logout"} {
		out = append(out, wired{"POST " + path, "POST " + path, w.do("POST", path, "token="+adminToken, formHeader).is(303)})
	}
	return out
}

func TestTheOverviewBeginsWithTheState(t *testing.T) {
	w, count := newUIWorld(t, nil)
	require.Equal(t, "The jobs are being counted", w.page("/ui/").is(200).title())
	count()
	require.Equal(t, "There is no consumer yet", w.page("/ui/").is(200).title())
	w.channel()
	k := w.consumer("k", "push")
	count()
	require.Equal(t, "All is well", w.page("/ui/").is(200).title())

	w.kill(k, w.insert(durable.Message{Payload: []byte("x")}))
	count()
	r := w.page("/ui/").is(200)
	require.Equal(t, "One consumer needs attention", r.title())
	require.Contains(t, r.Body, "1 dead letter")
	require.Contains(t, r.Body, `href="/ui/channel/c/consumer/k"`)

	w.setState(k, durable.StateDead)
	w.consumer("other", "pull")
	count()
	r = w.page("/ui/").is(200)
	require.Contains(t, r.Body, "gets nothing until it is revived")
	require.Contains(t, r.Body, `class="state bad"`)
	require.Equal(t, "One consumer on this page needs attention", w.page("/ui/consumers").is(200).title())
	require.Regexp(t, "^k: too many attempts failed", w.page("/ui/channel/c/consumer/k").is(200).title())
}

func TestTheChartsGoBackAsFarAsTheAddressSays(t *testing.T) {
	w, count := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	count()
	for _, path := range []string{"/ui/", "/ui/channel/c", "/ui/channel/c/consumer/k"} {
		for over, words := range map[string]string{"": "hour", "?over=1h": "hour", "?over=24h": "24 hours",
			"?over=7d": "7 days", "?over=30d": "30 days"} {
			r := w.page(path + over).is(200)
			require.Contains(t, r.Body, "<h2>Last "+words+"</h2>", path+over)
			rows := strings.Count(r.Body, `data-label="p99, ms"`)
			require.True(t, 55 < rows && rows < 175, "%s: %d rows", path+over, rows)
		}
		w.page(path + "?over=2h").is(400)
	}
}

func TestTheConsumersArePaged(t *testing.T) {
	w, count := newUIWorld(t, nil)
	w.channel()
	for i := range 60 {
		w.consumer("k"+string(rune('a'+i/26))+string(rune('a'+i%26)), "pull")
	}
	count()
	seen := map[string]bool{}
	pages := 0
	for path := "/ui/consumers?sort=queued"; path != ""; pages++ {
		r := w.page(path).is(200)
		for _, m := range regexp.MustCompile(`/consumer/(k\w+)"`).FindAllStringSubmatch(r.Body, -1) {
			seen[m[1]] = true
		}
		path = ""
		if m := regexp.MustCompile(`href="([^"]*)">Next page`).FindStringSubmatch(r.Body); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	require.Len(t, seen, 60)
	require.Equal(t, 2, pages)
	w.page("/ui/consumers?sort=colour").is(400)
	w.page("/ui/consumers?first=none&sort=dead").is(400)
	require.Contains(t, w.page("/ui/channel/c/consumer/none").is(404).Body, "<h1>")
}

func TestTheDashboardNeedsASessionWhereManagementIsClosed(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) { o.OpenManagement = false })
	w.put("/channel/c", "", adminHeader).is(201)
	w.put("/channel/c/consumer/k", "type=pull", adminHeader).is(201)
	for _, path := range []string{"/ui/", "/ui/consumers", "/ui/channel/c/consumer/k"} {
		r := w.page(path).is(303)
		require.True(t, strings.HasPrefix(r.Header("Location"), "/ui/login"), r.Header("Location"))
		require.Empty(t, r.Body)
	}
	require.Equal(t, "/ui/login?next="+url.QueryEscape("/ui/consumers?sort=dead"),
		w.page("/ui/consumers?sort=dead").Header("Location"))
	w.page("/ui/login").is(200)
	w.page("/ui/style.css").is(200)
	w.page("/ui/icon.svg").is(200)
	w.page("/ui/script.js").is(200)
	stream := w.get("/ui/consumers", "Accept: text/html, text/event-stream").is(200)
	require.Equal(t, "event: penstock:login\ndata: \n\n", stream.Body, "a page whose session has ended is told")
	w.page("/ui/", adminHeader).is(200)
	require.Equal(t, "/ui/", w.get("/ui").is(303).Header("Location"))

	login := func(form string, headers ...string) reply {
		return w.do("POST", "/ui/login", form, append(headers, formHeader)...)
	}
	require.Contains(t, login("token=wrong").is(403).Body, "not the admin token")
	login("").is(403)
	for _, from := range []string{"Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site",
		"Sec-Fetch-Site: same-site"} {
		require.Empty(t, login("token="+adminToken, from).is(403).Header("Set-Cookie"), from)
	}
	r := login("token="+adminToken+"&next=%2Fui%2Fconsumers", "Origin: http://broker",
		"Sec-Fetch-Site: same-origin").is(303)
	require.Equal(t, "/ui/consumers", r.Header("Location"))
	cookie := r.Header("Set-Cookie")
	for _, part := range []string{"; HttpOnly", "; SameSite=Strict", "; path=/ui", "; expires="} {
		require.Contains(t, cookie, part)
	}
	require.NotContains(t, cookie, secret)
	require.NotContains(t, strings.ToLower(cookie), "secure")
	require.Contains(t, strings.ToLower(login("token="+adminToken, "X-Forwarded-Proto: https").Header("Set-Cookie")),
		"secure")
	for _, next := range []string{"//evil.example", "https://evil.example", "/ui/\\evil", "/ui/login", "/ui/\r\n",
		"/x"} {
		require.Equal(t, "/ui/", login("token="+adminToken+"&next="+url.QueryEscape(next)).is(303).Header("Location"), next)
	}

	value, _, _ := strings.Cut(cookie, ";")
	require.Contains(t, w.page("/ui/", "Cookie: "+value).is(200).Body, "Log out")
	w.get("/channels", "Cookie: "+value).problem(401, "token_missing")
	for _, forged := range []string{"penstock_ui=", "penstock_ui=x", "penstock_ui=zzzzzzzz-A.B", value + "x",
		strings.Replace(value, "penstock_ui=", "penstock_ui=z", 1), "penstock_ui=" + strings.Repeat("a", 1000)} {
		w.page("/ui/", "Cookie: "+forged).is(303)
	}
	r = w.do("POST", "/ui/logout", "", "Cookie: "+value).is(303)
	require.Contains(t, r.Header("Set-Cookie"), "penstock_ui=;")
}

func TestASessionIsGoodForBrokersWithTheSameTokenAndKey(t *testing.T) {
	dashboard := func(token, key string) func(*Options) {
		return func(o *Options) {
			o.OpenManagement, o.AdminToken = false, token
			o.UI = ui.New(ui.Options{AdminToken: token, Key: []byte(key)})
		}
	}
	first, _ := newUIWorld(t, dashboard(adminToken, "one"))
	r := first.do("POST", "/ui/login", "token="+adminToken, formHeader).is(303)
	value, _, _ := strings.Cut(r.Header("Set-Cookie"), ";")
	for _, other := range []struct {
		token, key string
		status     int
	}{{adminToken, "one", 200}, {secret + "-new", "one", 303}, {adminToken, "two", 303}, {"", "one", 303}} {
		w, _ := newUIWorld(t, dashboard(other.token, other.key))
		w.page("/ui/", "Cookie: "+value).is(other.status)
	}
	none, _ := newUIWorld(t, dashboard("", "one"))
	require.Contains(t, none.page("/ui/login").is(200).Body, "has no admin token")
	none.do("POST", "/ui/login", "token=", formHeader).is(403)
}

func TestFailedLoginsAreBounded(t *testing.T) {
	w, _ := newUIWorld(t, func(o *Options) { o.OpenManagement = false })
	var r reply
	for range 30 { // more than two minutes' worth
		if r = w.do("POST", "/ui/login", "token=wrong", formHeader); r.Status == 429 {
			break
		}
		r.is(403)
	}
	r.is(429)
	require.Equal(t, "60", r.Header("Retry-After"))
}

// A page of another site that reaches the broker under a name of its own (DNS rebinding) sees the login.
func TestAnOpenDashboardIsOpenUnderTheBrokersNamesOnly(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.page("/ui/").is(200)
	w.page("/ui/", "Origin: http://evil.example").is(303)
	w.page("/ui/", "Sec-Fetch-Site: cross-site").is(303)
}

func TestTheRootLeadsABrowserToTheDashboard(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	r := w.get("/", browser).is(303)
	require.Equal(t, "/ui/", r.Header("Location"))
	require.Equal(t, "Accept", r.Header("Vary"))
	require.Equal(t, "Penstock", w.get("/").is(200).json()["Name"])
}

func TestThereMayBeNoDashboard(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.UI = nil })
	for _, path := range []string{"/ui", "/ui/", "/ui/login", "/ui/style.css"} {
		w.get(path).problem(404, "no_such_path")
	}
}

// brokenStore is a store that does not answer what pages ask.
type brokenStore struct{ *durable.Store }

func (brokenStore) History(context.Context, durable.HistoryScope, uint32, int, int64, int64) ([]durable.HistoryRow,
	error) {
	return nil, durable.ErrFailed
}

func TestPagesAreShownWithoutAStore(t *testing.T) {
	w, count := newUIWorld(t, func(o *Options) {
		o.Store = brokenStore{o.Store.(*durable.Store)}
	})
	w.channel()
	w.consumer("k", "pull")
	count()
	require.Equal(t, "The store does not answer", w.page("/ui/").is(200).title())
	require.Contains(t, w.page("/ui/channel/c/consumer/k").is(200).Body, "The history cannot be read now.")
	w.mini.Close()
	require.Contains(t, w.page("/ui/channel/c/consumer/k").is(200).Body, "queue_restoring")
}

var _ ui.Source = pages{}

func TestAMessageIsShownWithWhatBecameOfIt(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	push, pull := w.consumer("push", "push"), w.consumer("pull", "pull")
	m := w.insert(durable.Message{Key: "order-17", ContentType: "application/json", Priority: 5,
		Payload: []byte(`{"id":820982911946154508,"total":129.00}`), Headers: []byte("x-tenant:eu<7>\n")})
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: push.No, ID: m.ID, Attempts: 1,
		AtMs: m.ID.Millis() + 5, StatusCode: 503, Error: "answered 503", Answer: []byte("<busy>"), DurationMs: 22,
		Tracked: true})
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: push.No, ID: m.ID, Attempts: 2,
		AtMs: m.ID.Millis() + 9, StatusCode: 204, Tracked: true})
	w.kill(pull, m)
	for _, path := range []string{"/ui/channel/c/message/order-17", "/ui/channel/c/message/" + m.ID.String()} {
		r := w.page(path).is(200)
		require.Equal(t, "1 of 2 consumers have it", r.title())
		for _, text := range []string{"attempt 1 was answered 503 in 22 ms", "&lt;busy&gt;", "820982911946154508", "129.00",
			"eu&lt;7&gt;", "curl -s &#39;http://broker/channel/c/message/order-17&#39;", jobPath(pull, m), "A dead letter"} {
			require.Contains(t, r.Body, text)
		}
	}
	r := w.page("/ui" + jobPath(pull, m)).is(200)
	require.Equal(t, "pull: a dead letter", r.title())
	require.Contains(t, r.Body, "became a dead letter")
	require.Contains(t, w.page("/ui/channel/c/message/order-17?as=hex").Body, "7b 22 69 64")
	for _, path := range []string{"/ui/channel/c/message/none", "/ui/channel/none/message/m",
		"/ui/channel/c/consumer/push/job/x", "/ui/channel/c/consumer/none/job/" + m.ID.String(),
		"/ui" + strings.Replace(jobPath(pull, m), "/pull/", "/push/", 1)} {
		w.page(path).is(404)
	}
	w.page("/ui/channel/c/message/order-17?first=nothing").is(400)
}

func TestTheDashboardHidesPayloads(t *testing.T) {
	payloads, err := ui.ParsePayloads("show,$.card")
	require.NoError(t, err)
	w, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Payloads: payloads})
	})
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "m", Payload: []byte(`{"a":1,"card":{"number":"4111"}}`)})
	w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: 1, AtMs: m.ID.Millis() + 5,
		StatusCode: 400, Error: "answered 400", Answer: []byte(`no card 4111`), DurationMs: 22, Tracked: true})
	for _, path := range []string{"/ui/channel/c/message/m", "/ui/channel/c/message/m?as=text",
		"/ui/channel/c/message/m?as=hex", "/ui" + jobPath(k, m)} {
		r := w.page(path).is(200)
		require.NotContains(t, r.Body, "4111", path)
		require.NotContains(t, r.Body, "34 31 31 31", path)
		require.Contains(t, r.Body, "&#34;a&#34;: 1", path)
	}
}

func TestListsOfTheDashboard(t *testing.T) {
	w, count := newUIWorld(t, nil)
	w.channel()
	require.Equal(t, "There are no dead letters", w.page("/ui/dlq").is(200).title())
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "order-17"})
	w.kill(k, m)
	count()
	require.Equal(t, "1 dead letter of 1 consumer", w.page("/ui/dlq").is(200).title())
	require.Contains(t, w.page("/ui/dlq?channel=c&consumer=k").is(200).Body, m.ID.Job(k.Position).String())
	require.Equal(t, "One channel needs attention", w.page("/ui/channels").is(200).title())
	r := w.page("/ui/channel/c").is(200)
	require.Contains(t, r.Body, "/ui/channel/c/message/order-17")
	require.Contains(t, r.Body, "/ui/channel/c/consumer/k")
	w.page("/ui/channel/none").is(404)

	require.Equal(t, "No scheduled message of c waits", w.page("/ui/scheduled?channel=c").is(200).title())
	for i := range 60 {
		w.plan(durable.Scheduled{DueMs: time.Now().Add(time.Duration(i+1) * time.Hour).UnixMilli()})
	}
	r = w.page("/ui/scheduled?channel=c").is(200)
	require.Regexp(t, "^The next message of c is due at ", r.title())
	next := regexp.MustCompile(`href="([^"]*)">Next page`).FindStringSubmatch(r.Body)
	require.Len(t, next, 2)
	require.Equal(t, 11, strings.Count(w.page(strings.ReplaceAll(next[1], "&amp;", "&")).is(200).Body, "<tr>"))
	require.Contains(t, w.page("/ui/scheduled").is(200).Body, "/ui/scheduled?channel=c")
	w.page("/ui/scheduled?channel=none").is(404)

	w.bulk()
	require.Contains(t, w.page("/ui/bulks?channel=c").is(200).Body, "<td")
	require.Equal(t, "No replay is under way", w.page("/ui/replays").is(200).title())
	require.Equal(t, "k has no replays", w.page("/ui/replays?channel=c&consumer=k").is(200).title())
	w.page("/ui/brokers").is(200)
}

func TestASearchFindsIDsAndNames(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("billing", "push")
	m := w.insert(durable.Message{Key: "order-17"})
	for q, found := range map[string]string{"bill": "/ui/channel/c/consumer/billing", "C": "/ui/channel/c",
		"order-17": "/ui/channel/c/message/order-17", "c/order-17": "/ui/channel/c/message/order-17",
		m.ID.String(): "/ui/channel/c/message/order-17", m.ID.Job(k.Position).String(): "/ui" + jobPath(k, m)} {
		require.Contains(t, w.page("/ui/search?q="+url.QueryEscape(q)).is(200).Body, `href="`+found+`"`, q)
	}
	for _, q := range []string{"nothing", "<b>", "none/order-17", ident.AtMillis(1).String(), strings.Repeat("x", 5000)} {
		r := w.page("/ui/search?q=" + url.QueryEscape(q)).is(200)
		require.Equal(t, "Nothing has this ID or name", r.title(), q)
		require.NotContains(t, r.Body, "<b>\"")
	}
	require.Equal(t, "Search for an ID, a name or by terms", w.page("/ui/search").is(200).title())
}

func TestASearchByTermsFindsMessagesAndJobs(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("billing", "pull")
	old := w.insert(durable.Message{Key: "old", Payload: []byte(`{"order": 17}`)})
	young := w.insert(durable.Message{Key: "young", Payload: []byte(`{"order": 18}`)})
	w.kill(k, old)
	search := func(q string) reply { return w.page("/ui/search?q=" + url.QueryEscape(q)).is(200) }
	message := func(m durable.Message) string { return `href="/ui/channel/c/message/` + m.Key + `"` }
	job := func(m durable.Message) string { return `href="/ui` + jobPath(k, m) + `"` }
	// as the page of the search shows it
	all := `consumer:billing state:dead age<1h error:answered payload:": 17" producer:p`
	require.Contains(t, search(all).Body, message(old))
	for q, want := range map[string]struct {
		title      string
		has, lacks string
		looked     string
	}{
		"channel:c":                    {"Two messages fit", message(young), "Look further", "Looked at 2 messages of c"},
		"producer:p":                   {"Two messages fit", message(old), "Look further", "Looked at 2 messages of c"},
		`payload:"order\": 17"`:        {"One message fits", message(old), message(young), "Looked at 2 messages of c"},
		`payload:order:17`:             {"No message fits", "payload", message(old), "Looked at 2 messages of c"},
		`payload:": 17"`:               {"One message fits", message(old), message(young), "Looked at 2 messages of c"},
		"consumer:billing state:dead":  {"One message fits", message(old), message(young), "Looked at 2 messages of c"},
		"state:queued":                 {"One message fits", message(young), message(old), "Looked at 2 messages of c"},
		"error:ANSWERED":               {"One job fits", job(old), job(young), "Looked at 1 dead letter of c / billing"},
		"error:timeout":                {"No job fits", "dead letter", job(old), "Looked at 1 dead letter of c / billing"},
		"error:answered payload:17":    {"One message fits", message(old), message(young), "Looked at 2 messages of c"},
		"error:answered payload:18":    {"No message fits", "payload", message(old), "Looked at 2 messages of c"},
		"error:answered age>1h":        {"No job fits", "dead letter", job(old), "Looked at 1 dead letter of c / billing"},
		"age<1h":                       {"Two messages fit", message(old), "Look further", "Looked at 2 messages of c"},
		"age>1h":                       {"No message fits", "age", message(old), "Looked at 0 messages of c"},
		"channel:none":                 {"This search cannot be made", "channel", message(old), "There is no"},
		"producer:none":                {"This search cannot be made", "producer", message(old), "names no producer"},
		"consumer:none":                {"Nothing fits", "none", message(old), "There is no consumer none."},
		"state:dead order-17":          {"This search cannot be read", "order-17", message(old), "is no term"},
		`consumer:c/billing error:"`:   {"This search cannot be read", "billing", message(old), "has no end"},
		"channel:c consumer:c/billing": {"Two messages fit", message(old), "Look further", "Looked at 2 messages of c"},
		"consumer:billing error:<b> ":  {"No job fits", "&lt;b&gt;", "<b>", "Looked at 1 dead letter"},
	} {
		r := search(q)
		require.Equal(t, want.title, r.title(), q)
		require.Contains(t, r.Body, want.has, q)
		require.NotContains(t, r.Body, want.lacks, q)
		require.Contains(t, r.Body, want.looked, q)
	}
	require.Contains(t, search("state:dead").Body, `<option value="state:dead consumer:c/billing">`)

	w.consumer("mail", "push")
	r := search("state:dead")
	require.Equal(t, "Of which consumer?", r.title())
	require.Contains(t, r.Body, `href="/ui/search?q=state%3Adead&#43;consumer%3Ac%2Fmail"`)
	w.put("/channel/other", "token=t").is(201)
	r = search("payload:x")
	require.Equal(t, "Of which channel?", r.title())
	require.Contains(t, r.Body, "payload%3Ax&#43;channel%3Aother")
}

func TestASearchByTermsGoesOnWhereAPageIsFull(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("billing", "pull")
	for i := range 120 {
		w.kill(k, w.insert(durable.Message{Key: fmt.Sprint("m", i)}))
	}
	for q, row := range map[string]string{"error:answered": `<td data-label="State">`, "state:dead": `/message/m`} {
		at, seen := "/ui/search?q="+url.QueryEscape(q), 0
		for pages := 1; at != ""; pages++ {
			r := w.page(at).is(200)
			n := strings.Count(r.Body, row)
			require.LessOrEqual(t, n, 50)
			seen += n
			_, rest, more := strings.Cut(r.Body, `<a class="push" href="`)
			require.Equal(t, pages < 3, more, "%s page %d", q, pages)
			if at = ""; more {
				link, _, _ := strings.Cut(rest, `"`)
				at = html.UnescapeString(link)
			}
		}
		require.Equal(t, 120, seen, q)
	}
}

func TestHiddenPayloadsAreNotSearched(t *testing.T) {
	payloads, err := ui.ParsePayloads("show,$.card")
	require.NoError(t, err)
	w, _ := newUIWorld(t, func(o *Options) {
		o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Payloads: payloads})
	})
	w.channel()
	w.insert(durable.Message{Key: "m", Payload: []byte(`{"card":"4000"}`)})
	r := w.page("/ui/search?q=payload:4000").is(200)
	require.Contains(t, r.Body, "BROKER_UI_PAYLOADS hides payloads")
	require.NotContains(t, r.Body, "/message/m")
}

// A file of dead letters is made in memory that counts, so many at once are refused before they are made.
func TestFilesOfDeadLettersAreMadeInABoundedMemory(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	const file = "/ui/dlq/export?channel=c&consumer=k"
	w.page(file).is(200)
	require.Zero(t, w.api.o.Answers.Taken(), "it is given back")
	w.api.o.Answers = answer.NewBound(4 << 20)
	w.page(file).is(503)
}

func TestDeadLettersAreAFile(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	const file = "/ui/dlq/export?channel=c&consumer=k"
	require.Empty(t, w.page(file).is(200).Body)
	for i := range 130 {
		w.kill(k, w.insert(durable.Message{Key: fmt.Sprint("m", i), Payload: []byte("a payload")}))
	}
	r := w.page(file).is(200)
	require.Equal(t, `attachment; filename="dead-letters.ndjson"`, r.Header("Content-Disposition"))
	require.Equal(t, apitype.MediaLines, r.Header("Content-Type"))
	lines := strings.Split(strings.TrimSpace(r.Body), "\n")
	require.Len(t, lines, 130)
	for i, line := range lines {
		var j apitype.Job
		strictjson.Decode(t, []byte(line), &j)
		require.Equal(t, fmt.Sprint("/channel/c/message/m", i), j.MessageURL)
		require.Equal(t, "DEAD", j.Status)
	}
	require.NotContains(t, r.Body, "a payload")
	page := w.page("/ui/dlq?channel=c&consumer=k").is(200)
	require.Contains(t, page.Body, `href="/ui/dlq/export?channel=c&amp;consumer=k"`)
	m := regexp.MustCompile(`href="(/ui/dlq/export\?[^"]*fingerprint=[^"]*)"`).FindStringSubmatch(page.Body)
	require.Len(t, m, 2)
	require.Equal(t, 130, strings.Count(w.page(html.UnescapeString(m[1])).is(200).Body, "\n"))
	require.Empty(t, w.page(file+"&fingerprint=0123456789abcdef").is(200).Body)
	for path, status := range map[string]int{"/ui/dlq/export": 404, "/ui/dlq/export?channel=c": 404,
		"/ui/dlq/export?channel=c&consumer=none": 404, file + "&fingerprint=x": 400} {
		require.Equal(t, status, w.page(path).Status, path)
	}
}
