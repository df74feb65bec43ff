package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var installed = Policy{Timeout: 30 * time.Second, MaxRetries: 5, Backoff: Waits(5*time.Second, 30*time.Second,
	time.Minute), MaxDelay: time.Hour,
	RetryShare: 25, TombstoneWindow: 24 * time.Hour, SigningOverlap: 24 * time.Hour,
	ResponseMaxBytes: 65536, ResponseHeaders: "content-type,x-*", AsyncStatus: "202", ResultDeadline: 24 * time.Hour,
	Subject: defaultSubject, Body: defaultBody}

// merge is Merge over the defaults of the tests, at a fixed time.
func merge(record string, form map[string]string) (string, error) {
	return NewBook(installed).Merge(record, form, time.UnixMilli(1_000_000))
}

func TestARecordIsLaidOverTheDefaults(t *testing.T) {
	book := NewBook(installed)
	require.Equal(t, installed, *book.Of(""))
	record, err := merge("", map[string]string{"timeout": "1500ms", "backoff": "constant:30s", "callbackUrl": "http://x"})
	require.NoError(t, err)
	want := installed
	want.Lease, want.Timeout, want.Backoff = 1500*time.Millisecond, 1500*time.Millisecond, Constant(30*time.Second)
	require.Equal(t, want, *book.Of(record))
	require.Same(t, book.Of(record), book.Of(record))
	require.Equal(t, []Setting{
		{"Timeout", "1.5s", false}, {"MaxRetries", "5", true}, {"MaxLeasesLost", "5", true},
		{"Backoff", "constant:30s", false}, {"RetryOn", "all", true},
	}, book.Show(record, false)[:5])

	record, err = merge(record, map[string]string{"timeout": "", "retryOn": "5xx, 404"})
	require.NoError(t, err)
	want.Lease, want.Timeout = 0, installed.Timeout
	want.RetryOn, err = parseRetryOn("404,5xx")
	require.NoError(t, err)
	require.Equal(t, want, *book.Of(record))
	record, err = merge(record, map[string]string{"retryOn": "", "backoff": ""})
	require.NoError(t, err)
	require.Empty(t, record, "nothing is set")
}

func TestLostLeasesHaveABudgetOfTheirOwnWhereItIsSet(t *testing.T) {
	book := NewBook(installed)
	of := func(form map[string]string) *Policy {
		record, err := merge("", form)
		require.NoError(t, err)
		return book.Of(record)
	}
	p := of(map[string]string{"maxRetries": "2"})
	require.Equal(t, []int{2, 3, 4}, []int{p.MaxLost(), p.LostFrom(), p.Counted(4, 3)}, "it is as maxRetries")
	for n := range 3 {
		p = of(map[string]string{"maxRetries": "2", "maxLeasesLost": strconv.Itoa(n)})
		require.Equal(t, []int{n, n + 1, 1}, []int{p.MaxLost(), p.LostFrom(), p.Counted(4, 3)})
	}
	require.Zero(t, p.Counted(2, 3))
	for _, bad := range []string{"-1", "1001", "1.5", "none", "+1"} {
		_, err := merge("", map[string]string{"maxLeasesLost": bad})
		require.Error(t, err, bad)
	}
}

func TestAPullConsumerIsShownTheLengthOfItsLeases(t *testing.T) {
	defaults := installed
	defaults.Lease = 32 * time.Second
	book := NewBook(defaults)
	require.Equal(t, Setting{"Timeout", "32s", true}, book.Show("", true)[0])
	require.Equal(t, Setting{"Timeout", short(installed.Timeout), true}, book.Show("", false)[0])
	own, err := book.Merge("", map[string]string{"timeout": "5s"}, time.UnixMilli(0))
	require.NoError(t, err)
	for _, pull := range []bool{true, false} {
		require.Equal(t, Setting{"Timeout", "5s", false}, book.Show(own, pull)[0])
		require.Equal(t, book.Show(own, pull)[1:], book.Show(own, !pull)[1:])
	}
	require.Equal(t, "32s", short(book.Of("").Lease))
	require.Equal(t, "5s", short(book.Of(own).Lease))
}

