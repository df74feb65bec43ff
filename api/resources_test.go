package api

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// lastModified returns the Last-Modified of an answer, which must have one.
func (r reply) lastModified() time.Time {
	r.t.Helper()
	at, err := http.ParseTime(r.Header("Last-Modified"))
	require.NoError(r.t, err, "%d %s", r.Status, r.Body)
	require.NotEmpty(r.t, r.Header("ETag"))
	return at
}

func TestProducerIsCreatedReadAndUpdated(t *testing.T) {
	w := newWorld(t, nil)
	r := w.put("/producer/p", "name=My+Producer&token="+secret).is(201)
	require.Equal(t, "/producer/p", r.Header("Location"))
	v := r.json()
	require.Len(t, v, 4)
	require.Equal(t, "p", v["ID"])
	require.Equal(t, "My Producer", v["Name"])
	require.Equal(t, secret, v["Token"])
	changed, err := time.Parse(time.RFC3339, v["ChangedAt"].(string))
	require.NoError(t, err)
	require.True(t, changed.Equal(r.lastModified()), "ChangedAt is Last-Modified")
	require.WithinDuration(t, time.Now(), changed, 10*time.Second)

	g := w.get("/producer/p").is(200)
	require.Equal(t, r.Body, g.Body)
	require.Equal(t, r.Header("Last-Modified"), g.Header("Last-Modified"))

	r = w.put("/producer/p", "name=Other").is(200)
	require.Equal(t, "Other", r.json()["Name"])
	require.Equal(t, secret, r.json()["Token"], "an absent token keeps the old one")
	require.Empty(t, r.Header("Location"))
	r = w.put("/producer/p", "token="+secret+"2").is(200)
	require.Equal(t, "Other", r.json()["Name"], "an absent name keeps the old one")
	require.Equal(t, secret+"2", r.json()["Token"])
	require.Equal(t, 3, w.announced, "each change is announced")
}

func TestChannelShowsItsLinks(t *testing.T) {
	w := newWorld(t, nil)
	r := w.put("/channel/c", "token="+secret).is(201)
	v := r.json()
	delete(v, "ChangedAt")
	require.Equal(t, map[string]any{
		"ID": "c", "Name": "c", "Token": secret,
		"ConsumersURL": "/channel/c/consumers", "MessagesURL": "/channel/c/messages", "BroadcastURL": "/channel/c/broadcast",
		"State": "ACTIVE", "Duplicates": "refuse", "Identity": "channel", "Ack": "durable", "LatencyBudget": "65ms",
		"ExpectEvery": "0s", "PublishRate": "none", "Group": "",
	}, v)
	require.Equal(t, r.Body, w.get("/channel/c").is(200).Body)
	for _, link := range []string{"/channel/c/consumers", "/channel/c/messages"} {
		w.get(link).is(200)
	}
}

func TestConsumerIsCreatedReadAndUpdated(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	r := w.put("/channel/c/consumer/k", "token="+secret+"&callbackUrl="+
		url.QueryEscape("https://example.com/cb?a=b&c=%2F")).is(201)
	require.Equal(t, "/channel/c/consumer/k", r.Header("Location"))
	v := r.json()
	delete(v, "ChangedAt")
	delete(v, "StateChangedAt")
	require.Equal(t, map[string]any{
		"State": "ACTIVE", "StateReason": "", "Rate": "NORMAL", "Queued": 0.0, "InFlight": 0.0, "DeadLetters": 0.0,
		"ID": "k", "Name": "k", "Token": secret, "CallbackURL": "https://example.com/cb?a=b&c=%2F",
		"DeadLetterQueueURL": "/channel/c/consumer/k/dlq", "Type": "push",
		"Policy":    policyWith(nil),
		"Inherited": inheritedWithout(),
	}, v)
	require.Equal(t, r.Body, w.get("/channel/c/consumer/k").is(200).Body)

	require.Equal(t, "pull", w.put("/channel/c/consumer/k", "type=pull").is(200).json()["Type"])
	v = w.put("/channel/c/consumer/k", "name=K").is(200).json()
	require.Equal(t, "pull", v["Type"], "an absent type keeps the old one")
	require.Equal(t, "https://example.com/cb?a=b&c=%2F", v["CallbackURL"])
	require.Equal(t, "push", w.put("/channel/c/consumer/k", "type=").is(200).json()["Type"], "an empty type is push")
	require.Equal(t, "h2", w.put("/channel/c/consumer/k", "protocol=h2").is(200).json()["Protocol"])
	require.NotContains(t, w.put("/channel/c/consumer/k", "protocol=").is(200).json(), "Protocol")
}

