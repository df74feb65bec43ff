package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

func TestAChannelShowsTheLimitsThatItHas(t *testing.T) {
	w := newWorld(t, nil)
	names := []string{"Retention", "RetentionMessages", "RetentionBytes", "DeadRetention", "AttemptRetention"}
	got := w.put("/channel/c", "").is(201).json()
	for _, name := range names {
		require.NotContains(t, got, name)
	}
	w.put("/channel/c", "retention=168h&retentionMessages=1000&retentionBytes=2GiB&deadRetention=0&"+
		"attemptRetention=2m").is(200)
	for range 2 { // the answer is a body of a PUT
		w.do("PUT", "/channel/c", w.get("/channel/c").Body, "Content-Type: application/json").is(200)
		got = w.get("/channel/c").json()
		require.Equal(t, []any{"168h", "1000", "2147483648", "0s", "2m"},
			[]any{got[names[0]], got[names[1]], got[names[2]], got[names[3]], got[names[4]]})
	}
	for _, form := range []string{"retention=59s", "retention=-1h", "retention=week", "retention=1000000000h",
		"retentionMessages=-1", "retentionMessages=1.5", "retentionMessages=%2B1", "retentionBytes=much",
		"retentionBytes=2PiB", "deadRetention=1", "attemptRetention=30s"} {
		w.put("/channel/c", form).problem(400, "invalid_policy")
	}
	w.put("/channel/c", "retention=1h&retention=2h").problem(400, "duplicate_field")
	require.Equal(t, "168h", w.get("/channel/c").json()["Retention"], "a refusal changes nothing")
	w.put("/channel/c", "retention=&retentionMessages=&retentionBytes=&deadRetention=&attemptRetention=").is(200)
	for _, name := range names {
		require.NotContains(t, w.get("/channel/c").json(), name)
	}
}

// A job from which attempts were removed says so instead of showing fewer without a word.
func TestAJobSaysThatAttemptsWereRemoved(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m, other := w.insert(durable.Message{}), w.insert(durable.Message{})
	at := time.Now().UnixMilli()
	for _, id := range []ident.ID{m.ID, other.ID} {
		for n, kind := range []durable.OutcomeKind{durable.OutcomeRetry, durable.OutcomeDelivered} {
			w.record(durable.Outcome{Kind: kind, ConsumerNo: k.No, ID: id, Attempts: n + 1, AtMs: at + int64(n)*1000,
				Tracked: true})
		}
	}
	require.NotContains(t, w.get(jobPath(k, m)).is(200).json(), "AttemptsRemovedBefore")
	require.Equal(t, "Attempt 2 succeeded.", w.get(jobPath(k, m) + "/why").why().Reasons[0].Detail)
	_, n, err := w.store.RemoveOldAttempts(t.Context(), durable.OldAttempts{ChannelNo: k.ChannelNo, ConsumerNo: k.No,
		Through: m.ID, BeforeMs: at + 500, Limit: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	got := w.get(jobPath(k, m)).is(200).json()
	require.Len(t, got["AttemptHistory"], 1)
	require.Equal(t, 2.0, got["Attempts"])
	require.Equal(t, time.UnixMilli(at+500).UTC().Format(millis), got["AttemptsRemovedBefore"])
	require.NotContains(t, w.get(jobPath(k, other)).is(200).json(), "AttemptsRemovedBefore", "none is missing")
	said := "Attempt 2 succeeded. Failed attempts of the job that ended before " +
		time.UnixMilli(at+500).UTC().Format(time.RFC3339) + " were removed (attemptRetention)."
	for _, path := range []string{jobPath(k, m), "/channel/c/message/" + m.ID.String()} {
		require.Equal(t, said, w.get(path + "/why").why().Reasons[0].Detail, path)
		require.Contains(t, w.page("/ui"+path).is(200).Body, said, path)
	}
	require.NotContains(t, w.page("/ui"+jobPath(k, other)).is(200).Body, "were removed")
}

// Where a message of that time may have been removed, why says by what, and other answers say from when on
// nothing is missing.
func TestWhyNamesTheLimitThatRemovedAMessage(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Retention = time.Hour })
	w.channel()
	k := w.consumer("k", "pull")
	old := ident.AtMillis(time.Now().Add(-2 * time.Hour).UnixMilli()).String()
	m := w.insert(durable.Message{Key: "m"})
	require.Contains(t, w.get("/channel/c/message/"+old+"/why").problem(404, "message_not_found").Body, "(retention)")
	unknown := func(message string) {
		t.Helper()
		require.NotContains(t, w.get("/channel/c/message/"+message).problem(404, "message_not_found").Body, "removed")
	}
	unknown(m.ID.Next().String() + "/why")
	unknown("unknown/why")
	unknown(old)

	w.put("/channel/c", "retention=0&retentionMessages=1").is(200)
	unknown(old + "/why")
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: m.ID, AtMs: time.Now().UnixMilli()})
	_, err := w.store.Purge(t.Context(), durable.Purge{ChannelNo: w.cat.Channel("c").No,
		Consumers: w.cat.Channel("c").Consumers, Through: m.ID, Limit: 1, By: durable.MessagesLimit})
	require.NoError(t, err)
	require.Contains(t, w.get("/channel/c/message/"+m.ID.String()+"/why").problem(404, "message_not_found").Body,
		"(retentionMessages)")
	require.Contains(t, w.get("/channel/c/message/"+old+"/why").problem(404, "message_not_found").Body,
		"(retentionMessages)")
	unknown(m.ID.Next().String() + "/why")
}
