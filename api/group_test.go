package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAGroupIsMadeChangedPausedAndDeleted(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AllowDelete = true })
	made := w.put("/group/g", "maxChannels=2&publishRate=10/10s").is(201)
	require.Equal(t, "/group/g", made.Header("Location"))
	want := map[string]any{"ID": "g", "Name": "g", "State": "ACTIVE", "MaxChannels": 2.0, "PublishRate": "10/10s",
		"Channels": 0.0, "ChannelsURL": "/channels?group=g", "ChangedAt": made.json()["ChangedAt"]}
	require.Equal(t, want, made.json())
	require.Equal(t, want, w.get("/group/g").is(200).json())
	etag := w.get("/group/g").Header("ETag")
	w.put("/channel/c", "group=g").is(201)
	require.Equal(t, etag, w.get("/group/g").Header("ETag"), "the count is in no tag")
	w.get("/group/g", "If-None-Match: "+etag).is(304)
	w.put("/group/g", "name=x", "If-Match: "+etag).is(200)
	w.put("/group/g", "name=y", "If-Match: "+etag).problem(412, "precondition_failed")
	w.put("/group/g", "", "If-None-Match: *").problem(412, "precondition_failed")
	kept := w.get("/group/g").is(200).json()
	require.Equal(t, "10/10s", kept["PublishRate"])
	require.Equal(t, 1.0, kept["Channels"])

	for form, code := range map[string]string{"maxChannels=-1": "invalid_policy", "maxChannels=1000001": "invalid_policy",
		"publishRate=10": "invalid_policy", "publishRate=0/1s": "invalid_policy", "publishRate=1/0s": "invalid_policy",
		"publishRate=1/1h&publishRate=2/1h": "duplicate_field", "token=x": "unknown_field", "max_channels=2": "unknown_field",
	} {
		w.put("/group/g", form).problem(400, code)
		w.put("/group/new", form).problem(400, code)
	}
	require.Equal(t, kept, w.get("/group/g").is(200).json())
	w.put("/group/~g", "").problem(400, "reserved_name")
	w.get("/group/new").problem(404, "group_not_found")
	w.do("PUT", "/group/g", `{"MaxChannels":3,"PublishRate":"10/10s","State":"PAUSED","Channels":7}`,
		"Content-Type: application/json").is(200)
	require.Equal(t, 3.0, w.get("/group/g").json()["MaxChannels"])

	require.Equal(t, "PAUSED", w.post("/group/g/pause").is(200).json()["State"])
	w.post("/group/g/pause").is(200)
	paused := w.get("/channel/c").is(200).json()
	require.Equal(t, []any{"g", "PAUSED", "ACTIVE"}, []any{paused["Group"], paused["GroupState"], paused["State"]})
	w.post("/group/g/resume").is(200)
	w.post("/group/none/pause").problem(404, "group_not_found")

	w.do("DELETE", "/group/g", "").problem(409, "group_has_channels")
	w.put("/channel/c", "group=").is(200)
	require.NotContains(t, w.get("/channel/c").json(), "GroupState")
	w.do("DELETE", "/group/g", "").is(204)
	w.do("DELETE", "/group/g", "").problem(404, "group_not_found")
}

func TestChannelsCarryGroupsThatExistAndHaveRoom(t *testing.T) {
	w := newWorld(t, nil)
	refused := w.put("/channel/a", "group=shop-taem").problem(404, "group_not_found")
	require.NotContains(t, refused.Body, "Did you mean")
	w.get("/channel/a").problem(404, "channel_not_found")
	for _, id := range []string{"shop-team", "other", "third"} {
		w.put("/group/"+id, "maxChannels=2").is(201)
	}
	require.Contains(t, w.put("/channel/a", "group=shop-taem").problem(404, "group_not_found").Body,
		"Did you mean shop-team?")
	for _, id := range []string{"a", "c", "b"} {
		w.put("/channel/"+id, "").is(201)
	}
	w.put("/channel/a", "group=shop-team").is(200)
	w.put("/channel/b", "group=shop-team&publishRate=1/1s").is(200)
	w.put("/channel/c", "group=shop-team").problem(409, "group_full")
	w.put("/channel/d", "group=shop-team").problem(409, "group_full")
	w.get("/channel/d").problem(404, "channel_not_found")
	w.put("/channel/a", "name=x").is(200)
	got := w.get("/channel/b").json()
	require.Equal(t, []any{"shop-team", "ACTIVE", "1/1s"}, []any{got["Group"], got["GroupState"], got["PublishRate"]})

	require.Equal(t, []any{"/channel/a", "/channel/b"}, w.get("/channels?group=shop-team").is(200).json()["Result"])
	page := w.get("/channels?group=shop-team&limit=1").is(200).json()
	require.Equal(t, []any{"/channel/a"}, page["Result"])
	next, _ := page["Pages"].(map[string]any)["next"].(string)
	require.Contains(t, next, "group=shop-team")
	require.Equal(t, []any{"/channel/b"}, w.get(next).is(200).json()["Result"])
	require.Empty(t, w.get("/channels?group=other").is(200).json()["Result"])
	w.get("/channels?group=none").problem(404, "group_not_found")
	w.get("/channels?group=a%2Fb").problem(400, "invalid_id")
	w.get("/channels?group=other&group=third").problem(400, "invalid_query")
	require.Equal(t, []any{"/group/other", "/group/shop-team"}, w.get("/groups?limit=2").is(200).json()["Result"])
	w.put("/producer/p", "publishRate=5/1m").is(201)
	require.Equal(t, "5/1m", w.get("/producer/p").json()["PublishRate"])
}