// policyWith is the shown policy of a consumer of the test world that sets these members.
func policyWith(own map[string]any) map[string]any {
	shown := map[string]any{}
	for _, s := range testPolicies().Show("", false) {
		shown[s.Name] = s.Value
	}
	maps.Copy(shown, own)
	return shown
}

// inheritedWithout lists the members that a consumer does not set.
func inheritedWithout(own ...string) []any {
	inherited := []any{}
	for _, s := range testPolicies().Show("", false) {
		if !slices.Contains(own, s.Name) {
			inherited = append(inherited, s.Name)
		}
	}
	return inherited
}

func TestAConsumerMaySetItsPolicy(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.put("/channel/c/consumer/k", "callbackUrl=http://localhost/&timeout=1500ms&retryOn=5xx,404").is(201)
	v := w.put("/channel/c/consumer/k", "backoff=constant:30s&maxRetries=3").is(200).json()
	require.Equal(t, policyWith(map[string]any{"Timeout": "1.5s", "MaxRetries": "3", "MaxLeasesLost": "3",
		"Backoff": "constant:30s",
		"RetryOn": "404,5xx"}), v["Policy"], "absent fields stay")
	require.Equal(t, inheritedWithout("Timeout", "MaxRetries", "Backoff", "RetryOn"), v["Inherited"])
	v = w.put("/channel/c/consumer/k", "timeout=").is(200).json()
	require.Equal(t, "30s", v["Policy"].(map[string]any)["Timeout"], "an empty one goes back to the default")
	require.Equal(t, inheritedWithout("MaxRetries", "Backoff", "RetryOn"), v["Inherited"])
	require.Equal(t, v, w.get("/channel/c/consumer/k").is(200).json())
	for _, wrong := range []string{"timeout=0s", "timeout=5", "timeout=2h", "maxRetries=-1", "maxRetries=1001",
		"backoff=5s,x", "backoff=constant:1s,2s", "retryOn=6xx", "retryOn=" + strings.Repeat("x", 100)} {
		name, _, _ := strings.Cut(wrong, "=")
		r := w.put("/channel/c/consumer/k", "name=changed&"+wrong).problem(400, "invalid_policy")
		require.Contains(t, r.Body, name)
	}
	require.Equal(t, v, w.get("/channel/c/consumer/k").is(200).json(), "what is refused changes nothing")
	w.put("/channel/c", "timeout=5s").problem(400, "unknown_field")
}

func TestPullConsumersNeedNoCallbackAndPushConsumersDo(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	require.Equal(t, "", w.put("/channel/c/consumer/pull", "type=pull").is(201).json()["CallbackURL"])
	w.put("/channel/c/consumer/push", "").problem(400, "callback_required")
	w.put("/channel/c/consumer/push", "type=push&callbackUrl=").problem(400, "callback_required")
	w.get("/channel/c/consumer/push").problem(404, "consumer_not_found")
	w.put("/channel/c/consumer/pull", "type=push").problem(400, "callback_required")
	require.Equal(t, "pull", w.get("/channel/c/consumer/pull").json()["Type"])
}

func TestARefusedConsumerUpdateChangesNothing(t *testing.T) {
	refused := "http://169.254.169.254/"
	w := newWorld(t, func(o *Options) {
		o.CheckCallback = func(u string) error {
			if u == refused {
				return fmt.Errorf("link-local address")
			}
			return nil
		}
	})
	w.channel()
	w.consumer("k", "push")
	before := w.get("/channel/c/consumer/k").Body
	for form, code := range map[string]string{
		"name=x&type=poll": "invalid_type", "name=x&type=PUSH": "invalid_type", "name=x&type=push+": "invalid_type",
		"name=x&callbackUrl=ftp://a/": "invalid_callback", "name=x&callbackUrl=/cb": "invalid_callback",
		"name=x&callbackUrl=http://u:" + secret + "@a/": "invalid_callback", "name=x&callbackUrl=" +
			refused: "callback_refused",
		"name=x&protocol=h3": "invalid_protocol", "name=x&token=a+b": "invalid_token",
		"name=x&callbackUrl=":                      "callback_required",
		"token=x&name=" + strings.Repeat("n", 256): "invalid_name", "name=x&token=" + strings.Repeat("n",
			256): "invalid_token",
		"name=x&callbackUrl=http://h/x?a=1&b=2": "unknown_field", "name=x&callbackURL=http://h/": "unknown_field",
		"tokne=x": "unknown_field", "name=x&requeue=x": "unknown_field",
		"name=x&name=x": "duplicate_field", "name=x&token=%zz": "invalid_form", "name=x;token=y": "invalid_form",
	} {
		w.put("/channel/c/consumer/k", form).problem(400, code)
		require.Equal(t, before, w.get("/channel/c/consumer/k").Body, form)
	}
}

