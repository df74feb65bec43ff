package api

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/lockout"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/scope"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
)

var updateScopes = flag.Bool("scopes", false, "write testdata/scopes.txt")

// tokenWorld is a closed world with a channel c, its consumers k and other, and a producer p.
func tokenWorld(t *testing.T, change func(*Options)) *world {
	w := newWorld(t, change)
	w.channel()
	w.consumer("k", "pull")
	w.consumer("other", "pull")
	w.api.o.OpenManagement = false
	return w
}

// token makes an API token.
func (w *world) token(scopes ...string) (token, id string) {
	w.t.Helper()
	body := `{"Name":"t","Scopes":["` + strings.Join(scopes, `","`) + `"]}`
	r := w.do("POST", "/tokens", body, adminHeader).is(201)
	made := r.json()
	require.Equal(w.t, "/tokens/"+made["ID"].(string), r.Header("Location"))
	require.Equal(w.t, "no-store", r.Header("Cache-Control"))
	return made["Token"].(string), made["ID"].(string)
}

func TestAnAPITokenIsShownOnceAndEnds(t *testing.T) {
	w := tokenWorld(t, nil)
	r := w.do("POST", "/tokens", `{"Name":"für CI","Scopes":["dlq","channel:c"],"Expires":"24h"}`, adminHeader).is(201)
	made := r.json()
	token, id := made["Token"].(string), made["ID"].(string)
	require.Equal(t, []any{"channel:c", "dlq"}, made["Scopes"])
	list := w.get("/tokens", adminHeader).is(200)
	require.NotContains(t, list.Body, token)
	listed := list.json()["Result"].([]any)[0].(map[string]any)
	require.Equal(t, "für CI", listed["Name"])
	require.Equal(t, id, listed["ID"])
	require.NotEmpty(t, listed["ExpiresAt"])
	require.NotContains(t, listed, "LastUsedAt")
	w.get("/channel/c", bearer(token)).is(200)
	require.Contains(t, w.get("/tokens", adminHeader).json()["Result"].([]any)[0], "LastUsedAt")
	w.get("/channel/c", "X-Broker-Admin-Token: "+token).is(200)
	w.get("/channel/c", bearer(token+"a")).problem(403, "api_token_mismatch")
	w.get("/channel/c", bearer(token[:len(token)-1])).problem(403, "api_token_mismatch")
	flipped := []byte(token)
	flipped[20] ^= 1
	w.get("/channel/c", bearer(string(flipped))).problem(403, "api_token_mismatch")

	for _, route := range []string{"GET /tokens", "POST /tokens", "DELETE /tokens/" + id} {
		method, path, _ := strings.Cut(route, " ")
		for _, scopes := range [][]string{{"management:write"}, {"channel:c"}} {
			other, _ := w.token(scopes...)
			w.do(method, path, `{"Name":"x","Scopes":["dlq"]}`, bearer(other)).problem(403, "out_of_scope")
		}
		w.do(method, path, `{"Name":"x","Scopes":["dlq"]}`).problem(401, "token_missing")
	}
	w.do("DELETE", "/tokens/"+id, "", adminHeader).is(204)
	w.get("/channel/c", bearer(token)).problem(403, "api_token_mismatch")
	w.do("DELETE", "/tokens/"+id, "", adminHeader).problem(404, "token_not_found")
	require.NotContains(t, w.get("/tokens", adminHeader).Body, id)
}

func TestAnAPITokenThatHasExpiredOpensNothing(t *testing.T) {
	w := tokenWorld(t, nil)
	made := w.do("POST", "/tokens", `{"Name":"t","Scopes":["channel:c"],"Expires":"1m"}`, adminHeader).json()
	token := made["Token"].(string)
	w.get("/channel/c", bearer(token)).is(200)
	now := time.Now().Add(time.Minute)
	w.cat.UseSecrets(catalogue.Secrets{NowMs: func() int64 { return now.UnixMilli() }})
	w.api.o.NowMs = func() int64 { return now.UnixMilli() }
	w.get("/channel/c", bearer(token)).problem(403, "api_token_mismatch")
	require.Contains(t, w.get("/tokens", adminHeader).Body, `"Expired":true`)
}