func TestEqualSettingsAreEqualRecords(t *testing.T) {
	a, err := merge("", map[string]string{"timeout": "90s", "maxRetries": "3", "retryOn": "409,4xx"})
	require.NoError(t, err)
	b, err := merge("", map[string]string{"retryOn": "4xx"})
	require.NoError(t, err)
	b, err = merge(b, map[string]string{"maxRetries": "3", "timeout": "1m30s"})
	require.NoError(t, err)
	require.Equal(t, a, b)
}

func TestAWrongValueNamesItsFieldAndIsNotShown(t *testing.T) {
	for name, values := range map[string][]string{
		"timeout":    {"0", "99ms", "12h1s", "-1s", "5", "s3cret"},
		"maxRetries": {"-1", "1001", "1.5", "+3", "many", "0x3"},
		"backoff": {"0s", "5s,", "5s,-1s", "constant:", "constant:1s,2s",
			"1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s", "9000h"},
		"ttl":             {"-1s", "1ms", "99ms", "9000h", "5"},
		"rateLimit":       {"0/1s", "100", "1/0s", "1/1ms", "+1/1s", "1/25h", "1000001/1s", "x/1s", "/"},
		"concurrency":     {"-1", "0", "100001", "x"},
		"retryShare":      {"0", "101", "10%"},
		"ordered":         {"yes", "1", "TRUE"},
		"onBlocked":       {"wait", "Block"},
		"tombstoneAfter":  {"-1", "10001"},
		"tombstoneWindow": {"0", "999ms", "721h"},
		"statusUrl": {"http://x/", "ftp://x/{messageID}", "http://u:s3cret@x/{messageID}", "/{messageID}",
			"http://{messageID}#a", "http://{messageID}/", "http://x{messageID}/", "http://x?{messageID}",
			"http://x:80{messageID}/y"},
		"signingSecret":         {"s3cret", "whsec_", "whsec_czNjcmV0", "Generate"},
		"signingSecretPrevious": {"whsec_!", "generate"},
		"signingOverlap":        {"-1s", "721h"},
		"headers": {"s3cret", "A b: c", "Host: x", "authorization: s3cret", "X-Broker-Job-ID: 1",
			"webhook-id: 1", "A: b\na: c", "A-B: c\nA_B: c", "X_Broker_Attempt: 1", "Content_Length: 1", "webhook_id: 1",
			"A: b\x00", ": b"},
		"authorization": {"basic", "basic s3cret", "bearer", "bearer a s3cret", "bearer  s3cret", "Bearer a s3cret",
			"s3cret", "a(b) s3cret", "Splunk  s3cret", "Basic s3cret", "oauth2 http://x a", "oauth2 x:a b s3cret",
			"oauth2 http://x  a s3cret"},
		"dlq":              {"drop", "forward:", "forward:a b", "expire:", "expire:0s", "expire:1ms"},
		"responses":        {"on", "Store"},
		"responseMaxBytes": {"0", "1048577", "64KiB"},
		"responseHeaders":  {"a b", "set-cookie", "Authorization", "X-Api-Key", "X-Auth*", "x-broker-job-id", "*x", ","},
		"responseTTL":      {"-1s", "1ms"},
		"async":            {"yes"},
		"asyncStatus":      {"404", "202,", "2xx", "0202"},
		"resultUrl":        {"http://x/", "ftp://x/{messageID}"},
		"resultDeadline":   {"0", "8761h"},
		"retryOn":          {"none", "6xx", "0xx", "99", "600", "5x", "x", "404;409", "05xx", ",", "404,"},
	} {
		for _, value := range values {
			_, err := merge(`{"timeout":"1s","v":"1"}`, map[string]string{name: value})
			var f *FieldError
			require.ErrorAs(t, err, &f, "%s=%s", name, value)
			require.Equal(t, name, f.Field)
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
}

// A broker of an older version keeps what a newer one has stored.
func TestMembersOfANewerVersionStay(t *testing.T) {
	record, err := merge(`{"glow":"blue","timeout":"10 parsecs","v":"2"}`, map[string]string{"maxRetries": "1"})
	require.NoError(t, err)
	require.JSONEq(t, `{"glow":"blue","maxRetries":"1","timeout":"10 parsecs","v":"1"}`, record)
	p := NewBook(installed).Of(record)
	require.Equal(t, 1, p.MaxRetries)
	require.Equal(t, installed.Timeout, p.Timeout, "cannot be read here")
	require.Equal(t, installed, *NewBook(installed).Of("[]"))
}

func TestEveryFieldReadsWhatItShows(t *testing.T) {
	for _, f := range fields {
		var p Policy
		require.NoError(t, f.parse(&p, f.format(&installed)), f.name)
		require.Equal(t, f.format(&installed), f.format(&p), f.name)
		require.NotEmpty(t, f.about)
	}
	require.Len(t, Table(), len(Names()))
}

func TestTheBookForgetsRecordsThatWereReplaced(t *testing.T) {
	book := NewBook(installed)
	for i := range 2 * maxResolved {
		book.Of(fmt.Sprintf(`{"maxRetries":"%d"}`, i))
	}
	require.LessOrEqual(t, len(book.resolved), maxResolved)
}

func TestWhatAnAnswerMeans(t *testing.T) {
	p := installed
	var err error
	p.RetryOn, err = parseRetryOn("5xx,409")
	require.NoError(t, err)
	for _, tc := range []struct {
		answer  Answer
		attempt int
		want    Verdict
	}{
		{Answer{Status: 200, Complete: true}, 1, Verdict{Meaning: Delivered}},
		{Answer{Status: 299, Complete: true}, 6, Verdict{Meaning: Delivered}},
		{Answer{Status: 200}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second, Strains: true}}, // its body broke off
		{Answer{}, 2, Verdict{Meaning: Retry, Delay: 30 * time.Second, Strains: true}},
		{Answer{}, 6, Verdict{Meaning: Exhausted, Strains: true}},
		{Answer{Status: 500, Complete: true}, 3, Verdict{Meaning: Retry, Delay: time.Minute, Strains: true}},
		{Answer{Status: 500, Complete: true, RetryAfter: time.Hour}, 3, Verdict{Meaning: Retry, Delay: time.Minute,
			Strains: true}},
		{Answer{Status: 502, Complete: true, RetryAfter: time.Hour}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second,
			Strains: true}},
		{Answer{Status: 504, Complete: true, RetryAfter: time.Hour}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second,
			Strains: true}},
		{Answer{Status: 409, Complete: true}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second}},
		{Answer{Status: 404, Complete: true}, 1, Verdict{Meaning: Rejected}},
		{Answer{Status: 301, Complete: true}, 1, Verdict{Meaning: Rejected}},
		{Answer{Status: 404, Complete: true}, 6, Verdict{Meaning: Rejected}},
		{Answer{Status: 408, Complete: true}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second, Strains: true}},
		{Answer{Status: 425, Complete: true}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second, Strains: true}},
		{Answer{Status: 429, Complete: true, RetryAfter: time.Minute}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second,
			Hold: time.Minute, Strains: true}},
		{Answer{Status: 503, Complete: true, RetryAfter: 24 * time.Hour}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second,
			Hold: time.Hour, Strains: true}},
		{Answer{Status: 503, Complete: true, RetryAfter: time.Second}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second,
			Hold: time.Second, Strains: true}},
		{Answer{Status: 503, Complete: true}, 6, Verdict{Meaning: Exhausted, Strains: true}},
		{Answer{Status: 410, Complete: true}, 1, Verdict{Meaning: Gone}},
		{Answer{Status: 410, Complete: true}, 6, Verdict{Meaning: Gone}},
		{Answer{Status: 410}, 1, Verdict{Meaning: Retry, Delay: 5 * time.Second, Strains: true}},
	} {
		require.Equal(t, tc.want, p.Judge(tc.answer, tc.attempt), "%+v", tc)
	}
	require.Equal(t, Verdict{Meaning: Retry, Delay: 5 * time.Second}, installed.Judge(Answer{Status: 404, Complete: true},
		1), "all are retried by default")
}

