package api

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/policy"
)

// fieldValues has, for each field of a consumer's policy, a value in its form and how it is shown,
// and values that are refused.
var fieldValues = map[string]struct {
	good, shown string
	bad         []string
}{
	"timeout": {"90s", "1m30s", []string{"0", "-5s", "99ms", "1h1ms", "999999999h", "9223372037s", "1e3s",
		" 5s", "5s\x00", "五秒"}},
	"maxRetries":    {"1000", "1000", []string{"-1", "1001", "1.0", "1e2", "٣", "99999999999999999999"}},
	"maxLeasesLost": {"0", "0", []string{"-1", "1001", "1.0", "none"}},
	"backoff":       {"1s, 2s", "1s,2s", []string{",", "1s,,2s", "constant:constant:5s", "-5s", "9000h", "1s;2s"}},
	"retryOn":       {"408, 5XX", "408,5xx", []string{"600", "5xx,", "ALL", "１xx", "5xx 4xx", "-404", "404-409"}},
	"ttl":           {"8760h", "8760h", []string{"-1s", "1ms", "8761h", "99999999h", "never"}},
	"maxAge":        {"1h30m", "1h30m", []string{"-1s", "1ms", "8761h", "never"}},
	"rateLimit": {"5000/1m", "5000/1m", []string{"100", "100/1s/1s", "-1/1s", "1e3/1s", "1/99999h",
		"9999999999999999999/1s", "NONE"}},
	"concurrency": {"3", "3", []string{"0", "-1", "1.5", "100001", "99999999999999999999"}},
	"retryShare":  {"100", "100", []string{"0", "101", "50%"}},
	"ordered":     {"true", "true", []string{"True", "1", "yes"}},
	"onBlocked":   {"dead-letter-key", "dead-letter-key", []string{"Block", "block,skip"}},
	"filter": {`priority > 3`, `priority > 3`, []string{"priority >", "nobody == 1",
		strings.Repeat("x", 3000)}},
	"adaptive":        {"true", "true", []string{"1", "off"}},
	"tombstoneAfter":  {"20", "20", []string{"-1", "10001", "1.5"}},
	"tombstoneWindow": {"720h", "720h", []string{"0", "999ms", "721h"}},
	"statusUrl": {"http://example.com/{messageID}", "http://example.com/{messageID}",
		[]string{"http://x/", "ftp://x/{messageID}", "http://x/{messageId}", "http://u:p@x/{messageID}",
			"http://{messageID}/", "http://x:99999999/{messageID}#f"}},
	"signingSecret": {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_***", []string{"abc", "whsec_AAAA",
		"WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-", "whsec_" +
			strings.Repeat("A", 200)}},
	"signingSecretPrevious": {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_***", []string{"abc", "whsec_x",
		"generate"}},
	"signingOverlap": {"0", "0s", []string{"-1h", "721h"}},
	"headers": {"X-A: b\n\nX-B:  é ", "X-A: b\nX-B: é", []string{"x", "Host: a", "x_broker_job_id: 1",
		"webhook-id: 1", "Authorization: x", "A: b\r\n\r\nGET / HTTP/1.1", "A: b\rC: d", "A: \x7f", "Aé: b", "A: b\nA: c",
		"Transfer-Encoding: chunked", "X: " + strings.Repeat("a", 5000), strings.Repeat("X: 1\n", 21)}},
	"authorization": {"basic ü:p w", "basic ***", []string{"basic", "basic :p", "bearer a b", "bearer é", "Splunk",
		"Splunk é", "basic u:p\r\nX: y", "oauth2 http://x a", "oauth2 ftp://x a b", "oauth2 http://u:p@x/ a b",
		"oauth2 http://x a b  c"}},
	"identity": {"minimal", "minimal", []string{"Minimal", "none"}},
	"dlq": {"expire:1h", "expire:1h", []string{"Keep", "redrive:1", "forward:", "forward:nope", "forward:c",
		"forward:a/b", "expire:", "expire:1ms", "expire:-1h"}},
	"responses":        {"store", "store", []string{"Store", "1"}},
	"responseMaxBytes": {"1", "1", []string{"0", "1048577"}},
	"responseHeaders":  {"ETag, x-*", "etag,x-*", []string{"set-cookie", "a b"}},
	"responseTTL":      {"1h", "1h", []string{"-1s", "1ms"}},
	"async":            {"true", "true", []string{"on"}},
	"asyncStatus":      {"202, 299", "202,299", []string{"300", "2xx"}},
	"resultUrl":        {"http://example.com/{messageID}", "http://example.com/{messageID}", []string{"http://x/"}},
	"resultDeadline":   {"2h", "2h", []string{"0", "9000h"}},
	"sqsDelay":         {"15m", "15m", []string{"-1s", "901s", "1500ms", "5"}},
	"sqsWait":          {"20s", "20s", []string{"-1s", "21s", "100ms"}},
	"subject": {"{{payload.a.0}} {{ channel }}", "{{payload.a.0}} {{ channel }}", []string{"a\r\nBcc: x@y.z", "a\x00",
		"{{payload", "}}", "{{nobody}}", "{{payload.}}", "{{payload.a..b}}", strings.Repeat("x", 257), "\xff"}},
	"collect": {"20/5s", "20/5s", []string{"1/5s", "101/5s", "20", "20/2h", "20/50ms", "-2/5s", "2/", "+2/5s"}},
	"body": {"a\n{{payload}}", "a\n{{payload}}", []string{"a\x00", "{{", "{{ payload.a b", strings.Repeat("x", 4097),
		strings.Repeat("{{job}}", 65)}},
}

