package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

const jsonHeader = "Content-Type: application/json"

func TestAJSONBodyIsTheFormOfTheSameFields(t *testing.T) {
	for text, want := range map[string]form{
		`{}`:                       {},
		" \n{ } \t":                {},
		`{"Name":"n","token":"t"}`: {"name": "n", "token": "t"},
		`{"callbackurl":"http://h/?a=1&b=%zz;c"}`: {"callbackUrl": "http://h/?a=1&b=%zz;c"},
		`{"CallbackURL":"u","Policy":{"MaxRetries":3,"Ordered":true,"Ttl":"0"}}`: {"callbackUrl": "u", "maxRetries": "3",
			"ordered": "true", "ttl": "0"},
		`{"maxRetries":"3","RETRYSHARE":100,"policy":{"statusURL":"s","DLQ":"keep"}}`: {"maxRetries": "3",
			"retryShare": "100", "statusUrl": "s", "dlq": "keep"},
		`{"maxRetries":3.0,"concurrency":1e3,"responseMaxBytes":-0,"tombstoneAfter":1.5,"retryShare":1e999}`: {
			"maxRetries": "3", "concurrency": "1000", "responseMaxBytes": "0", "tombstoneAfter": "1.5", "retryShare": "1e999"},
		`{"token":123456789012345678901234567890}`:                           {"token": "123456789012345678901234567890"},
		`{"Name":null,"Policy":null,"Type":null,"Inherited":null,"ID":null}`: {},
		`{"Policy":{"Timeout":null,"Backoff":""},"adaptive":false}`: {"backoff": "",
			"adaptive": "false"},
		`{"Queued":7,"InFlight":null,"Since":null,"HeldUntil":"x","State":["ACTIVE"],"Rate":{"a":[1]}}`: {},
		`{"\u004eame":"\u00e4\ud83d\ude00\n"}`:                                                          {"name": "ä😀\n"},
	} {
		d, err := consumerBody.parseJSON([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, d.form, text)
		require.True(t, d.json)
	}
	d, err := consumerBody.parseJSON([]byte(`{"ID":"k","Inherited":["Timeout","maxretries","what"]}`))
	require.NoError(t, err)
	require.Equal(t, "k", d.id)
	require.Equal(t, map[string]bool{"timeout": true, "maxRetries": true}, d.inherited)
	d, err = channelBody.parseJSON([]byte(`{"ConsumersURL":"x","Identity":"producer","LATENCYBUDGET":"1s"}`))
	require.NoError(t, err)
	require.Equal(t, form{"identity": "producer", "latencyBudget": "1s"}, d.form)
}

func TestBadJSONIsRefusedWithoutQuotingItsValues(t *testing.T) {
	for text, want := range map[string][2]string{
		`[]`:                                             {"invalid_json", "JSON object"},
		`null`:                                           {"invalid_json", "JSON object"},
		`"s3cret"`:                                       {"invalid_json", "JSON object"},
		`{"Token":"s3cret"`:                              {"invalid_json", "one JSON object"},
		`{"Token":"s3cret"}}`:                            {"invalid_json", "nothing after it"},
		`{"Token":"s3cret"} {}`:                          {"invalid_json", "nothing after it"},
		`{"Token":"s3cret",}`:                            {"invalid_json", "one JSON object"},
		"\ufeff{}":                                       {"invalid_json", "one JSON object"},
		"{\"Token\":\"s3cret\xff\"}":                     {"invalid_json", "UTF-8"},
		`{"Token":"\ud800s3cret"}`:                       {"invalid_json", "The member token has half"},
		`{"Token":["s3cret"]}`:                           {"invalid_json", "The member token must be a text, a number"},
		`{"Token":{"s3cret":1}}`:                         {"invalid_json", "The member token must be a text, a number"},
		`{"Policy":[]}`:                                  {"invalid_json", "JSON object"},
		`{"Policy":{"Timeout":{}}}`:                      {"invalid_json", "The member timeout "},
		`{"Policy":{"Policy":{}}}`:                       {"unknown_field", `"Policy", which`},
		`{"Policy":{"Name":"s3cret"}}`:                   {"unknown_field", `"Name", which`},
		`{"Inherited":"s3cret"}`:                         {"invalid_json", "Inherited must be a list"},
		`{"ID":7e2,"ID":"k"}`:                            {"duplicate_field", "member ID"},
		`{"Name":"a","name":"a"}`:                        {"duplicate_field", "member name"},
		`{"Name":null,"NAME":"a"}`:                       {"duplicate_field", "member name"},
		`{"Queued":1,"queued":1}`:                        {"duplicate_field", "member Queued"},
		`{"maxRetries":1,"Policy":{"MaxRetries":1}}`:     {"duplicate_field", "member maxRetries"},
		`{"Policy":{},"policy":{}}`:                      {"duplicate_field", "member Policy"},
		`{"callback_url":"s3cret"}`:                      {"unknown_field", "Did you mean callbackUrl?"},
		`{"Tokne":"s3cret"}`:                             {"unknown_field", "Did you mean token?"},
		`{"Policy":{"Retries":1}}`:                       {"unknown_field", "Did you mean maxRetries?"},
		`{"\u212aame":"s3cret"}`:                         {"unknown_field", "which this route"},
		`{"":"s3cret"}`:                                  {"unknown_field", "which this route"},
		`{"Token":"` + strings.Repeat("x", 1<<16) + `"}`: {"body_too_large", "65536"},
		`{"Queued":` + strings.Repeat(`{"a":`, 11_000):   {"invalid_json", "one JSON object"},
		`{"Queued":` + strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001) + `}`: {"invalid_json", "one JSON object"},
		strings.Repeat(`{"a":`, 11_000): {"unknown_field", `"a", which`},
		`{"Queued":"\ud800"}`:           {"invalid_json", "The body has half"},
		"{\"Queued\":[\"\xff\"]}":       {"invalid_json", "The body is not UTF-8"},
		`{"\udfff":1}`:                  {"invalid_json", "The body has half"},
	} {
		_, err := consumerBody.parseJSON([]byte(text))
		require.Equal(t, want[0], codeOf(t, err), text)
		require.Contains(t, err.Error(), want[1], text)
		require.NotContains(t, err.Error(), "s3cret", text)
	}
	_, err := channelBody.parseJSON([]byte(`{"Policy":{}}`))
	require.Equal(t, "unknown_field", codeOf(t, err))
	_, err = (&bodyKind{}).parseJSON([]byte(`{"until":1}`))
	require.Contains(t, err.Error(), "this route takes none")
}