func TestTheLastWaitDoublesUpToTheCap(t *testing.T) {
	p := Policy{Backoff: Waits(5*time.Second, 30*time.Second, time.Minute), MaxDelay: 5 * time.Minute}
	for attempt, want := range []time.Duration{5 * time.Second, 5 * time.Second, 30 * time.Second, time.Minute,
		2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		require.Equal(t, want, p.Delay(attempt), attempt)
	}
	fixed := Policy{Backoff: Constant(30 * time.Second)}
	require.Equal(t, 30*time.Second, fixed.Delay(1))
	require.Equal(t, 30*time.Second, fixed.Delay(500))
}

func TestJitterOnlyAddsAndIsBounded(t *testing.T) {
	p := Policy{Backoff: Waits(time.Second), MaxDelay: time.Hour, Jitter: 0.1}
	above := false
	for range 1000 {
		d := p.Delay(1)
		require.GreaterOrEqual(t, d, time.Second)
		require.LessOrEqual(t, d, 1100*time.Millisecond)
		above = above || d > time.Second
	}
	require.True(t, above)
}

func TestDelaysSaturateForAnyAttempt(t *testing.T) {
	for _, p := range []Policy{
		{Backoff: Waits(time.Second), Jitter: 1},
		{Backoff: Waits(time.Second), MaxDelay: math.MaxInt64},
		{Backoff: Waits(math.MaxInt64), Jitter: 1},
	} {
		for _, attempt := range []int{-1, 0, 1, 62, 63, 64, 1000, math.MaxInt32} {
			d := p.Delay(attempt)
			require.Positive(t, d)
			require.LessOrEqual(t, d, 2*maxWait)
		}
	}
	require.Zero(t, (&Policy{}).Delay(3))
}

