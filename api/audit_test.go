package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// unaudited are the routes that may change something and have no action in the audit log, with the reason.
var unaudited = map[string]string{
	"POST /channel/{channel}/broadcast":                     "a message is data",
	"POST /channel/{channel}/batch":                         "messages are data",
	"POST /channel/{channel}/request":                       "a message is data",
	"POST /channel/{channel}/bulk":                          "messages are data",
	"POST /channel/{channel}/message/{message}/response":    "a response is data",
	"POST /channel/{channel}/consumer/{consumer}/claim":     "the work of a consumer",
	"POST /channel/{channel}/consumer/{consumer}/jobs":      "the work of a consumer",
	"POST /channel/{channel}/consumer/{consumer}/job/{job}": "the work of a consumer",
	"POST /":                                     "queues names each change of a queue; others are data",
	"POST /sqs/{channel}/{consumer}":             "queues names each change of a queue; others are data",
	"POST /ui/publish":                           "a message is data",
	"POST /ui/group/{group}/action/{action}":     "it sends a request to a route of this table",
	"POST /ui/channel/{channel}/action/{action}": "it sends a request to a route of this table",
	"POST /ui/channel/{channel}/consumer/{consumer}/action/{action}": "it sends a request to a route of this table",
	"POST /ui/channel/{channel}/message/{message}/action/{action}":   "pages.Reveal writes the entry",
	"POST /ui/login":  "a session changes nothing",
	"POST /ui/logout": "a session changes nothing",
}

func TestEachRouteThatChangesSomethingHasAnAction(t *testing.T) {
	known := map[string]bool{}
	for _, r := range table {
		name := r.Method + " " + r.Path
		known[name] = true
		reason := unaudited[name]
		switch {
		case r.Method == get:
			require.Empty(t, r.Audit+reason, "%s changes nothing", name)
		case r.Audit == "":
			require.NotEmpty(t, reason, "%s has neither an action in the audit log nor a reason", name)
		default:
			require.Empty(t, reason, name)
			require.LessOrEqual(t, len(r.Audit), 64)
			require.True(t, r.serve != nil || r.Path == "/channel/{channel}/scheduled-message/{scheduled}", name)
		}
	}
	for name := range unaudited {
		require.True(t, known[name], "there is no route %s", name)
	}
}

// audit returns the audit log of the world, whose chain is whole.
func (w *world) audit(query string) (all []apitype.AuditEntry) {
	w.t.Helper()
	var v auditlog.Verifier
	for path := "/audit" + query; path != ""; {
		r := w.get(path, adminHeader).is(200)
		var page apitype.AuditList
		strictjson.Decode(w.t, []byte(r.Body), &page)
		require.NotContains(w.t, r.Body, secret)
		for _, entry := range page.Result {
			if query == "" {
				e, err := entry.Entry()
				require.NoError(w.t, err)
				require.NoError(w.t, v.Next(&e))
			}
			all = append(all, entry)
		}
		path = page.Pages.Next
	}
	return all
}

// nothing does what has no entry.
func (w *world) nothing(f func()) {
	w.t.Helper()
	before := len(w.audit(""))
	f()
	require.Len(w.t, w.audit(""), before)
}

// change makes one change, which has one entry.
func (w *world) change(action, resource string, f func()) apitype.AuditEntry {
	w.t.Helper()
	before := len(w.audit(""))
	f()
	all := w.audit("")
	require.Len(w.t, all, before+1, "%s has one entry", action)
	e := all[before]
	require.Equal(w.t, []string{action, resource, "127.0.0.1"}, []string{e.Action, e.Resource, e.From})
	require.WithinDuration(w.t, time.Now(), e.At.Time, 10*time.Minute)
	return e
}