func TestAWrongRequestForATokenMakesNone(t *testing.T) {
	w := tokenWorld(t, nil)
	for body, code := range map[string]string{
		``:                                   "invalid_body",
		`[]`:                                 "invalid_body",
		`{"Name":"x"}`:                       "invalid_scope",
		`{"Name":"x","Scopes":[]}`:           "invalid_scope",
		`{"Name":"x","Scopes":["group:"]}`:   "invalid_scope",
		`{"Name":"x","Scopes":["chanel:c"]}`: "invalid_scope",
		`{"Name":"x","Scopes":"dlq"}`:        "invalid_body",
		`{"Name":"x","Scope":["dlq"]}`:       "invalid_body",
		`{"Scopes":["dlq"]}`:                 "invalid_token_name",
		`{"Name":"a\nb","Scopes":["dlq"]}`:   "invalid_token_name",
		`{"Name":"` + strings.Repeat("x", 256) + `","Scopes":["dlq"]}`:                             "invalid_token_name",
		`{"Name":"x","Scopes":["dlq"],"Expires":"1s"}`:                                             "invalid_expires",
		`{"Name":"x","Scopes":["dlq"],"Expires":"3651d"}`:                                          "invalid_expires",
		`{"Name":"x","Scopes":["dlq"],"Expires":"tomorrow"}`:                                       "invalid_expires",
		`{"Name":"x","Scopes":["dlq"],"Expires":"-1h"}`:                                            "invalid_expires",
		`{"Name":"x","Scopes":[` + strings.Repeat(`"dlq",`, scope.Most) + `"dlq"],"Expires":"1h"}`: "invalid_scope",
	} {
		w.do("POST", "/tokens", body, adminHeader).problem(400, code)
	}
	require.Empty(t, w.get("/tokens", adminHeader).json()["Result"])
}

func TestThereAreSoManyTokensAndNoMore(t *testing.T) {
	w := tokenWorld(t, nil)
	for i := range durable.MaxAPITokens {
		_, err := w.store.CreateAPIToken(context.Background(), durable.APIToken{ID: fmt.Sprintf("%010d", i), Name: "t",
			Scopes: "dlq", Digest: strings.Repeat("x", 32)}, 0)
		require.NoError(t, err)
	}
	w.do("POST", "/tokens", `{"Name":"x","Scopes":["dlq"]}`, adminHeader).problem(409, "too_many_tokens")
	seen := 0
	for next := "/tokens?size=100"; next != ""; {
		page := w.get(next, adminHeader).is(200).json()
		seen += len(page["Result"].([]any))
		next, _ = page["Pages"].(map[string]any)["next"].(string)
	}
	require.Equal(t, durable.MaxAPITokens, seen)
}

// refusedOf are the codes with which a token is refused.
var refusedOf = []string{"out_of_scope", "api_token_mismatch", "admin_token_mismatch", "channel_token_mismatch",
	"consumer_token_mismatch", "producer_token_mismatch", "requeue_token_mismatch", "token_missing", "too_many_failures"}