func FuzzMerge(f *testing.F) {
	f.Add("timeout", "5s")
	f.Add("backoff", "constant:1s")
	f.Add("retryOn", "5xx,408")
	book := NewBook(installed)
	f.Fuzz(func(t *testing.T, name, value string) {
		record, err := merge("", map[string]string{name: value})
		if err != nil {
			return
		}
		again := map[string]string{}
		for _, s := range book.Show(record, false) {
			if !s.Inherited && !strings.Contains(s.Value, mask) {
				again[string(s.Name[0]|0x20)+s.Name[1:]] = s.Value
			}
		}
		same, err := merge("", again)
		require.NoError(t, err)
		if !strings.Contains(record, "signing") && !strings.Contains(record, "authorization") {
			require.Equal(t, record, same, "what is shown can be set")
		}
	})
}

func TestDurationsAreShownShort(t *testing.T) {
	for text, d := range map[string]time.Duration{"1h": time.Hour, "1m": time.Minute, "1h1m": 61 * time.Minute,
		"10m": 10 * time.Minute, "20s": 20 * time.Second,
		"1h0m5s": time.Hour + 5*time.Second, "1m30s": 90 * time.Second, "100ms": 100 * time.Millisecond} {
		require.Equal(t, text, short(d))
	}
}

func TestAReplacedSecretSignsForTheOverlap(t *testing.T) {
	const first, second = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	book, now := NewBook(installed), time.UnixMilli(1_000_000)
	record, err := book.Merge("", map[string]string{"signingSecret": first, "signingOverlap": "1h"}, now)
	require.NoError(t, err)
	require.Equal(t, Secret(""), book.Of(record).SigningSecretPrevious)
	same, err := book.Merge(record, map[string]string{"signingSecret": first}, now)
	require.NoError(t, err)
	require.Equal(t, record, same)

	record, err = book.Merge(record, map[string]string{"signingSecret": second}, now)
	require.NoError(t, err)
	p := book.Of(record)
	require.Equal(t, []Secret{second, first}, []Secret{p.SigningSecret, p.SigningSecretPrevious})
	require.Equal(t, now.Add(time.Hour).UnixMilli(), p.SigningPreviousUntil)
	kept, err := book.Merge(record, map[string]string{"timeout": "5s"}, now.Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, p.SigningPreviousUntil, book.Of(kept).SigningPreviousUntil)
	for _, s := range book.Show(record, false) {
		require.NotContains(t, s.Value, "MfKQ")
		require.NotContains(t, s.Value, "AAAA")
	}
	shown := ""
	for _, s := range book.Show(record, false, "signingSecret") {
		shown += s.Value
	}
	require.Contains(t, shown, second)

	record, err = book.Merge(record, map[string]string{"signingSecret": "", "signingOverlap": ""}, now)
	require.NoError(t, err)
	require.Empty(t, record)
}

func TestAGeneratedSecretIsNew(t *testing.T) {
	a, err := merge("", map[string]string{"signingSecret": "generate"})
	require.NoError(t, err)
	b, err := merge("", map[string]string{"signingSecret": "generate"})
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	require.Len(t, NewBook(installed).Of(a).SigningSecret.Key(), 32)
}

