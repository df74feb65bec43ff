package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestClosedManagementNeedsTheAdminToken(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.plan(durable.Scheduled{Message: durable.Message{Key: "s"}})
	w.api.o.OpenManagement = false
	for _, r := range Routes() {
		if r.Access != AccessManagement && r.Access != AccessPublished || r.Method == del {
			continue
		}
		if strings.HasSuffix(r.Path, "/rotate-token") { // the tokens are those of below; token_test.go rotates
			w.post(example(r.Path)).problem(401, "token_missing")
			continue
		}
		path := example(r.Path)
		headers := []string{formHeader}
		body := formFor(path)
		w.do(r.Method, path, body, headers...).problem(401, "token_missing")
		w.do(r.Method, path, body, append(headers, "X-Broker-Admin-Token: "+adminToken+"x")...).problem(403,
			"admin_token_mismatch")
		w.do(r.Method, path, body, append(headers, tokens("k")[1])...).problem(401, "token_missing")
		if r.Body == 0 { // refused only for those who may call it
			w.do(r.Method, path, "type=pull", append(headers, adminHeader)...).problem(413, "body_too_large")
			body = ""
		}
		w.do(r.Method, path, body, append(headers, adminHeader)...).admitted(r.Path)
	}
	own := []string{"/channel/c/consumer/k/dlq", jobPath(w.cat.Consumer("c", "k"), m)}
	for _, path := range own {
		w.get(path).problem(401, "token_missing")
		w.get(path, "X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
		w.get(path, tokens("x")...).problem(403, "consumer_token_mismatch")
		w.get(path, tokens("k")[1]).problem(403, "channel_token_mismatch")
		w.get(path, tokens("k")[0]).problem(403, "consumer_token_mismatch")
		w.get(path, tokens("k")...).is(200)
		w.get(path, adminHeader).is(200)
	}
	for _, verb := range []string{"pause", "resume", "revive"} {
		path := "/channel/c/consumer/k/" + verb
		w.post(path).problem(401, "token_missing")
		w.post(path, "X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
		w.post(path, tokens("x")...).problem(403, "consumer_token_mismatch")
		w.post(path, tokens("k")[1]).problem(403, "channel_token_mismatch")
		for _, may := range [][]string{tokens("k"), {adminHeader}} {
			require.Equal(t, "k", w.post(path, may...).is(200).json()["ID"])
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/metrics/consumers", "/version", "/_status",
		"/job-status", "/dlq-status"} {
		w.get(path).is(200)
	}
}

func TestWithoutAnAdminTokenNobodyIsTheAdmin(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AdminToken = "" })
	w.channel()
	w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	for _, header := range []string{"X-Broker-Admin-Token: ", "X-Broker-Admin-Token: x", "X-None: x"} {
		w.post("/channel/c/message/m/re-trigger", header).problem(403, "admin_disabled")
	}
	w.post(retriggerPath(m, m.ID.Job(0)), "X-Broker-Admin-Token: x").problem(403, "admin_disabled")
	w.api.o.OpenManagement = false
	w.get("/producers", "X-Broker-Admin-Token: ").problem(403, "admin_disabled")
	w.get("/channel/c/consumer/k/dlq").problem(403, "admin_disabled")
	w.get("/channel/c/consumer/k/dlq", tokens("k")...).is(200)
}

func TestAnswersShowNoTokenButTheResourceItself(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "m"})
	w.kill(k, m)
	for _, path := range []string{
		"/producers", "/channels", "/channel/c/consumers", "/channel/c/messages", "/channel/c/message/m",
		"/channel/c/consumer/k/dlq",
		jobPath(k, m), "/_status", "/job-status", "/dlq-status", "/version", "/metrics", "/readyz", "/livez",
	} {
		require.NotContains(t, w.get(path, append(tokens("k"), adminHeader)...).is(200).Body, secret, path)
	}
}

func TestTokensInOddPlacesNeverComeBack(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, path := range []string{"/producer/" + secret + "%20", "/" + secret, "/producers?size=" + secret,
		"/producers?first=" + secret + "%20", "/channel/" + secret, "/channel/c/messages?first=" + secret} {
		r := w.get(path, "X-Broker-Admin-Token: "+secret, "If-None-Match: "+secret, "Authorization: Bearer "+secret)
		require.GreaterOrEqual(t, r.Status, 400)
		require.False(t, strings.Contains(r.Body, secret))
	}
}