// The file says of each route which scopes open it, as the API answers.
func TestEachScopeOpensTheRoutesOfTheFile(t *testing.T) {
	w := tokenWorld(t, nil)
	w.put("/group/g", "", adminHeader).is(200)
	w.put("/channel/c", "group=g", adminHeader).is(200)
	m := w.insert(durable.Message{Key: "m"})
	w.kill(w.cat.Consumer("c", "k"), m)
	scopes := []string{"management:read", "management:write", "channel:c", "channel:d", "consumer:c/k", "consumer:c/other",
		"dlq", "group:g", "group:h"}
	tokens := map[string]string{}
	for _, s := range scopes {
		tokens[s], _ = w.token(s)
	}
	fill := strings.NewReplacer("{producer}", "p", "{channel}", "c", "{group}", "none", "{consumer}", "k",
		"{message}", "m", "{job}", m.ID.Job(0).String(), "{token}", "none", "{key}", "none", "{scheduled}", "none",
		"{bulk}", "none", "{replay}", "r1", "{redrive}", "1")
	var lines []string
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} { // what deletes is last
		for _, r := range Routes() {
			if r.Method != method {
				continue
			}
			var opened []string
			for _, s := range scopes {
				if w.opened(r, fill.Replace(r.Path), s, tokens[s]) {
					opened = append(opened, s)
				}
			}
			if len(opened) == 0 {
				opened = []string{"-"}
			}
			lines = append(lines, fmt.Sprintf("%s %s [%s]: %s\n", r.Method, r.Path, r.Access, strings.Join(opened, " ")))
		}
	}
	slices.Sort(lines)
	got := "# The scopes that open each route, for channel c of group g and consumer k. \"publish\" stands for the\n" +
		"# token of the channel, beside that of a producer. Written by go test ./api -run TestEachScopeOpens -scopes.\n" +
		strings.Join(lines, "")
	if *updateScopes {
		require.NoError(t, os.WriteFile("testdata/scopes.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/scopes.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// opened reports whether a token opens a route.
func (w *world) opened(r Route, path, word, token string) bool {
	w.t.Helper()
	switch {
	case r.Access == AccessOps || r.Access == AccessLink || r.Access == AccessSQS || r.Access == AccessUI:
		return false // it reads no API token
	case r.data != nil || r.Access == AccessData: // the world has no data plane: this is what it asks
		c, err := w.cat, error(nil)
		if strings.Contains(r.Path, "{consumer}") {
			_, _, err = c.AuthorizeConsumer(context.Background(), "c", []byte(token), "k", []byte(token))
		} else {
			_, _, err = c.AuthorizeProducer(context.Background(), "c", []byte(token), []byte("p"), []byte(secret+"-p"))
			_, _, alone := c.AuthorizeProducer(context.Background(), "c", []byte(token), []byte("p"), []byte(token))
			require.Error(w.t, alone, "no scope stands for the token of a producer")
		}
		return err == nil
	}
	headers := []string{bearer(token)}
	if r.Access == AccessReceiver {
		headers = append(headers, "X-Broker-Consumer-ID: k")
	}
	switch {
	case r.Method == "PUT":
		headers = append(headers, formHeader)
	case r.Method == "DELETE" && strings.HasSuffix(r.Path, "}"): // it deletes nothing: scopes end with it
		headers = append(headers, `If-Match: "none"`)
	}
	answer := w.do(r.Method, path, "", headers...)
	for _, code := range refusedOf {
		if strings.Contains(answer.Body, `"code":"`+code+`"`) {
			require.Contains(w.t, []int{400, 401, 403}, answer.Status)
			return false
		}
	}
	return true
}

func TestAScopeIsNoMoreThanItSays(t *testing.T) {
	w := tokenWorld(t, nil)
	reader, _ := w.token("management:read")
	for _, path := range []string{"/producer/p", "/channel/c", "/channel/c/consumer/k"} {
		r := w.get(path, bearer(reader)).is(200)
		require.NotContains(t, r.Body, secret, "a token that reads is shown no token")
		require.Contains(t, w.get(path, adminHeader).is(200).Body, secret)
	}
	require.NotContains(t, w.get("/consumers", bearer(reader)).is(200).Body, secret)
	own, _ := w.token("consumer:c/k")
	require.NotContains(t, w.post("/channel/c/consumer/k/pause", bearer(own)).is(200).Body, secret)
	w.post("/channel/c/consumer/k/resume", bearer(own)).is(200)
	w.get("/channel/c/consumer/other/dlq", bearer(own)).problem(403, "out_of_scope")
	dead, _ := w.token("dlq")
	w.do("POST", "/channel/c/consumer/k/dlq/redrive", `{"Target":"other"}`, bearer(dead)).problem(403, "out_of_scope")
	team, _ := w.token("channel:c", "channel:e")
	w.put("/channel/d", "", adminHeader).is(201)
	w.put("/channel/e", "", adminHeader).is(201)
	w.put("/channel/c/consumer/k", "dlq=forward:d", bearer(team)).problem(403, "out_of_scope") // it writes to that channel
	w.put("/channel/c/consumer/k", "dlq=forward:e", bearer(team)).is(200)
	w.do("POST", "/channel/c/consumer/k/dlq", "", bearer(dead)).is(202)
	w.post("/channel/c/message/none/re-trigger", bearer(dead)).problem(403, "admin_token_mismatch")

	mixed, _ := w.token("channel:e", "management:read")
	for _, path := range []string{"/producer/p", "/channel/c", "/channel/c/consumer/k", "/consumers"} {
		require.NotContains(t, w.get(path, bearer(mixed)).is(200).Body, secret, "%s: another channel", path)
	}
	w.put("/group/g", "", adminHeader).is(200)
	w.put("/channel/c", "group=g", bearer(team)).problem(403, "out_of_scope") // a group is not of a channel
	w.put("/channel/c", "group=g", adminHeader).is(200)
	w.put("/channel/c", "group=", bearer(team)).problem(403, "out_of_scope")
	w.put("/channel/c", "group=g&name=C2", bearer(team)).is(200)
	other := "" // another broker takes the channel out of its group, and the copy does not know it yet
	_, _, err := w.store.PutChannel(t.Context(), durable.Put{ID: "c", Group: &other})
	require.NoError(t, err)
	w.put("/channel/c", "group=g", bearer(team)).problem(403, "out_of_scope")
	w.put("/channel/c", "group=", bearer(team)).is(200)
	w.put("/channel/c", "group=g", adminHeader).is(200)
	both, _ := w.token("channel:c")
	w.insert(durable.Message{Key: "m"})
	w.put("/producer/q", "token="+secret+"-q", adminHeader).is(201)
	w.get("/channel/c/message/m", bearer(both)).is(200)
	w.get("/channel/c/message/m", bearer(both), "X-Broker-Producer-ID: p", "X-Broker-Producer-Token: "+secret+"-p").is(200)
	w.get("/channel/c/message/m", bearer(both), "X-Broker-Producer-ID: q", "X-Broker-Producer-Token: "+secret+"-q").
		problem(404, "message_not_found") // it is of another producer
	w.get("/channel/c/message/m", bearer(both), "X-Broker-Producer-ID: p", "X-Broker-Producer-Token: x").
		problem(403, "producer_token_mismatch")
}

// A token of a group opens what one of each of its channels opens, while they carry it.
func TestAGroupIsThatOfTheChannelNow(t *testing.T) {
	w := tokenWorld(t, nil)
	w.put("/group/g", "", adminHeader).is(200)
	w.put("/group/h", "", adminHeader).is(201)
	token, _ := w.token("group:g")
	admits := func() (publish, claim error) {
		_, _, publish = w.cat.AuthorizeProducer(t.Context(), "c", []byte(token), []byte("p"), []byte(secret+"-p"))
		_, _, claim = w.cat.AuthorizeConsumer(t.Context(), "c", []byte(token), "k", []byte(token))
		return publish, claim
	}
	for _, group := range []string{"", "h"} {
		w.put("/channel/c", "group="+group, adminHeader).is(200)
		w.get("/channel/c", bearer(token)).problem(403, "out_of_scope")
		publish, claim := admits()
		require.ErrorIs(t, publish, catalogue.ErrChannelToken)
		require.ErrorIs(t, claim, catalogue.ErrChannelToken)
	}
	w.put("/channel/c", "group=g", adminHeader).is(200)
	w.get("/channel/c", bearer(token)).is(200)
	w.put("/channel/c/consumer/third", "type=pull", bearer(token)).is(201)
	publish, claim := admits()
	require.NoError(t, publish)
	require.NoError(t, claim)
	st, err := w.cat.AdmitConsumer(t.Context(), "c", []byte(token), "k", []byte(token))
	require.NoError(t, err)
	require.NoError(t, st.Check())

	for _, group := range []string{"h", ""} {
		w.put("/channel/c", "group="+group, bearer(token)).problem(403, "out_of_scope") // its limits are those of g
	}
	w.put("/channel/new", "group=g", bearer(token)).problem(403, "out_of_scope") // it carries no group yet
	w.get("/group/g", bearer(token)).problem(403, "out_of_scope")
	w.post("/group/g/pause", bearer(token)).problem(403, "out_of_scope")
	w.put("/channel/d", "", adminHeader).is(201)
	w.put("/channel/c/consumer/third", "dlq=forward:d", bearer(token)).problem(403, "out_of_scope")
	w.put("/channel/d", "group=g", adminHeader).is(200)
	w.put("/channel/c/consumer/third", "dlq=forward:d", bearer(token)).is(200)

	w.put("/channel/c", "group=h", adminHeader).is(200)
	require.ErrorIs(t, st.Check(), catalogue.ErrChannelToken, "a request under way ends, too")
	publish, claim = admits()
	require.ErrorIs(t, publish, catalogue.ErrChannelToken)
	require.ErrorIs(t, claim, catalogue.ErrChannelToken)
	w.get("/channel/c", bearer(token)).problem(403, "out_of_scope")
	w.get("/channel/d", bearer(token)).is(200)
}

// What outlives an API token is neither shown to it nor made by it.
func TestAScopeLeavesNoTokenBehind(t *testing.T) {
	w := tokenWorld(t, nil)
	w.put("/group/g", "", adminHeader).is(200)
	w.put("/channel/c", "group=g", adminHeader).is(200)
	manager, _ := w.token("management:write")
	for _, words := range [][]string{{"channel:c"}, {"group:g"}, {"channel:c", "channel:n", "dlq", "management:read"}} {
		token, _ := w.token(words...)
		for path, form := range map[string]string{"/channel/c": "name=C", "/channel/c/consumer/k": "name=K",
			"/channel/c/consumer/new": "type=pull"} {
			w.put(path, form+"&token="+secret+"-mine", bearer(token)).problem(403, "out_of_scope")
			r := w.do("PUT", path, form, bearer(token), formHeader)
			require.Contains(t, []int{200, 201}, r.Status, r.Body)
			require.Contains(t, r.Body, `"Token":""`, path)
			seen := w.get(path, bearer(token)).is(200)
			require.Contains(t, seen.Body, `"Token":""`, path)
			w.do("PUT", path, form, bearer(token), formHeader, "If-Match: "+seen.Header("ETag")).is(200)
			w.post(path+"/rotate-token", bearer(token)).problem(403, "out_of_scope")
		}
		w.post("/channel/c/sqs-key", bearer(token)).problem(403, "out_of_scope")
		w.get("/channel/c/sqs-key", bearer(token)).is(200)
		w.get("/channel/c/consumer/k/dlq", tokens("k")...).is(200)
	}
	token, _ := w.token("channel:n")
	require.Contains(t, w.put("/channel/n", "", bearer(token)).is(201).Body, `"Token":""`)
	require.NotContains(t, w.get("/channel/n", bearer(manager)).is(200).Body, `"Token":""`)
	w.post("/channel/c/sqs-key", bearer(manager)).is(201)
	w.post("/channel/n/rotate-token", bearer(manager)).is(200)
}

// With BROKER_SHOW_TOKENS=false a token is in the answer of the request that made or brought it, and in no other.
func TestAHiddenTokenIsShownOnce(t *testing.T) {
	w := tokenWorld(t, func(o *Options) { o.HideTokens = true })
	const hidden = `"Token":""`
	manager, _ := w.token("management:write")
	narrow, _ := w.token("channel:c", "channel:n")
	for path, form := range map[string]string{"/producer/n": "", "/channel/n": "", "/channel/c/consumer/n": "type=pull&"} {
		for _, who := range []string{adminHeader, bearer(manager)} {
			made := w.do("PUT", path, form+"&token="+secret+"-"+who[:2], who, formHeader)
			require.Contains(t, made.Body, secret+"-"+who[:2])
			seen := w.get(path, who).is(200)
			require.Contains(t, seen.Body, hidden)
			require.Equal(t, made.Header("ETag"), seen.Header("ETag"))
			changed := w.do("PUT", path, form+"name=O"+who[:1], who, formHeader, "If-Match: "+made.Header("ETag")).is(200)
			require.Contains(t, changed.Body, hidden)
			require.Equal(t, changed.Header("ETag"), w.get(path, who).Header("ETag"))
			require.NotContains(t, w.post(path+"/rotate-token", who).is(200).Body, hidden)
		}
	}
	generated := w.put("/producer/g", "", adminHeader).is(201)
	require.NotContains(t, generated.Body, hidden)
	require.Contains(t, w.put("/channel/c/consumer/g", "type=pull", bearer(narrow)).is(201).Body, hidden)
	require.NotContains(t, w.get("/consumers", adminHeader).is(200).Body, secret)
	w.post("/channel/c/pause", adminHeader).is(200)
	require.Contains(t, w.post("/channel/c/resume", adminHeader).is(200).Body, hidden)
	w.get("/channel/c/consumer/k/dlq", tokens("k")...).is(200)
}

func TestAnAddressWithTooManyWrongTokensIsLimited(t *testing.T) {
	w := tokenWorld(t, func(o *Options) {
		o.Lockout = lockout.New(5, nil)
		o.Proxies, _ = forwarded.Parse([]string{"127.0.0.0/8"})
	})
	mine, other := "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2"
	token, _ := w.token("management:read")
	for range 3 {
		w.get("/channels", bearer("guess"), mine).problem(403, "admin_token_mismatch")
	}
	w.get("/channels", mine).problem(401, "token_missing")
	w.get("/channel/c/consumer/k/dlq", append(tokens("x"), mine)...).problem(403, "consumer_token_mismatch")
	w.get("/channel/c/consumer/k/dlq", bearer("pst_guess"), mine).problem(403, "api_token_mismatch")
	for _, headers := range [][]string{{bearer("guess")}, {adminHeader}, {bearer(adminToken)}, {bearer(token)}} {
		r := w.get("/channels", append(headers, mine)...).problem(429, "too_many_failures")
		require.Regexp(t, `^([1-9]|[1-5]\d|60)$`, r.Header("Retry-After"))
	}
	right := w.get("/channel/c/consumer/k/dlq", bearer(adminToken), mine).problem(429, "too_many_failures")
	wrong := w.get("/channel/c/consumer/k/dlq", bearer("guess"), mine).problem(429, "too_many_failures")
	require.Equal(t, strings.ReplaceAll(right.Body, right.Header("X-Request-ID"), ""), strings.ReplaceAll(wrong.Body,
		wrong.Header("X-Request-ID"), ""), "the answer does not say which token was right")
	w.get("/channel/c/consumer/k/dlq", append(tokens("k"), mine)...).is(200)
	w.get("/channel/c/consumer/k/dlq", append(tokens("x"), mine)...).problem(429, "too_many_failures")
	for _, guess := range []string{"guess", adminToken} { // nor does a channel that is none
		w.get("/channel/none/consumer/k/dlq", bearer(guess), mine).problem(429, "too_many_failures")
	}
	third := "X-Forwarded-For: 192.0.2.3"
	for range 5 {
		w.get("/channel/none/consumer/k/dlq", bearer("guess"), third).problem(404, "channel_not_found")
	}
	w.get("/channels", adminHeader, third).problem(429, "too_many_failures")
	w.get("/readyz", mine).is(200)
	w.get("/channels", adminHeader, other).is(200)
	w.get("/channels", adminHeader).is(200)
}

func TestARotationLeavesBothTokensForAWhile(t *testing.T) {
	w := tokenWorld(t, nil)
	for path, old := range map[string]string{"/producer/p": secret + "-p", "/channel/c": secret + "-c",
		"/channel/c/consumer/k": secret + "-k"} {
		r := w.put0("POST", path+"/rotate-token", "overlap=24h", adminHeader).is(200).json()
		require.NotEmpty(t, r["FormerEndsAt"])
		require.NotEqual(t, old, r["Token"])
		require.Equal(t, r["Token"], w.get(path, adminHeader).json()["Token"])
	}
	w.get("/channel/c/consumer/k/dlq", tokens("k")...).is(200)
	ch, k := w.cat.Channel("c").Token, w.cat.Consumer("c", "k").Token
	w.get("/channel/c/consumer/k/dlq", "X-Broker-Channel-Token: "+ch, "X-Broker-Consumer-Token: "+k).is(200)
	day := time.Now().Add(24*time.Hour + time.Minute)
	w.cat.UseSecrets(catalogue.Secrets{NowMs: func() int64 { return day.UnixMilli() }})
	w.get("/channel/c/consumer/k/dlq", tokens("k")...).problem(403, "channel_token_mismatch")
	w.get("/channel/c/consumer/k/dlq", "X-Broker-Channel-Token: "+ch, "X-Broker-Consumer-Token: "+k).is(200)

	r := w.post("/channel/c/consumer/k/rotate-token", adminHeader).is(200).json()
	require.NotContains(t, r, "FormerEndsAt")
	w.get("/channel/c/consumer/k/dlq", "X-Broker-Channel-Token: "+ch, "X-Broker-Consumer-Token: "+k).problem(403,
		"consumer_token_mismatch")
	for _, overlap := range []string{"31d", "-1h", "soon", "1"} {
		w.put0("POST", "/producer/p/rotate-token", "overlap="+overlap, adminHeader).problem(400, "invalid_overlap")
	}
	w.put0("POST", "/producer/p/rotate-token", "overlaps=1h", adminHeader).problem(400, "unknown_field")
	w.post("/producer/none/rotate-token", adminHeader).problem(404, "producer_not_found")
	w.post("/channel/none/rotate-token", adminHeader).problem(404, "channel_not_found")
	w.post("/channel/none/consumer/k/rotate-token", adminHeader).problem(404, "channel_not_found")
	w.post("/channel/c/consumer/none/rotate-token", adminHeader).problem(404, "consumer_not_found")
	w.post("/channel/~alerts/rotate-token", adminHeader).problem(400, "reserved_name")
	w.post("/producer/p/rotate-token").problem(401, "token_missing")
}

func (w *world) put0(method, path, form string, headers ...string) reply {
	w.t.Helper()
	return w.do(method, path, form, append(headers, formHeader)...)
}

// session logs in with a token and returns the cookie.
func (w *world) session(token string) string {
	w.t.Helper()
	r := w.do("POST", "/ui/login", url.Values{"token": {token}}.Encode(), formHeader).is(303)
	cookie, _, _ := strings.Cut(r.Header("Set-Cookie"), ";")
	require.NotContains(w.t, cookie, token)
	return "Cookie: " + cookie
}

func TestALoginByAnAPITokenOpensItsPages(t *testing.T) {
	w := tokenWorld(t, nil)
	w.api.o.UI = ui.New(ui.Options{AdminToken: adminToken, Key: []byte(secret), Version: "1", AllowDelete: true})
	const kPage, cPage = "/ui/channel/c/consumer/k", "/ui/channel/c"
	pages := []string{"/ui/", "/ui/channels", "/ui/consumers", "/ui/dlq", "/ui/brokers", "/ui/publish", "/ui/search?q=c",
		cPage, kPage, "/ui/channel/c/consumer/other", "/ui/dlq?channel=c&consumer=k", "/ui/dlq?channel=c&consumer=other",
		"/ui/scheduled?channel=c", "/ui/bulks?channel=d", cPage + "/action/pause", kPage + "/action/pause", kPage +
			"/action/purge", kPage + "/action/redrive"}
	w.put("/group/g", "", adminHeader).is(200)
	w.put("/channel/c", "group=g", adminHeader).is(200)
	for word, want := range map[string]string{ // status of each page: 200, 303, 403, 404
		"management:read":  "2222242222222n4444",
		"management:write": "2222222222222n2222",
		"channel:c":        "344444422222242222",
		"group:g":          "344444422222242222",
		"group:h":          "344444444444444444",
		"channel:d":        "3444444444444n4444",
		"consumer:c/k":     "344444442424444242",
		"dlq":              "344244444422444442",
	} {
		token, id := w.token(word)
		cookie := w.session(token)
		got := ""
		for _, page := range pages {
			r := w.get(page, cookie)
			got += map[int]string{200: "2", 303: "3", 403: "4", 404: "n"}[r.Status]
			if word == "management:read" && r.Status == 200 {
				require.NotContains(t, r.Body, `class="button`, "%s has no action", page)
				require.NotContains(t, r.Body, secret+"-", page)
			}
		}
		require.Equal(t, want, got, word)
		if word == "group:g" {
			require.Equal(t, "/ui/channels?group=g", w.get("/ui/", cookie).is(303).Header("Location"))
			require.Contains(t, w.get("/ui/channels?group=g", cookie).is(200).Body, cPage)
			w.get("/ui/channels?group=h", cookie).is(403)
		}
		w.do("DELETE", "/tokens/"+id, "", adminHeader).is(204)
		require.Contains(t, w.get(kPage, cookie).is(303).Header("Location"), "/ui/login", "the session ends with its token")
	}
	w.do("POST", "/ui/login", "token=pst_x", formHeader).is(403)
	w.get("/ui/", w.session(adminToken)).is(200)
}

// tokenExchanges are requests to the routes of tokens.
func tokenExchanges(w *world) (all []wired) {
	do := func(status int, method, route, path, body string, headers ...string) reply {
		w.t.Helper()
		r := w.do(method, path, body, headers...).is(status)
		all = append(all, wired{method + " " + route, method + " " + path, r})
		return r
	}
	w.put("/producer/rotates", "").is(201)
	w.put("/channel/rotates", "").is(201)
	w.put("/channel/rotates/consumer/k", "type=pull").is(201)
	for route, path := range map[string]string{"/producer/{producer}": "/producer/rotates",
		"/channel/{channel}": "/channel/rotates", "/channel/{channel}/consumer/{consumer}": "/channel/rotates/consumer/k"} {
		do(200, "POST", route+"/rotate-token", path+"/rotate-token", "overlap=1h", formHeader)
	}
	made := do(201, "POST", "/tokens", "/tokens", `{"Name":"t","Scopes":["channel:c"],"Expires":"1h"}`).json()
	_, err := w.cat.Grant(w.t.Context(), []byte(made["Token"].(string)))
	require.NoError(w.t, err)
	do(200, "GET", "/tokens", "/tokens", "")
	do(204, "DELETE", "/tokens/{token}", "/tokens/"+made["ID"].(string), "")
	return all
}