func TestAuthorizationAndHeadersAreRead(t *testing.T) {
	var p Policy
	require.NoError(t, Set(&p, "authorization", "oauth2 https://x/token id s3cret a b"))
	client, ok := p.Authorization.OAuth2()
	require.True(t, ok)
	require.Equal(t, OAuth2{"https://x/token", "id", "s3cret", []string{"a", "b"}}, client)
	require.NoError(t, Set(&p, "authorization", "basic user:pass word"))
	for text, want := range map[string]string{
		"basic user:pass word": "Basic dXNlcjpwYXNzIHdvcmQ=", "BASIC u:p": "Basic dTpw", "Basic dTpw": "Basic dTpw",
		"Bearer x": "Bearer x", "bearer x": "Bearer x",
		"Splunk abc": "Splunk abc", "token x": "token x", "digest s3cret": "digest s3cret",
		`Hawk id="a", mac="b"`: `Hawk id="a", mac="b"`, "OAuth2 https://x/token id s3cret": "",
	} {
		require.NoError(t, Set(&p, "authorization", text), text)
		require.Equal(t, want, p.Authorization.Fixed(), text)
		_, isClient := p.Authorization.OAuth2()
		require.Equal(t, want == "", isClient)
		require.NotContains(t, p.Authorization.Masked(), "s3cret")
	}
	require.NoError(t, Set(&p, "headers", " X-A:  b c \n\nX-B:"))
	got := map[string]string{}
	p.Headers.All(func(name, value string) { got[name] = value })
	require.Equal(t, map[string]string{"X-A": "b c", "X-B": ""}, got)
	require.Equal(t, "https://x/a%2Fb", StatusURL("https://x/{messageID}").For("a/b"))
	require.Error(t, Set(&p, "glow", "x"))
}

// One reader of durations is behind the fields, whatever their form.
func TestDurationsOfFieldsMayHaveDaysAndWeeks(t *testing.T) {
	var p Policy
	for name, text := range map[string]string{"ttl": "1w", "backoff": "1h,1d12h", "rateLimit": "1000/1d",
		"dlq": "expire:30d", "signingOverlap": "2d", "resultDeadline": "1d"} {
		require.NoError(t, Set(&p, name, text), name)
	}
	require.Equal(t, 7*24*time.Hour, p.TTL)
	require.Equal(t, Waits(time.Hour, 36*time.Hour), p.Backoff)
	require.Equal(t, 24*time.Hour, p.RateLimit.Per)
	require.Equal(t, 30*24*time.Hour, p.DLQ.After)
	require.Error(t, Set(&p, "ttl", "366d"))
	require.Error(t, Set(&p, "ttl", "1 d"))
}

func TestTheBoundOfAProducerMayBeASize(t *testing.T) {
	for text, want := range map[string]int64{"10GiB": 10 << 30, "10GB": 10_000_000_000, "0": 0, "4096": 4096} {
		m, err := parseBytes(text)
		require.NoError(t, err, text)
		require.EqualValues(t, want, m.Or(-1), text)
	}
	for _, text := range []string{"", "-1", "+1", "10XB", "2000TiB", "0.1"} {
		_, err := parseBytes(text)
		require.Error(t, err, text)
	}
}

func TestTheFieldsThatTwoRecordsSetToOtherValuesAreNamed(t *testing.T) {
	b := NewBook(Policy{})
	record := func(was string, form map[string]string) string {
		is, err := b.Merge(was, form, time.Now())
		require.NoError(t, err)
		return is
	}
	empty := record("", map[string]string{})
	first := record("", map[string]string{"timeout": "5s", "maxRetries": "2"})
	require.Empty(t, Changed("", empty))
	require.Empty(t, Changed(first, first))
	require.Equal(t, []string{"maxRetries", "timeout"}, Changed("", first))
	require.Equal(t, []string{"maxRetries", "timeout"}, Changed(first, ""))
	require.Equal(t, []string{"timeout"}, Changed(first, record(first, map[string]string{"timeout": "6s"})))
	require.Equal(t, []string{"maxRetries"}, Changed(first, record(first, map[string]string{"maxRetries": ""})))
	const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	signed := record(first, map[string]string{"signingSecret": secret})
	again := record(signed, map[string]string{"signingSecret": "whsec_MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="})
	require.Equal(t, []string{"signingSecret", "signingSecretPrevious"}, Changed(signed, again))
	require.Equal(t, []string{"timeout"}, Changed("no record", record("", map[string]string{"timeout": "1s"})))
}
