package main

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// uiPolicy is the policy of each answer of the dashboard.
const uiPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; " +
	"base-uri 'none'"

// page is a page of the dashboard as a browser gets it.
func (p *process) page(path string, headers ...string) reply {
	p.t.Helper()
	r := p.do("GET", path, "", append(headers, "Accept", "text/html,*/*;q=0.8")...)
	policy, _, _ := strings.Cut(r.header.Get("Content-Security-Policy"), "; connect-src 'self'; script-src 'nonce-")
	if strings.HasPrefix(path, "/ui/bench/report") {
		require.True(p.t, strings.HasSuffix(policy, "; sandbox"), policy)
		return r
	}
	if strings.HasSuffix(path, "/raw") {
		require.True(p.t, strings.HasPrefix(policy, "sandbox; default-src 'none'; "), policy)
		return r
	}
	require.Equal(p.t, uiPolicy, policy, "%s: %s", path, r.body)
	return r
}

var uiLink = regexp.MustCompile(`href="(/ui/[^"]*)"`)

// walkPages follows each link of the dashboard from a page on, and returns the pages by path.
func (p *process) walkPages(from string) map[string]string {
	p.t.Helper()
	seen, open := map[string]string{}, []string{from}
	for len(open) > 0 {
		path := open[0]
		open = open[1:]
		if _, ok := seen[path]; ok {
			continue
		}
		r := p.page(path)
		require.Equal(p.t, 200, r.status, "%s: %s", path, r.body)
		seen[path] = r.body
		for _, m := range uiLink.FindAllStringSubmatch(r.body, -1) {
			if !strings.Contains(m[1], "since=") { // a time, another one on each page
				open = append(open, strings.ReplaceAll(m[1], "&amp;", "&"))
			}
		}
	}
	return seen
}

func TestTheDashboardShowsABrokerWithData(t *testing.T) {
	parallel(t)
	failing := newSink(t, func(int, received) int { return 503 })
	p := embeddedWorld(t).with(quick...).start()
	p.sample("billing="+failing.URL, "pull")
	p.publish(`{"order":1}`)
	eventually(t, "a page with the dead letter", func() bool {
		return strings.Contains(p.page("/ui/").body, "One consumer needs attention")
	})
	r := p.page("/ui/")
	require.Contains(t, r.body, "/ui/channel/c/consumer/billing")
	require.Contains(t, r.body, "The endpoint answers 503")
	require.Contains(t, r.body, `aria-label="Messages per second over the last hour`)
	r = p.page("/ui/channel/c/consumer/billing")
	require.Equal(t, 200, r.status)
	require.Contains(t, r.body, "answers 503")
	require.NotContains(t, r.body, "billing-token")
	seen := p.walkPages("/ui/")
	for _, path := range []string{"/ui/consumers", "/ui/channel/c/consumer/pull", "/ui/style.css"} {
		require.Contains(t, seen, path)
	}
	require.Equal(t, "/ui/", p.do("GET", "/", "", "Accept", "text/html").header.Get("Location"))
	require.Contains(t, p.do("GET", "/", "").body, `"Name":"Penstock"`)
	runPage(t, p, "docs/dashboard.md")
}

func TestTheDashboardNeedsTheAdminToken(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start("BROKER_OPEN_MANAGEMENT=false")
	require.Equal(t, 303, p.page("/ui/consumers").status)
	const form = "application/x-www-form-urlencoded"
	login := func(p *process, token string) reply {
		return p.do("POST", "/ui/login", url.Values{"token": {token}, "next": {"/ui/consumers"}}.Encode(),
			"Content-Type", form, "Origin", p.base, "Sec-Fetch-Site", "same-origin")
	}
	require.Equal(t, 403, login(p, "wrong").status)
	r := login(p, adminToken)
	require.Equal(t, 303, r.status, r.body)
	require.Equal(t, "/ui/consumers", r.header.Get("Location"))
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	require.NotContains(t, cookie, adminToken)
	require.Equal(t, 200, p.page("/ui/consumers", "Cookie", cookie).status)
	requireProblem(t, p.do("GET", "/channels", "", "Cookie", cookie), 401, "token_missing")
	require.NotContains(t, p.log.String(), adminToken)
	p.stop()

	again := w.start("BROKER_OPEN_MANAGEMENT=false") // the key outlives the process
	require.Equal(t, 200, again.page("/ui/", "Cookie", cookie).status)
	again.stop()
	other := w.start("BROKER_OPEN_MANAGEMENT=false", "BROKER_ADMIN_TOKEN=another-admin-token")
	require.Equal(t, 303, other.page("/ui/", "Cookie", cookie).status)
}

func TestTheDashboardCanBeRemoved(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_UI=off")
	requireProblem(t, p.do("GET", "/ui/", ""), 404, "no_such_path")
	require.Contains(t, p.do("GET", "/", "", "Accept", "text/html").body, "<!DOCTYPE html>")
}

