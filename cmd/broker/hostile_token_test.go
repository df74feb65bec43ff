package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Tokens of this story: unlike those of other stories they differ by channel,
// and have letters in both cases.
const (
	secretChannel  = "Channel-Secret-7"
	secretConsumer = "Consumer-Secret-7"
	secretOther    = "Other-Secret-7"
	secretProducer = "Producer-Secret-7"
)

// guesses are tokens that are nearly right.
func guesses(token string) []string {
	all := []string{
		token[:len(token)-1], token[:1], token + "x", "x" + token, strings.ToLower(token), strings.ToUpper(token), token +
			token, token + "," + token,
		"Bearer " + token, `"` + token + `"`, "*", "%", "null", "undefined", "0", "' OR '1'='1", token + "' --",
		strings.Repeat("a", 255), strings.Repeat(token, 500), "\xff\xfe",
	}
	return slices.DeleteFunc(all, func(guess string) bool { return guess == token })
}

// A tenants is a broker with two channels, a and b, that have a pull consumer k
// and another one each, and a queued job of k and of the other in each.
type tenants struct {
	*process
	jobs map[string]string // "a/k" -> job ID
}

func newTenants(t *testing.T) *tenants {
	p := embeddedWorld(t).with("BROKER_OPEN_MANAGEMENT=false", "BROKER_ALLOW_DELETE=true").start()
	x := &tenants{p, map[string]string{}}
	x.form("/producer/p", "token="+secretProducer)
	for _, ch := range []string{"a", "b"} {
		x.form("/channel/"+ch, "token="+secretChannel+ch)
		x.form("/channel/"+ch+"/consumer/k", "type=pull&token="+secretConsumer+ch)
		x.form("/channel/"+ch+"/consumer/other", "type=pull&token="+secretOther+ch)
		r := p.do("POST", "/channel/"+ch+"/broadcast", "of "+ch, "X-Broker-Channel-Token", secretChannel+ch,
			"X-Broker-Producer-ID", "p",
			"X-Broker-Producer-Token", secretProducer, "X-Broker-Message-ID", "m-"+ch)
		require.Equal(t, 201, r.status, r.body)
		var m apitype.Message
		eventually(t, "the jobs", func() bool {
			r := p.do("GET", "/channel/"+ch+"/message/m-"+ch, "", "X-Broker-Admin-Token", adminToken)
			require.NoError(t, json.Unmarshal([]byte(r.body), &m), r.body)
			return len(m.Jobs) == 2
		})
		for _, j := range m.Jobs {
			x.jobs[ch+"/"+j.ConsumerID] = j.ID
		}
	}
	return x
}

func (x *tenants) form(path, body string) {
	x.t.Helper()
	r := x.do("PUT", path, body, "Content-Type", formType, "X-Broker-Admin-Token", adminToken)
	require.Equal(x.t, 201, r.status, r.body)
}

// as are the headers of consumer k of a channel.
func as(channel string) []string {
	return []string{"X-Broker-Channel-Token", secretChannel + channel, "X-Broker-Consumer-Token", secretConsumer + channel}
}

// untouched checks that every job is still queued.
func (x *tenants) untouched() {
	x.t.Helper()
	for where, id := range x.jobs {
		ch, k, _ := strings.Cut(where, "/")
		r := x.do("GET", "/channel/"+ch+"/consumer/"+k+"/job/"+id, "", "X-Broker-Admin-Token", adminToken)
		require.Equal(x.t, 200, r.status)
		require.Equal(x.t, "QUEUED", r.json(x.t)["Status"], where)
		require.EqualValues(x.t, 0, r.json(x.t)["Attempts"], where)
	}
}

func (x *tenants) discreet(what string, r reply) {
	x.t.Helper()
	for _, secret := range []string{secretChannel, secretConsumer, secretOther, secretProducer, adminToken} {
		require.NotContains(x.t, r.body, secret, what)
		require.NotContains(x.t, fmt.Sprint(r.header), secret, what)
	}
}

// filled is the path of a route in channel a, with its own job and message.
func (x *tenants) filled(path string) string {
	return strings.NewReplacer("{producer}", "p", "{group}", "g", "{channel}", "a", "{consumer}", "k", "{message}", "m-a",
		"{scheduled}", "m-a", "{bulk}", "06gvk862do0000000010", "{replay}", "7", "{redrive}",
		"7", "{receipt}", "r", "{key}", "K", "{token}", "T", "{job}", x.jobs["a/k"]).Replace(path)
}

// strange is the same path with names that nothing has, where the contract
// does not make an unknown one a 404 before any token is looked at.
func (x *tenants) strange(path string) string {
	return strings.NewReplacer("{producer}", "none", "{group}", "none", "{channel}", "a", "{consumer}", "none",
		"{message}", "none", "{scheduled}", "none", "{bulk}", "06gvk862do0000000011", "{replay}", "8", "{redrive}",
		"8", "{receipt}", "none", "{key}", "none", "{token}", "none", "{job}",
		"06gvk862do0000000010").Replace(path)
}