func TestEachChangeIsInTheAuditLog(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	seen := map[string]bool{}
	change := func(route, who, resource string, f func()) apitype.AuditEntry {
		t.Helper()
		method, path, _ := strings.Cut(route, " ")
		e := w.change(routeNamed(method+" "+path).Audit, resource, f)
		require.Equal(t, who, e.Who, route)
		seen[route] = true
		return e
	}
	const admin, channel, consumer, k = "admin token", "/channel/{channel}", "/channel/{channel}/consumer/{consumer}",
		"/channel/c/consumer/k"
	post := func(path, body string) func() {
		return func() {
			t.Helper()
			r := w.do("POST", path, body, adminHeader)
			require.Less(t, r.Status, 300, r.Body)
		}
	}
	w.api.o.OpenManagement = false
	e := change("PUT /producer/{producer}", admin, "/producer/p", func() {
		w.put("/producer/p", "name=P&token="+secret+"-p&publishSecret="+secret+strings.Repeat("p", 20)+
			"&replyUrl=http://127.0.0.1:1/r?t="+secret, adminHeader).is(201)
	})
	require.Empty(t, e.Before)
	require.Contains(t, string(e.After), `"Token":"hmac-sha256:`)
	require.Contains(t, string(e.After), `"PublishSecret":"hmac-sha256:`)
	require.Contains(t, string(e.After), `"replyUrl":"http://127.0.0.1:1/r?hmac-sha256:`)
	change("PUT "+channel, admin, "/channel/c", func() {
		w.put("/channel/c", "name=C&token="+secret+"-c", adminHeader).is(201)
	})
	made := change("PUT "+consumer, admin, k, func() {
		w.put(k, "token="+secret+"-k&type=push&callbackUrl=http://127.0.0.1:1/k?t="+secret+"&authorization=bearer+"+secret+
			"&headers=X-Key:+"+secret+"&signingSecret=generate", adminHeader).is(201)
	})
	require.NotContains(t, string(made.After), "whsec_")
	require.Contains(t, string(made.After), `"headers":"X-Key: hmac-sha256:`)
	renamed := w.change("put consumer", k, func() { w.put(k, "name=K2", adminHeader).is(200) })
	require.Equal(t, string(made.After), string(renamed.Before))
	require.NotEqual(t, string(renamed.Before), string(renamed.After))
	rotated := w.change("put consumer", k, func() { w.put(k, "token="+secret+"-k2", adminHeader).is(200) })
	require.NotEqual(t, string(rotated.Before), string(rotated.After), "the fingerprint of the token is another one")
	w.put(k, "token="+secret+"-k", adminHeader).is(200)
	nothing := len(w.audit(""))
	w.put(k, "name=K2", adminHeader).is(200)
	w.put(k, "name=K3", adminHeader, "If-Match: \"other\"").is(412)
	w.put(k, "name=K3", "X-Broker-Admin-Token: wrong").is(403)
	require.Len(t, w.audit(""), nothing, "what changes nothing and what is refused is not in the log")

	change("POST "+channel+"/pause", admin, "/channel/c", post("/channel/c/pause", ""))
	change("POST "+channel+"/resume", admin, "/channel/c", post("/channel/c/resume", ""))
	const own = "consumer c/k"
	paused := change("POST "+consumer+"/pause", own, k, func() { w.do("POST", k+"/pause", "", tokens("k")...).is(200) })
	require.Contains(t, string(paused.Before), `"State":"ACTIVE"`)
	require.Contains(t, string(paused.After), `"State":"PAUSED"`)
	change("POST "+consumer+"/resume", admin, k, post(k+"/resume", ""))
	kk := w.cat.Consumer("c", "k")
	w.setState(kk, durable.StateDead)
	change("POST "+consumer+"/revive", admin, k, post(k+"/revive", ""))
	link := w.linkOfDead(w.cat.Consumer("c", "k"))
	change("POST "+consumer+"/revive/{link}", "revive link of consumer c/k", k, post(link, ""))
	w.setState(kk, durable.StateActive)
	change("POST "+consumer+"/retry", admin, k, post(k+"/retry", ""))
	w.trial <- push.Trial{Status: 200}
	change("POST "+consumer+"/test", admin, k, post(k+"/test", ""))
	e = change("POST "+consumer+"/portal-link", admin, k, post(k+"/portal-link", `{"TTL":"2h"}`))
	require.JSONEq(t, `{"TTL":"2h"}`, string(e.After))

	w.enqueue(kk, w.insert(durable.Message{}))
	e = change("POST "+consumer+"/purge", admin, k, post(k+"/purge?forget=true", ""))
	require.JSONEq(t, `{"forget":"true"}`, string(e.After))
	m := w.insert(durable.Message{Key: "m"})
	change("POST "+consumer+"/replay", admin, k, post(k+"/replay", `{"From":"2026-01-01T00:00:00Z"}`))
	replay := w.get(k+"/replays", adminHeader).json()["Result"].([]any)[0].(map[string]any)["ID"].(string)
	for _, to := range []string{"pause", "resume", "cancel"} {
		change("POST "+consumer+"/replay/{replay}/"+to, admin, k+"/replay/"+replay, post(k+"/replay/"+replay+"/"+to, ""))
	}
	letter := func() ident.ID {
		m := w.insert(durable.Message{})
		w.kill(kk, m)
		return m.ID
	}
	letter()
	e = change("POST "+consumer+"/dlq/redrive", admin, k, post(k+"/dlq/redrive", `{"Limit":7}`))
	require.Contains(t, string(e.After), `"State":"RUNNING"`)
	for _, to := range []string{"pause", "resume", "cancel"} {
		change("POST "+consumer+"/redrive/{redrive}/"+to, admin, k+"/redrive/1", post(k+"/redrive/1/"+to, ""))
	}
	change("POST "+consumer+"/dlq/delete", admin, k, post(k+"/dlq/delete", `{}`))
	letter()
	change("DELETE "+consumer+"/dlq", admin, k, func() { w.do("DELETE", k+"/dlq", "", adminHeader).is(204) })
	job := func(id ident.ID) string { return k + "/job/" + id.Job(kk.Position).String() }
	id := letter()
	change("DELETE "+consumer+"/job/{job}", admin, job(id), func() { w.do("DELETE", job(id), "", adminHeader).is(204) })
	id = letter()
	change("POST "+consumer+"/job/{job}/requeue-dead-job", own, job(id), func() {
		w.do("POST", job(id)+"/requeue-dead-job", "", tokens("k")...).is(202)
	})
	for range 3 {
		letter()
	}
	change("POST "+consumer+"/dlq", own, k, func() {
		w.do("POST", k+"/dlq", `{"requeue":"`+secret+`-k"}`, "Content-Type: application/json").is(202)
	})
	change("POST "+channel+"/message/{message}/re-trigger", admin, "/channel/c/message/m",
		post("/channel/c/message/m/re-trigger", ""))
	jobOfM := "/channel/c/message/m/job/" + m.ID.Job(kk.Position).String()
	change("POST "+channel+"/message/{message}/job/{job}/re-trigger", admin, jobOfM, post(jobOfM+"/re-trigger", ""))
	byFailSafe := func(pass string) {
		w.do("POST", "/channel/c/message/m/re-trigger", "", adminHeader, "User-Agent: "+apitype.FailSafe,
			auditlog.FailSafeHeader+": "+pass).is(202)
	}
	for _, pass := range []string{"", "guess", w.api.o.Prints.Pass("c", "other")} { // anybody may send its User-Agent
		w.change("re-trigger message", "/channel/c/message/m", func() { byFailSafe(pass) })
	}
	w.nothing(func() { byFailSafe(w.api.o.Prints.Pass("c", "m")) })

	s := w.plan(durable.Scheduled{Message: durable.Message{Key: "s", ContentType: "text/plain", Payload: []byte(secret)}})
	scheduled := "/channel/c/scheduled-message/s"
	change("PUT "+channel+"/scheduled-message/{scheduled}", admin, scheduled, func() {
		w.do("PUT", scheduled, "", adminHeader).is(200)
	})
	change("DELETE "+channel+"/scheduled-message/{scheduled}", admin, scheduled, func() {
		w.do("DELETE", scheduled, "", adminHeader).is(204)
	})
	require.NotZero(t, s.ID)
	bulk := "/channel/c/bulk/" + w.bulk().ID.String()
	for _, to := range []string{"pause", "resume", "cancel"} {
		change("POST "+channel+"/bulk/{bulk}/"+to, admin, bulk, post(bulk+"/"+to, ""))
	}
	change("POST "+channel+"/sqs-key", admin, "/channel/c", post("/channel/c/sqs-key", ""))
	key := w.get("/channel/c/sqs-key", adminHeader).json()["Result"].([]any)[0].(map[string]any)["AccessKeyId"].(string)
	change("DELETE "+channel+"/sqs-key/{key}", admin, "/channel/c/sqs-key/"+key, func() {
		w.do("DELETE", "/channel/c/sqs-key/"+key, "", adminHeader).is(204)
	})
	change("DELETE "+channel+"/sqs-key", admin, "/channel/c", func() {
		w.do("DELETE", "/channel/c/sqs-key", "", adminHeader).is(204)
	})
	change("PUT /group/{group}", admin, "/group/audited", func() {
		w.put("/group/audited", "maxChannels=2&publishRate=10/10s", adminHeader).is(201)
	})
	change("POST /group/{group}/pause", admin, "/group/audited", post("/group/audited/pause", ""))
	e = change("POST /group/{group}/resume", admin, "/group/audited", post("/group/audited/resume", ""))
	require.Contains(t, string(e.Before), `"Paused":true`)
	change("DELETE /group/{group}", admin, "/group/audited", func() {
		w.do("DELETE", "/group/audited", "", adminHeader).is(204)
	})
	e = change("POST /tokens", admin, "/tokens", post("/tokens", `{"Name":"ci","Scopes":["channel:c"]}`))
	token := w.get("/tokens", adminHeader).json()["Result"].([]any)[0].(map[string]any)["ID"].(string)
	require.JSONEq(t, `{"ID":"`+token+`","Name":"ci","Scopes":["channel:c"]}`, string(e.After))
	ended := change("DELETE /tokens/{token}", admin, "/tokens/"+token, func() {
		w.do("DELETE", "/tokens/"+token, "", adminHeader).is(204)
	})
	require.Equal(t, string(e.After), string(ended.Before))
	w.replyLetter()
	change("POST /producer/{producer}/dlq", "producer p", "/producer/p", func() {
		w.do("POST", "/producer/p/dlq", "requeue="+secret+"-p", formHeader).is(202)
	})
	for route, path := range map[string]string{"/producer/{producer}": "/producer/p", channel: "/channel/c"} {
		e = change("POST "+route+"/rotate-token", admin, path, post(path+"/rotate-token", ""))
		require.NotEqual(t, string(e.Before), string(e.After), "the fingerprint of the token is another one")
	}
	e = change("POST "+consumer+"/rotate-token", admin, k, post(k+"/rotate-token", ""))
	require.Contains(t, string(e.After), `"Overlap":"0"`)
	require.NotContains(t, string(e.After), "FormerEndsAt")
	e = w.change("rotate token", k, func() {
		w.do("POST", k+"/rotate-token", "overlap=24h", adminHeader, formHeader).is(200)
	})
	require.Contains(t, string(e.After), `"Overlap":"24h"`)
	require.Regexp(t, `"FormerEndsAt":"\d{4}-`, string(e.After))
	change("DELETE "+consumer, admin, k, func() { w.do("DELETE", k, "", adminHeader).is(204) })
	change("DELETE "+channel, admin, "/channel/c", func() { w.do("DELETE", "/channel/c", "", adminHeader).is(204) })
	change("DELETE /producer/{producer}", admin, "/producer/p", func() {
		w.do("DELETE", "/producer/p", "", adminHeader).is(204)
	})
	for _, r := range table {
		require.True(t, r.Audit == "" || seen[r.Method+" "+r.Path], "%s %s was not asked", r.Method, r.Path)
	}
}