// mailToo has senders of http, https, mailto and nats. That of nats cannot send with oauth2.
type mailToo struct{}

func (mailToo) Kind(rawURL string) policy.Kind {
	switch scheme, _, _ := strings.Cut(rawURL, ":"); scheme {
	case "http", "https":
		return policy.ByHTTP
	case "mailto":
		return policy.ByMail
	case "nats":
		return policy.ByNATS
	}
	return 0
}

func (m mailToo) Fits(rawURL string, p *policy.Policy) error {
	if _, ok := p.Authorization.OAuth2(); ok && m.Kind(rawURL) == policy.ByNATS {
		return &policy.FieldError{Field: "authorization", Problem: "must be another one"}
	}
	return nil
}

func (m mailToo) Check(rawURL string) error {
	if m.Kind(rawURL) == 0 {
		return invalidCallback("There is no sender for it.")
	}
	return nil
}

// Each field of a policy is set, shown with its effective value, and given back to the installation
// by an empty value. A value that is refused names its field and changes nothing, also not the good
// fields beside it.
func TestEachFieldOfAPolicyIsSetRefusedAndGivenBack(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Senders = mailToo{} })
	w.channel()
	w.put("/channel/c/consumer/k", "callbackUrl=http://localhost/&token=kt").is(201)
	w.put("/channel/c/consumer/mail", "callbackUrl=mailto:a@example.com&token=mt").is(201)
	for _, name := range policy.Names() {
		path := "/channel/c/consumer/k"
		if slices.Contains(policy.Without(policy.ByHTTP), name) {
			path = "/channel/c/consumer/mail"
		}
		values, ok := fieldValues[name]
		require.True(t, ok, "no values for %s", name)
		member := strings.ToUpper(name[:1]) + name[1:]
		w.put(path, name+"="+url.QueryEscape(values.good)).is(200)
		before := w.get(path).is(200)
		v := before.json()
		require.Equal(t, values.shown, v["Policy"].(map[string]any)[member], name)
		require.Equal(t, inheritedWithout(member), v["Inherited"])
		for _, bad := range values.bad {
			for _, form := range []url.Values{{name: {bad}}, {name: {bad}, "name": {"changed"}, "maxRetries": {"7"},
				"token": {"changed"}}} {
				if name == "maxRetries" {
					form.Del("maxRetries")
					form.Set(name, bad)
				}
				r := w.put(path, form.Encode()).problem(400, "invalid_policy")
				require.Contains(t, r.Body, "The field "+name+" ", bad)
				require.Equal(t, before.Body, w.get(path).Body, "%s=%s", name, bad)
			}
		}
		w.put(path, name+"=").is(200)
		v = w.get(path).json()
		require.Equal(t, policyWith(nil), v["Policy"], name)
		require.Equal(t, inheritedWithout(), v["Inherited"], name)
	}
	require.Len(t, fieldValues, len(policy.Names()), "one of them is no field")
	r := w.put("/channel/c/consumer/k", "timeout=5s&timeout=6s").problem(400, "duplicate_field")
	require.Contains(t, r.Body, "The form field timeout ")
}