// A wrong token opens nothing at any route, whatever the mistake, and the
// refusal does not tell whether the thing behind it exists.
func TestHostileTokensOpenNothing(t *testing.T) {
	parallel(t)
	x := newTenants(t)
	type door struct {
		header string
		token  string
		also   []string // the other headers, which are right
		ids    []int    // statuses of the refusal
	}
	doors := map[api.Access][]door{
		api.AccessManagement: {{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}}},
		api.AccessAdmin:      {{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}}},
		api.AccessTokens:     {{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}}},
		api.AccessOwn: {
			{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}},
			{"X-Broker-Channel-Token", secretChannel + "a", []string{"X-Broker-Consumer-Token", secretConsumer + "a"},
				[]int{403}},
			{"X-Broker-Consumer-Token", secretConsumer + "a", []string{"X-Broker-Channel-Token", secretChannel + "a"},
				[]int{403}},
		},
		api.AccessPublished: {
			{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}},
			{"X-Broker-Producer-Token", secretProducer, []string{"X-Broker-Channel-Token", secretChannel + "a",
				"X-Broker-Producer-ID", "p"}, []int{403}},
		},
		api.AccessJob: {
			{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}},
			{"X-Broker-Channel-Token", secretChannel + "a", []string{"X-Broker-Consumer-Token", secretConsumer + "a"},
				[]int{403}},
			{"X-Broker-Consumer-Token", secretConsumer + "a", []string{"X-Broker-Channel-Token", secretChannel + "a"},
				[]int{403}},
			{"X-Broker-Producer-Token", secretProducer, []string{"X-Broker-Channel-Token", secretChannel + "a",
				"X-Broker-Producer-ID", "p"}, []int{403}},
		},
		api.AccessConsumer: {
			{"X-Broker-Channel-Token", secretChannel + "a", []string{"X-Broker-Consumer-Token", secretConsumer + "a"},
				[]int{403}},
			{"X-Broker-Consumer-Token", secretConsumer + "a", []string{"X-Broker-Channel-Token", secretChannel + "a"},
				[]int{403}},
		},
		api.AccessRetrigger: {
			{"X-Broker-Admin-Token", adminToken, nil, []int{401, 403}},
			{"X-Broker-Consumer-Token", secretConsumer + "a", nil, []int{401, 403}},
		},
		api.AccessData: {
			{"X-Broker-Channel-Token", secretChannel + "a", []string{"X-Broker-Consumer-Token", secretConsumer + "a",
				"X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", secretProducer}, []int{403}},
		},
	}
	const dlqForm = "requeue=guess"
	routes := 0
	for _, r := range api.Routes() {
		if r.Access == api.AccessOps {
			continue
		}
		routes++
		list := doors[r.Access]
		if r.Access == api.AccessData {
			also := []string{"X-Broker-Channel-Token", secretChannel + "a", "X-Broker-Producer-ID", "p"}
			if strings.Contains(r.Path, "{consumer}") {
				list = append(list[:1:1], door{"X-Broker-Consumer-Token", secretConsumer + "a", also, []int{403}})
			} else {
				list = append(list[:1:1], door{"X-Broker-Producer-Token", secretProducer, also, []int{403}})
			}
		}
		if strings.HasSuffix(r.Path, "/dlq") && r.Method == "POST" { // its token is in the form
			for _, guess := range guesses(secretConsumer + "a") {
				got := x.do(r.Method, x.filled(r.Path), "requeue="+url.QueryEscape(guess), "Content-Type", formType)
				requireProblem(t, got, 400, "requeue_token_mismatch")
				x.discreet(r.Path, got)
			}
			requireProblem(t, x.do(r.Method, x.filled(r.Path), dlqForm, append(as("a"), "Content-Type", formType)...), 400,
				"requeue_token_mismatch")
			continue
		}
		for _, d := range list {
			for _, guess := range append([]string{""}, guesses(d.token)...) {
				what := r.Method + " " + r.Path + " with " + d.header + ": " + guess[:min(len(guess), 40)]
				headers := append([]string{d.header, guess, "Content-Type", formType}, d.also...)
				got := x.do(r.Method, x.filled(r.Path), "type=pull", headers...)
				require.Contains(t, d.ids, got.status, what+": "+got.body)
				x.discreet(what, got)
				if strings.Contains(r.Path, "{consumer}") && d.header != "X-Broker-Admin-Token" {
					continue // an unknown consumer is 401 by contract
				}
				other := x.do(r.Method, x.strange(r.Path), "type=pull", headers...)
				require.Equal(t, got.status, other.status, "what exists and what does not look the same: "+what)
				require.Equal(t, got.json(t)["code"], other.json(t)["code"], what)
			}
		}
	}
	require.Greater(t, routes, 20)
	x.untouched()
	x.discreet("log", reply{body: x.log.String()})
}