// replyLetter makes a dead letter of a reply to the producer p.
func (w *world) replyLetter() {
	w.t.Helper()
	id := ident.Replies(w.cat.Producer("p").No)
	_, _, err := w.store.PutChannel(context.Background(), durable.Put{ID: id, NewToken: "t"})
	require.NoError(w.t, err)
	url := "http://127.0.0.1:1/r"
	_, _, err = w.store.PutConsumer(context.Background(), durable.ConsumerPut{Put: durable.Put{ID: ident.Sender,
		NewToken: "t"}, ChannelID: id, CallbackURL: &url})
	require.NoError(w.t, err)
	require.NoError(w.t, w.cat.Refresh(context.Background()))
	w.kill(w.cat.Consumer(id, ident.Sender), w.insertInto(id, durable.Message{}))
}

func TestTheAuditLogSaysWhoActsByTheDashboard(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	const k = "/channel/c/consumer/k"
	who := func(action string, f func()) string { return w.change(action, k, f).Who }
	require.Equal(t, "open management", who("pause consumer", func() { w.doAction(onK + "pause").is(303) }))
	w.api.o.OpenManagement = false
	require.Equal(t, "admin token", who("resume consumer", func() {
		w.press(w.page(onK+"resume", adminHeader).is(200).asks(), adminHeader, "Origin: http://broker").is(303)
	}))
	login := w.do("POST", "/ui/login", url.Values{"token": {adminToken}}.Encode(), formHeader, browser).is(303)
	cookie, _, _ := strings.Cut(login.Header("Set-Cookie"), ";")
	require.Equal(t, "dashboard session", who("pause consumer", func() {
		w.press(w.page(onK+"pause", "Cookie: "+cookie).is(200).asks(), "Cookie: "+cookie, "Origin: http://broker").is(303)
	}))
	link, _ := w.portal("k", "")
	owner := w.owner(link)
	require.Equal(t, "portal link of consumer c/k", who("resume consumer", func() {
		w.press(w.page(onK+"resume", owner).is(200).asks(), owner, "Origin: http://broker").is(303)
	}))
	rotated := w.change("put consumer", k, func() {
		w.press(w.page(onK+"rotate", "Cookie: "+cookie).is(200).asks(), "Cookie: "+cookie, "Origin: http://broker").is(200)
	})
	require.Equal(t, "dashboard session", rotated.Who)
	require.NotContains(t, string(rotated.After), "whsec_")
}

