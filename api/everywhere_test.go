package api

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/feature/stores"
)

// twoStores is an installation with another store: its first API, and that of the other one.
func twoStores(t *testing.T) (first, two *world) {
	var router *stores.Router
	first = newWorld(t, func(o *Options) {
		router = stores.New(stores.Options{Names: []string{"two", "away"}, Store: firstOf(t, o), Catalogue: o.Catalogue,
			NowMs: func() int64 { return time.Now().UnixMilli() }, Log: slog.Default()})
		o.Stores = router
	})
	two = newWorld(t, func(o *Options) { o.Stores, o.StoreName = router, "two" })
	router.Join("two", &stores.Part{Store: two.store, Catalogue: two.cat, API: two.api, Announce: func() {}})
	return first, two
}

// firstOf is the store of options.
func firstOf(t *testing.T, o *Options) stores.First {
	store, ok := o.Store.(stores.First)
	require.True(t, ok)
	return store
}

// A channel is created where it says, by a form and by JSON, and lists and groups know of all stores.
func TestAChannelIsCreatedInTheStoreThatItNames(t *testing.T) {
	w, two := twoStores(t)
	w.put("/group/g", "maxChannels=2").is(201)
	w.put("/channel/a", "name=A&group=g").is(201)
	require.Equal(t, "two", w.put("/channel/b", "store=two&group=g").is(201).json()["Store"])
	w.do("PUT", "/channel/c", `{"Name":"C","Store":"two"}`, "Content-Type: application/json").is(201)
	require.NotNil(t, two.cat.Channel("b"))
	require.Nil(t, w.cat.Channel("b"))
	require.Equal(t, "two", w.get("/channel/b").is(200).json()["Store"])
	require.NotContains(t, w.get("/channel/a").is(200).Body, "Store")
	require.Equal(t, []any{"/channel/a", "/channel/b", "/channel/c"}, w.get("/channels").is(200).json()["Result"])
	require.Contains(t, w.page("/ui/channels").Body, "/ui/channel/a")
	require.Equal(t, []any{"/channel/a", "/channel/b"}, w.get("/channels?group=g").is(200).json()["Result"])
	require.Equal(t, []any{"/channel/a", "/channel/b"}, w.get("/channels?size=2").is(200).json()["Result"])
	require.EqualValues(t, 2, w.get("/group/g").is(200).json()["Channels"])
	w.put("/channel/d", "group=g").problem(409, "group_full")
	w.put("/channel/e", "group=g&store=two").problem(409, "group_full")
	w.put("/channel/b", "group=g").is(200)
	w.del("/group/g").problem(409, "group_has_channels")

	w.put("/channel/f", "store=three").problem(400, "invalid_store")
	w.put("/channel/a", "store=two").problem(400, "store_fixed")
	w.put("/channel/b", "store=").problem(400, "store_fixed")
	w.put("/channel/f", "store=away").problem(503, "unavailable")
	w.put("/channel/f", "store=two&retention=x").problem(400, "invalid_policy")
	w.put("/channel/f", "name=F").is(201)
	newWorld(t, nil).put("/channel/f", "store=two").problem(400, "invalid_store")
}