// dashboardWithData starts a broker with everything that the dashboard shows, and returns the pages of it.
func dashboardWithData(t *testing.T) (p *process, pages []string) {
	t.Helper()
	failing := newSink(t, func(int, received) int { return 503 })
	fine := newSink(t, func(int, received) int { return 204 })
	p = embeddedWorld(t).with(quick...).start("BROKER_RETRY_BACKOFF=100ms,1h", "BROKER_NO_WORKER_AFTER=1s",
		"BROKER_UI_BENCH="+benchReports(t))
	p.put("/producer/shop", "token", "p-token", "name", "The Shop")
	for _, ch := range []string{"orders", "payments", "mails"} {
		p.put("/channel/"+ch, "token", "c-token")
	}
	p.put("/group/shops", "name", "All shops", "maxChannels", "20", "publishRate", "1000/1s")
	p.put("/group/closed", "name", "Closed")
	require.Equal(t, 200, p.do("POST", "/group/closed/pause", "").status)
	p.put("/channel/orders", "group", "shops")
	p.put("/channel/orders/consumer/billing", "token", "k", "callbackUrl", failing.URL+"/hooks/v1/billing",
		"maxRetries", "1")
	p.put("/channel/orders/consumer/search", "token", "k", "callbackUrl", fine.URL, "responses", "store")
	p.put("/channel/orders/consumer/exports", "token", "k", "type", "pull", "maxAge", "1s")
	p.put("/channel/orders/consumer/retrying", "token", "k", "callbackUrl", failing.URL+"/slow", "maxRetries", "5")
	p.put("/channel/payments/consumer/ledger-of-a-long-name-that-goes-on-and-on", "token", "k", "callbackUrl", fine.URL,
		"ordered", "true")
	as := []string{"X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token",
		"p-token"}
	send := func(channel, body string, more ...string) {
		t.Helper()
		r := p.do("POST", "/channel/"+channel+"/broadcast", body, append(append([]string{"Content-Type", "application/json"},
			as...), more...)...)
		require.Contains(t, []int{201, 202}, r.status, r.body)
	}
	send("orders", `{"id":820982911946154508,"total":129.00,"currency":"PLN","card":{"number":"4111"}}`,
		"X-Broker-Message-ID", "order-17", "X-Broker-Metadata-Headers", "X-Tenant", "X-Tenant", "eu-7")
	for i := range 30 {
		send("orders", fmt.Sprintf(`{"n":%d}`, i))
		send("payments", fmt.Sprintf("payment %d", i))
	}
	send("orders", "later", "X-Broker-Scheduled-For", time.Now().Add(5*time.Hour).Format(time.RFC3339))
	r := p.do("POST", "/channel/orders/bulk", `{"Payload":"a"}`+"\n"+`{"Payload":"b"}`+"\n",
		append([]string{"Content-Type", "application/x-ndjson"}, as...)...)
	require.Equal(t, 202, r.status, r.body)
	p.put("/channel/orders/consumer/audit", "token", "k", "type", "pull")
	r = p.do("POST", "/channel/orders/consumer/search/replay", `{"From":"2020-01-01T00:00:00Z","Rate":"1/1m"}`,
		"Content-Type", "application/json")
	require.Equal(t, 202, r.status, r.body)
	eventually(t, "dead letters and a late consumer in a sample", func() bool {
		body := p.page("/ui/").body
		return strings.Contains(body, "/consumer/billing") && strings.Contains(body, "/consumer/exports") &&
			strings.Contains(body, "/consumer/retrying")
	})
	jobs := regexp.MustCompile(`/ui/channel/orders/consumer/billing/job/\w+`)
	job := jobs.FindString(p.page("/ui/dlq?channel=orders&consumer=billing").body)
	require.NotEmpty(t, job)
	return p, []string{"/ui/", "/ui/channels", "/ui/channel/orders", "/ui/consumers?sort=dead",
		"/ui/channel/orders/consumer/billing", "/ui/channel/orders/consumer/exports",
		"/ui/channel/orders/message/order-17", "/ui/channel/orders/message/order-17?show=responses", job, "/ui/dlq",
		"/ui/dlq?channel=orders&consumer=billing", "/ui/scheduled?channel=orders", "/ui/bulks?channel=orders", "/ui/replays",
		"/ui/replays?channel=orders&consumer=search", "/ui/brokers", "/ui/brokers?show=settings",
		"/ui/bench", "/ui/bench?report=nightly.html", "/ui/search?q=or", "/ui/search",
		"/ui/search?q=error:503+consumer:billing", "/ui/search?q=state:dead",
		"/ui/publish?channel=orders&again=order-17",
		"/ui/redrives?channel=orders&consumer=billing",
		"/ui/channel/orders/consumer/billing/action/redrive?canary=true",
		"/ui/channel/orders/consumer/retrying/action/purge", "/ui/channel/orders/action/pause",
		"/ui/groups", "/ui/group/shops/action/pause", "/ui/login"}
}