// What GET shows is what PUT takes: no member of an answer is unknown.
func TestEachMemberThatGETShowsIsKnownToPUT(t *testing.T) {
	for _, c := range []struct {
		kind *bodyKind
		view any
	}{
		{&producerBody, apitype.Producer{}}, {&channelBody, apitype.Channel{}}, {&consumerBody, apitype.Consumer{}},
		{&groupBody, apitype.Group{}},
	} {
		text, err := json.Marshal(c.view)
		require.NoError(t, err)
		_, err = c.kind.parseJSON(text)
		require.NoError(t, err)
		for _, name := range membersOf(c.view) {
			_, err = c.kind.parseJSON([]byte(`{"` + strings.ToUpper(name) + `":null}`))
			require.NoError(t, err, name)
		}
	}
}

// FuzzJSON: a body is refused, or each field of its form is one of the route; the same body again gives
// the same form, and what a form says survives JSON.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"Name":"a","Policy":{"MaxRetries":3}}`, `{"token":1e2}`,
		`{"Inherited":["Ttl"],"ttl":"0s"}`, `{"ID":"x"}`, `[[[`, `{"a":{"a":[1,2,{}]}}`, "{\"\xff\":1}", `{"name":"\ud800"}`,
		`{"maxRetries":1,"Policy":{"maxRetries":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := consumerBody.parseJSON(body)
		if err != nil {
			codeOf(t, err)
			return
		}
		for name := range d.form {
			require.Contains(t, consumerFields, name)
		}
		text, err := json.Marshal(d.form)
		require.NoError(t, err)
		if len(text) > maxFormBytes {
			return
		}
		again, err := consumerBody.parseJSON(text)
		require.NoError(t, err)
		require.Equal(t, d.form, again.form)
	})
}

func TestWhatGETShowsOfEachResourceMayBePUTAgain(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxStored = 1 << 20 })
	w.channel()
	whsec := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	w.put("/producer/q",
		"statusEvents=all&maxScheduled=7&publishSecret=0123456789abcdef&replyUrl=http://localhost/r&signingSecret="+
			whsec).is(201)
	w.put("/channel/d", "duplicates=acknowledge").is(201)
	w.put("/channel/c/consumer/push",
		"callbackUrl=http://localhost/&protocol=h2&maxRetries=3&ordered=true&headers=X-A:+b&authorization=basic+u:p&identity=minimal&signingSecret="+whsec).is(201)
	w.put("/channel/c/consumer/push", "signingSecret=generate").is(200)
	w.put("/channel/c/consumer/plain", "callbackUrl=http://localhost/").is(201)
	w.put("/channel/c/consumer/pull", "type=pull&since=2026-01-01T00:00:00Z&timeout=90s").is(201)
	for _, path := range []string{"/producer/p", "/producer/q", "/channel/c", "/channel/d", "/channel/c/consumer/push",
		"/channel/c/consumer/plain", "/channel/c/consumer/pull"} {
		before := w.get(path).is(200)
		after := w.do("PUT", path, before.Body, jsonHeader, "If-Match: "+before.Header("ETag")).is(200)
		require.Equal(t, before.Header("ETag"), after.Header("ETag"), path)
		require.Equal(t, before.Header("Last-Modified"), after.Header("Last-Modified"), path)
		require.JSONEq(t, before.Body, w.get(path).Body, path)
	}
	stored := w.cat.Consumer("c", "push")
	set := w.api.o.Policies.Of(stored.Policy)
	require.Equal(t, policy.Secret(whsec), set.SigningSecretPrevious, "the secrets are not lost")
	require.NotEqual(t, policy.Secret(whsec), set.SigningSecret)
	require.Equal(t, "basic u:p", set.Authorization.String())
	require.Equal(t, policy.Secret(whsec), policy.SenderOf(w.cat.Producer("q").Settings).SigningSecret)
	require.NotEmpty(t, w.cat.Producer("q").PublishSecret)
}

func TestWhatGETShowsMayBeEditedAndPUT(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	path := "/channel/c/consumer/k"
	w.put(path, "callbackUrl=http://localhost/&timeout=7s").is(201)
	old := w.get(path).is(200).Body
	edited := strings.Replace(strings.Replace(old, `"MaxRetries":"5"`, `"MaxRetries":9`, 1), `"Adaptive":"false"`,
		`"Adaptive":true`, 1)
	v := w.do("PUT", path, edited, jsonHeader).is(200).json()
	shown := v["Policy"].(map[string]any)
	require.Equal(t, []any{"9", "true", "7s"}, []any{shown["MaxRetries"], shown["Adaptive"], shown["Timeout"]})
	require.Equal(t, inheritedWithout("MaxRetries", "Adaptive", "Timeout"), v["Inherited"])

	v = w.do("PUT", path, old, jsonHeader).is(200).json() // as it was: the settings are the installation's again
	require.Equal(t, inheritedWithout("Timeout"), v["Inherited"])

	// Without Inherited a value is set, also that of the installation, as in a form.
	v = w.do("PUT", path, `{"Policy":{"MaxRetries":5}}`, jsonHeader).is(200).json()
	require.Equal(t, inheritedWithout("Timeout", "MaxRetries"), v["Inherited"])

	// A copy under another ID needs its own ID, and inherits what the original does.
	w.do("PUT", "/channel/c/consumer/copy", old, jsonHeader).problem(400, "invalid_id")
	copied := strings.Replace(old, `"ID":"k",`, ``, 1)
	v = w.do("PUT", "/channel/c/consumer/copy", copied, jsonHeader).is(201).json()
	require.Equal(t, inheritedWithout("Timeout"), v["Inherited"])
}

func TestAMaskedSecretKeepsTheStoredOneAndIsNone(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	path := "/channel/c/consumer/k"
	w.put(path, "callbackUrl=http://localhost/&authorization=bearer+t0ken").is(201)
	for _, body := range []string{`{"Policy":{"Authorization":"bearer ***"}}`,
		`{"authorization":"bearer ***","maxRetries":2}`} {
		w.do("PUT", path, body, jsonHeader).is(200)
	}
	w.put(path, "authorization=bearer+***").is(200)
	require.Equal(t, "bearer t0ken", w.api.o.Policies.Of(w.cat.Consumer("c", "k").Policy).Authorization.String())
	for _, masked := range []string{`{"Authorization":"basic ***"}`, `{"SigningSecret":"whsec_***"}`} {
		require.Contains(t, w.do("PUT", path, masked, jsonHeader).problem(400, "invalid_policy").Body, "is masked")
	}
	w.do("PUT", "/channel/c/consumer/new", `{"CallbackURL":"http://localhost/","Authorization":"bearer ***"}`,
		jsonHeader).problem(400, "invalid_policy")
	w.do("PUT", "/producer/p", `{"SigningSecret":"whsec_***"}`, jsonHeader).problem(400, "invalid_policy")
}

func TestAPUTWithoutABodySetsDefaults(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/producer/p", "/channel/c"} {
		require.Equal(t, path[strings.LastIndex(path, "/")+1:], w.do("PUT", path, "").is(201).json()["Name"])
		before := w.get(path).Body
		w.do("PUT", path, "").is(200)
		require.Equal(t, before, w.get(path).Body)
	}
	w.do("PUT", "/channel/c/consumer/k", "").problem(400, "callback_required")
	w.do("PUT", "/channel/c/consumer/k", `{"Type":"pull"}`, jsonHeader).is(201)
	before := w.get("/channel/c/consumer/k").Body
	w.do("PUT", "/channel/c/consumer/k", "").is(200)
	w.do("PUT", "/channel/c/consumer/k", "", jsonHeader).is(200)
	require.Equal(t, before, w.get("/channel/c/consumer/k").Body)
	for _, c := range [][2]string{{"", "text/plain"}, {"name=x", ""}, {"{}", "application/json; charset=latin1"},
		{"{}", "text/json"}, {"<a/>", "application/xml"}} {
		headers := []string{}
		if c[1] != "" {
			headers = append(headers, "Content-Type: "+c[1])
		}
		w.do("PUT", "/channel/c", c[0], headers...).problem(415, "unsupported_media_type")
	}
	require.Contains(t, w.put("/channel/c", `{"Name":"n"}`).problem(400, "unknown_field").Body, "JSON needs Content-Type")
	w.do("PUT", "/channel/c", `{"name":"n"}`, "Content-Type: application/json;charset=UTF-8").is(200)
}

func TestFormsOfOtherRoutesTakeJSONToo(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	dlq := "/channel/c/consumer/k/dlq"
	w.do("POST", dlq, `{"Requeue":"`+secret+`-k"}`, jsonHeader).is(202)
	w.do("POST", dlq, `{"requeue":"`+secret+`-x"}`, jsonHeader, bearer(secret+"-k")).problem(400, "requeue_token_mismatch")
	w.do("POST", dlq, `{"token":"`+secret+`-k"}`, jsonHeader).problem(400, "unknown_field")
	w.post(dlq, bearer(secret+"-k")).is(202)
	w.post(dlq, tokens("k")[1]).is(202)
	w.post(dlq, bearer(secret+"-x")).problem(400, "requeue_token_mismatch")
	w.post(dlq).problem(400, "requeue_token_mismatch")
	w.post("/producer/p/dlq", bearer(secret+"-p")).is(202)
	w.post("/producer/p/dlq", bearer(secret+"-k")).problem(400, "requeue_token_mismatch")
	for _, verb := range []string{"/pause", "/resume"} {
		w.do("POST", "/channel/c"+verb, `{"until":"tomorrow"}`, jsonHeader).problem(400, "unknown_field")
		w.do("POST", "/channel/c"+verb, `{`, jsonHeader).problem(400, "invalid_json")
		for _, none := range []string{"{}", "null", ""} {
			w.do("POST", "/channel/c"+verb, none, jsonHeader).is(200)
		}
	}
}

func BenchmarkJSONForm(b *testing.B) {
	body := []byte(`{"ID":"k","Name":"orders","CallbackURL":"http://127.0.0.1/","Token":"t","Policy":{"MaxRetries":3,` +
		`"Timeout":"5s","Ordered":true},"Queued":7}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := consumerBody.parseJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}