func TestPagesOfTheAuditLog(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for i := range 7 {
		w.put("/channel/c", fmt.Sprint("name=", i)).is(200)
	}
	numbers := func(query string) (out []uint64) {
		for _, e := range w.audit(query) {
			out = append(out, e.Number)
		}
		return out
	}
	up := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	require.Equal(t, up, numbers("?size=4"))
	down := slices.Clone(up)
	slices.Reverse(down)
	require.Equal(t, down, numbers("?size=4&order=desc"))
	require.Equal(t, []uint64{1}, numbers("?resource=/producer/p"))
	require.Equal(t, []uint64{3}, numbers("?resource=/group/g"))
	require.Equal(t, slices.Delete(slices.Clone(up[1:]), 1, 2),
		numbers("?size=3&resource=channel/c&from=2026-01-01T00:00:00Z"))
	require.Empty(t, numbers("?resource=chan"))
	require.Empty(t, numbers("?to=2026-01-01T00:00:00Z"))
	require.Empty(t, numbers("?from="+url.QueryEscape(time.Now().Add(time.Hour).UTC().Format(time.RFC3339))))
	require.Equal(t, up[6:], numbers("?first=7"))
	for query, code := range map[string]string{"?first=x": "unknown_first", "?first=0": "unknown_first",
		"?first=99999999999999999999": "unknown_first", "?from=yesterday": "invalid_date", "?to=1": "invalid_date",
		"?order=up": "invalid_query", "?size=0": "invalid_size", "?resource=a&resource=b": "invalid_query",
		"?from=2026-01-01T00:00:00Z&from=2026-01-01T00:00:00Z": "invalid_date", "?who=me": "unknown_parameter"} {
		w.get("/audit"+query).problem(400, code)
	}
	w.api.o.OpenManagement = false
	w.get("/audit").problem(401, "token_missing")
	w.get("/audit", tokens("k")...).problem(401, "token_missing")
	w.get("/audit", "X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
	w.get("/audit", adminHeader).is(200)
}

// A deafStore writes no entry of the audit log.
type deafStore struct{ Store }

func (deafStore) Audit(context.Context) error { return errors.New("the disk is full") }

func TestWithoutAnEntryNothingIsDone(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	w.insert(durable.Message{Key: "m"})
	w.api.o.Store = deafStore{w.store}
	for _, path := range []string{"/channel/c/consumer/k/retry", "/channel/c/consumer/k/test",
		"/channel/c/consumer/k/portal-link", "/channel/c/message/m/re-trigger"} {
		w.do("POST", path, "", adminHeader).problem(500, "internal")
	}
	require.Len(t, w.audit(""), 4)
}