// Tokens, jobs, cursors and messages of one channel or consumer are of no use
// in another one.
func TestHostileTenantsCannotReachEachOther(t *testing.T) {
	parallel(t)
	x := newTenants(t)
	a, b := "/channel/a/consumer/k", "/channel/b/consumer/k"
	inflight := to("INFLIGHT")
	mixed := []string{"X-Broker-Channel-Token", secretChannel + "b", "X-Broker-Consumer-Token", secretConsumer + "a"}
	for name, tc := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
	}{
		"a's tokens at b's queue":    {"GET", b + "/queued-jobs", "", as("a"), 403},
		"a's tokens at b's job":      {"POST", b + "/job/" + x.jobs["b/k"], inflight, as("a"), 403},
		"b's channel token with a's": {"POST", b + "/job/" + x.jobs["b/k"], inflight, mixed, 403},
		"a's channel token with b's": {"POST", a + "/job/" + x.jobs["a/k"], inflight, mixed, 403},
		"b's job at a's path":        {"POST", a + "/job/" + x.jobs["b/k"], inflight, as("a"), 404},
		"the neighbour's job":        {"POST", a + "/job/" + x.jobs["a/other"], inflight, as("a"), 401},
		"the neighbour's tokens": {"GET", a + "/queued-jobs", "", []string{"X-Broker-Channel-Token",
			secretChannel + "a", "X-Broker-Consumer-Token", secretOther + "a"}, 403},
		"a look at b's job":          {"GET", a + "/job/" + x.jobs["b/k"], "", as("a"), 404},
		"a look at the neighbour's":  {"GET", a + "/job/" + x.jobs["a/other"], "", as("a"), 404},
		"a look at b's dead letters": {"GET", b + "/dlq", "", as("a"), 403},
		"redrive of the neighbour's": {"POST", a + "/job/" + x.jobs["a/other"] + "/requeue-dead-job", "",
			as("a"), 404},
		"redrive of b's": {"POST", a + "/job/" + x.jobs["b/k"] + "/requeue-dead-job", "", as("a"), 404},
		"redrive of b's queue with a's": {"POST", b + "/dlq", "requeue=" + secretConsumer + "a", []string{"Content-Type",
			formType}, 400},
		"re-trigger of the neighbour's": {"POST", "/channel/a/message/m-a/job/" + x.jobs["a/other"] + "/re-trigger", "",
			as("a"), 403},
		"re-trigger of b's": {"POST", "/channel/b/message/m-b/job/" + x.jobs["b/k"] + "/re-trigger", "",
			as("a"), 403},
		"re-trigger of b's under a": {"POST", "/channel/a/message/m-a/job/" + x.jobs["b/k"] + "/re-trigger", "",
			as("a"), 404},
		"a claim with b's token": {"POST", b + "/claim", "", as("a"), 403},
		"a publish with b's token": {"POST", "/channel/a/broadcast", "x", []string{"X-Broker-Channel-Token",
			secretChannel + "b", "X-Broker-Producer-ID", "p", "X-Broker-Producer-Token", secretProducer}, 403},
		"a cursor that is forged": {"GET", a + "/queued-jobs?after=zzzzzzzzzzzz.00000000000000000000", "",
			as("a"), 400},
		"a cursor with a quote": {"GET", a + "/queued-jobs?after=0.0000000000000000000%27", "", as("a"), 400},
		"a list that starts at b's message": {"GET", "/channel/a/messages?first=m-b", "", []string{"X-Broker-Admin-Token",
			adminToken}, 400},
		"b's message under a": {"GET", "/channel/a/message/m-b", "", []string{"X-Broker-Admin-Token", adminToken},
			404},
		// an ID is a place in the order, and a's list is empty there
		"a DLQ that starts at b's job": {"GET", a + "/dlq?first=" + x.jobs["b/k"], "", as("a"), 200},
	} {
		r := x.do(tc.method, tc.path, tc.body, tc.headers...)
		require.Equal(t, tc.status, r.status, "%s: %s", name, r.body)
		x.discreet(name, r)
		require.NotContains(t, r.body, "of b", name)
	}
	r := x.do("POST", a+"/jobs", fmt.Sprintf(
		`{"Updates":[{"ID":%q,"NextState":"DELIVERED"},{"ID":%q,"NextState":"DEAD"},{"ID":%q,"Lease":"x.1","NextState":"INFLIGHT"}]}`,
		x.jobs["b/k"], x.jobs["a/other"], x.jobs["b/other"]), as("a")...)
	require.Equal(t, 200, r.status)
	for i, e := range r.json(t)["Result"].([]any) {
		require.Contains(t, []any{400.0, 401.0, 404.0}, e.(map[string]any)["Status"], "%d: %v", i, e)
	}
	// A cursor made in b shows nothing but a's own in a.
	cursor := x.do("GET", b+"/queued-jobs?after=0.00000000000000000000", "", as("b")...)
	require.Equal(t, 200, cursor.status, cursor.body)
	own := x.do("GET", a+"/queued-jobs?after=0.00000000000000000000", "", as("a")...)
	require.Equal(t, 200, own.status)
	require.Contains(t, own.body, "of a")
	require.NotContains(t, own.body, "of b")
	x.untouched()
}
