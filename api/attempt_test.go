package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestAJobShowsItsAttemptsInOrderOfTime(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{Key: "m"})
	path := jobPath(k, m)
	require.Equal(t, []any{}, w.get(path).is(200).json()["AttemptHistory"])

	at := time.Now().Add(time.Second).Truncate(time.Second).UTC()
	end := func(n int, kind durable.OutcomeKind, after time.Duration, answer string) durable.Outcome {
		return durable.Outcome{
			Kind: kind, ConsumerNo: k.No, ID: m.ID, Attempts: n, AtMs: at.Add(after).UnixMilli(), NextMs: at.Add(
				time.Hour).UnixMilli(),
			StatusCode: 500 + n, Error: "answered", Answer: []byte(answer), DurationMs: int64(n), Tracked: true,
		}
	}
	w.record(end(1, durable.OutcomeRetry, 0, "first <é>"))
	first := w.get(path).is(200)
	w.record(end(2, durable.OutcomeRetry, time.Second, "\xff\x00"))
	r := w.get(path, "If-None-Match: "+first.Header("ETag")).is(200)
	require.Equal(t, at.Add(time.Second), r.lastModified())
	w.record(end(3, durable.OutcomeDead, 2*time.Second, strings.Repeat("x", 1023)+"é and more"))
	later := "If-Modified-Since: " + r.Header("Last-Modified")
	w.get(path, later).is(200)

	shown := func(n int, more ...any) map[string]any {
		v := map[string]any{"Attempt": float64(n), "At": at.Add(time.Duration(n-1) * time.Second).Format(millis),
			"StatusCode": float64(500 + n), "Error": "answered", "DurationMs": float64(n)}
		for i := 0; i < len(more); i += 2 {
			v[more[i].(string)] = more[i+1]
		}
		return v
	}
	v := w.get(path).is(200).json()
	require.Equal(t, []any{
		shown(1, "Answer", "first <é>"), shown(2, "Answer", "/wA=", "AnswerEncoding", "base64"), shown(3, "Answer",
			strings.Repeat("x", 1023)),
	}, v["AttemptHistory"], "a text that was cut inside a character is text")
	require.Equal(t, 3.0, v["Attempts"])
	require.NotContains(t, v, "AttemptHistoryTruncated")

	w.post(path+"/requeue-dead-job", tokens("k")...).is(202)
	ok := end(1, durable.OutcomeDelivered, 5*time.Second, "")
	ok.StatusCode = 204
	w.record(ok)
	r = w.get(path, tokens("k")...).is(200)
	all := r.json()["AttemptHistory"].([]any)
	require.Len(t, all, 4)
	require.Equal(t, map[string]any{"Attempt": 1.0, "At": at.Add(5 * time.Second).Format(millis), "StatusCode": 204.0},
		all[3])
	w.get(path, "If-Modified-Since: "+at.Add(5*time.Second).Format(http.TimeFormat)).is(304)
	require.NotContains(t, w.get("/channel/c/message/m").is(200).json()["Jobs"].([]any)[0], "AttemptHistory")
}

func TestOfManyAttemptsTheNewestAreShown(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{})
	now := time.Now().UnixMilli()
	for n := 1; n <= maxAttempts+5; n++ {
		v := w.get(jobPath(k, m)).is(200).json()
		all := v["AttemptHistory"].([]any)
		require.Len(t, all, min(n-1, maxAttempts))
		require.Equal(t, n-1 > maxAttempts, v["AttemptHistoryTruncated"] == true)
		if len(all) > 0 {
			require.Equal(t, float64(n-1), all[len(all)-1].(map[string]any)["Attempt"])
		}
		w.record(durable.Outcome{Kind: durable.OutcomeRetry, ConsumerNo: k.No, ID: m.ID, Attempts: n, AtMs: now + int64(n),
			NextMs: now, Tracked: true, Error: strings.Repeat("\xff", 2000), Answer: []byte(strings.Repeat("\x01", 2000))})
	}
	require.Less(t, len(w.get(jobPath(k, m)).is(200).Body), 1<<20)
}

func TestOnlyTheBeginningOfACharacterIsCutOff(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "aé": "aé", "a\xc3": "a", "漢\xe6\xbc": "漢", "\xf0\x9f\x9a": "", "a\xff": "a\xff",
		"\x80\x80\x80\x80": "\x80\x80\x80\x80", "\xe6": "", "a\xc3b": "a\xc3b",
	} {
		require.Equal(t, want, string(wholeRunes([]byte(in))), "%q", in)
	}
}
