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
	names := []string{"Retention", "RetentionMessages", "RetentionBytes", "DeadRetention"}
	got := w.put("/channel/c", "").is(201).json()
	for _, name := range names {
		require.NotContains(t, got, name)
	}
	w.put("/channel/c", "retention=168h&retentionMessages=1000&retentionBytes=2GiB&deadRetention=0").is(200)
	for range 2 { // the answer is a body of a PUT
		w.do("PUT", "/channel/c", w.get("/channel/c").Body, "Content-Type: application/json").is(200)
		got = w.get("/channel/c").json()
		require.Equal(t, []any{"168h", "1000", "2147483648", "0s"},
			[]any{got[names[0]], got[names[1]], got[names[2]], got[names[3]]})
	}
	for _, form := range []string{"retention=59s", "retention=-1h", "retention=week", "retention=1000000000h",
		"retentionMessages=-1", "retentionMessages=1.5", "retentionMessages=%2B1", "retentionBytes=much",
		"retentionBytes=2PiB", "deadRetention=1"} {
		w.put("/channel/c", form).problem(400, "invalid_policy")
	}
	w.put("/channel/c", "retention=1h&retention=2h").problem(400, "duplicate_field")
	require.Equal(t, "168h", w.get("/channel/c").json()["Retention"], "a refusal changes nothing")
	w.put("/channel/c", "retention=&retentionMessages=&retentionBytes=&deadRetention=").is(200)
	for _, name := range names {
		require.NotContains(t, w.get("/channel/c").json(), name)
	}
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