func TestTokensAreGeneratedAndNeverEmptied(t *testing.T) {
	w := newWorld(t, nil)
	seen := map[string]bool{}
	for _, path := range []string{"/producer/a", "/producer/b", "/channel/c", "/channel/d", "/channel/c/consumer/k"} {
		form := ""
		if strings.Contains(path, "consumer") {
			form = "type=pull"
		}
		token := w.put(path, form).is(201).json()["Token"].(string)
		require.GreaterOrEqual(t, len(token), 20)
		require.False(t, seen[token])
		seen[token] = true
		require.Equal(t, token, w.put(path, "token=").is(200).json()["Token"], "an empty token is no token")
		require.Equal(t, token, w.put(path, "name=x").is(200).json()["Token"])
	}
}

func TestPutTakesFormsAndJSONOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, path := range []string{"/producer/x", "/channel/x", "/channel/c/consumer/x"} {
		for _, contentType := range []string{"application/jsonx", "text/plain", "multipart/form-data; boundary=x",
			"application/x-www-form-urlencodedx", "nonsense;;", "application/*"} {
			w.do("PUT", path, "name=x&type=pull", "Content-Type: "+contentType).problem(415, "unsupported_media_type")
		}
		w.do("PUT", path, "name=x&type=pull", jsonHeader).problem(400, "invalid_json")
		w.do("PUT", path, "name=x&type=pull").problem(415, "unsupported_media_type")
		w.do("PUT", path, "name=x&"+formFor(path), "Content-Type: Application/X-WWW-Form-Urlencoded; charset=UTF-8").is(201)
	}
	w.put("/producer/x", "name=x&junk="+strings.Repeat("x", 64<<10)).problem(413, "body_too_large")
}

func TestHostileValuesAreStoredAsTheyAre(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"' OR '1'='1", "'; DROP TABLE producers; --", "%", "_", `\`, `"`,
		"<script>alert(1)</script>", "漢字 🚰", "{{7*7}}", "${x}", "  spaces  "} {
		w.put("/producer/p", "name="+url.QueryEscape(name))
		require.Equal(t, name, w.get("/producer/p").is(200).json()["Name"])
	}
	token := "'%_\\\"<>;--" + secret
	require.Equal(t, token, w.put("/producer/p", "token="+url.QueryEscape(token)).is(200).json()["Token"])
}

func TestPreconditions(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	for _, path := range []string{"/producer/p", "/channel/c", "/channel/c/consumer/k"} {
		at := w.get(path).lastModified()
		before := w.get(path).Body
		w.put(path, "name=stale", "If-Unmodified-Since: "+at.Add(-time.Second).Format(http.TimeFormat)).problem(412,
			"precondition_failed")
		w.put(path, "name=stale", "If-Unmodified-Since: not a date").problem(400, "invalid_date")
		require.Equal(t, before, w.get(path).Body)
		w.put(path, "name=a", "If-Unmodified-Since: "+at.Format(http.TimeFormat)).is(200)
		w.put(path, "name=b", "If-Unmodified-Since: "+time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)).is(200)
		w.put(path, "name=c").is(200)
	}
	w.put("/producer/new", "", "If-Unmodified-Since: "+time.Now().UTC().Format(http.TimeFormat)).is(201)
}

func TestOfManyCreatorsExactlyOneIsToldSo(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, path := range []string{"/producer/race", "/channel/race", "/channel/c/consumer/race"} {
		var wg sync.WaitGroup
		statuses := make([]int, 20)
		for i := range statuses {
			wg.Go(func() {
				statuses[i] = w.put(path, fmt.Sprintf("name=n%d&%s", i, formFor(path))).Status
			})
		}
		wg.Wait()
		created := 0
		for _, status := range statuses {
			require.Contains(t, []int{200, 201}, status)
			if status == 201 {
				created++
			}
		}
		require.Equal(t, 1, created, path)
	}
}

func TestUnknownResourcesAre404(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.get("/producer/x").problem(404, "producer_not_found")
	for _, path := range []string{"/channel/x", "/channel/x/consumers", "/channel/x/messages", "/channel/x/consumer/k",
		"/channel/x/consumer/k/dlq", "/channel/x/message/m", "/channel/x/consumer/k/job/j"} {
		w.get(path).problem(404, "channel_not_found")
	}
	for _, path := range []string{"/channel/c/consumer/x", "/channel/c/consumer/x/dlq", "/channel/c/consumer/x/job/j"} {
		w.get(path).problem(404, "consumer_not_found")
	}
	w.get("/channel/c/message/x").problem(404, "message_not_found")
	w.put("/channel/x/consumer/k", "type=pull").problem(404, "channel_not_found")
}

func TestWhatOneBrokerStoresAnotherShowsAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/producers").is(200)
	other := newWorldOn(t, w)
	other.put("/producer/p", "name=A").is(201)
	require.Equal(t, "A", w.get("/producer/p").is(200).json()["Name"])
	other.put("/producer/p", "name=B").is(200)
	require.Equal(t, "B", w.get("/producer/p").json()["Name"])
	require.Equal(t, []any{"/producer/p"}, w.get("/producers").json()["Result"])
}

// newWorldOn starts a second broker on the stores of w.
func newWorldOn(t *testing.T, w *world) *world {
	t.Helper()
	other := &world{t: t, store: w.store, queue: w.queue}
	o := w.api.o
	o.Registerer = nil
	o.Catalogue = catalogue.New(w.store, slog.Default())
	other.cat = o.Catalogue
	other.api = New(o)
	other.serve()
	return other
}

func TestConditionalGETs(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	for _, path := range []string{"/producer/p", "/channel/c", "/channel/c/consumer/k", "/producers", "/channels",
		"/channel/c/consumers"} {
		r := w.get(path).is(200)
		at := r.lastModified()
		same := w.get(path, "If-Modified-Since: "+at.Format(http.TimeFormat)).is(304)
		require.Empty(t, same.Body, path)
		require.Equal(t, r.Header("ETag"), same.Header("ETag"))
		require.Equal(t, r.Header("Last-Modified"), same.Header("Last-Modified"))
		w.get(path, "If-Modified-Since: "+at.Add(-time.Second).Format(http.TimeFormat)).is(200)
		w.get(path, "If-Modified-Since: nonsense").is(200)
		w.get(path, "If-None-Match: "+r.Header("ETag")).is(304)
		w.get(path, `If-None-Match: "other"`).is(200)
		require.Equal(t, "private, no-cache", r.Header("Cache-Control"))
	}
}

func TestAStoreThatIsDownIs503WithoutItsWords(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	require.NoError(t, w.store.Close())
	for _, r := range []reply{
		w.get("/producer/p"), w.get("/producers"), w.get("/channel/c"), w.get("/channel/c/messages"), w.get(
			"/channel/c/message/m"),
		w.put("/producer/p", "name=x"), w.put("/channel/c", "name=x"), w.put("/channel/c/consumer/k", "type=pull"),
	} {
		r.problem(503, "unavailable")
		require.Equal(t, "1", r.Header("Retry-After"))
	}
	require.Error(t, w.cat.Refresh(context.Background()))
}

func TestASigningSecretIsShownOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	r := w.put("/channel/c/consumer/k", "callbackUrl=http://127.0.0.1:9/&signingSecret=generate").is(201)
	secret := r.json()["Policy"].(map[string]any)["SigningSecret"].(string)
	require.Regexp(t, "^whsec_[A-Za-z0-9+/]{43}=$", secret)
	get := w.get("/channel/c/consumer/k").is(200)
	require.NotContains(t, get.Body, secret)
	require.Equal(t, r.Header("ETag"), get.Header("ETag"))
	require.NotContains(t, w.put("/channel/c/consumer/k", "timeout=5s").is(200).Body, secret)
}
