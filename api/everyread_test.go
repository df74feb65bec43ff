package api

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/apitest"
)

// everyRead calls try after a GET of each path of the control plane that succeeds. The world is as it was then.
func everyRead(t *testing.T, try func(w *world, r *Route, path string)) {
	t.Helper()
	seen := map[string]bool{}
	world := func() *world {
		w := newWorld(t, func(o *Options) { o.Rates, o.Presence = oneASecond{}, oneWorker{} })
		w.then = func(path string, _ reply) {
			if r := routeTaking(get, path); r != nil && !seen[path] && !w.madeUp(get, path) {
				seen[path] = true
				try(w, r, path)
			}
		}
		return w
	}
	exchanges(world()) // which ends its queue
	w := world()
	w.channel()
	w.consumer("pull", "pull")
	uiExchanges(w)
	referenceExchanges(w)
	require.Greater(t, len(seen), 60)
}

// An answer with an entity tag is not sent again to a client that has it; nor is one that a date proves unchanged.
func TestEachEntityTagIsAnswered304(t *testing.T) {
	tagged := map[string]bool{}
	everyRead(t, func(w *world, r *Route, path string) {
		now := w.get(path).is(200)
		tag := now.Header("ETag")
		if tag == "" {
			return
		}
		tagged[r.Path] = true
		same := w.get(path, "If-None-Match: "+tag)
		for range 100 { // it may have changed between the two, as counts and ages do
			if same.Status == 304 {
				break
			}
			same = w.get(path, "If-None-Match: "+same.Header("ETag"))
		}
		require.Equal(t, 304, same.Status, path)
		require.Empty(t, same.Body, path)
		require.NotEmpty(t, same.Header("ETag"), path)
		w.get(path, `If-None-Match: "another"`).is(200)
		if date := now.Header("Last-Modified"); date != "" {
			w.get(path, "If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT").is(200)
			require.Contains(t, []int{200, 304}, w.get(path, "If-Modified-Since: "+date).Status, path)
		}
	})
	require.Greater(t, len(tagged), 30)
}

// Each list takes both names of its size, and its links lead to the next page.
func TestEachListTakesItsSizeAndHasLinks(t *testing.T) {
	lists := map[string]bool{}
	everyRead(t, func(w *world, r *Route, path string) {
		if !slices.Contains(r.Query, "limit") || !slices.Contains(r.Query, "size") {
			return
		}
		lists[r.Path] = true
		bare, _, _ := strings.Cut(path, "?")
		w.get(bare + "?limit=1").is(200)
		page := w.get(bare + "?size=1").is(200)
		if r.Access != AccessUI { // a page shows what it can
			w.get(bare+"?limit=-1").problem(400, "invalid_size")
		}
		for range 3 {
			if page.Header("Content-Type") != apitype.MediaJSON {
				return
			}
			links, _ := page.json()["Pages"].(map[string]any)
			next, _ := links["next"].(string)
			if next == "" {
				return
			}
			at, err := url.Parse(next)
			require.NoError(t, err)
			page = w.get(at.RequestURI()).is(200)
		}
	})
	require.Greater(t, len(lists), 10)
}

// A page of which apitype says that it is brought up to date is also a stream.
func TestEachLivePageIsAStream(t *testing.T) {
	streams := map[string]bool{}
	everyRead(t, func(w *world, r *Route, path string) {
		if r.Access != AccessUI {
			return
		}
		route, _ := apitype.Taking(get, path)
		live := slices.ContainsFunc(route.Answers, func(a apitype.Answer) bool { return a.Media == apitype.MediaEvents })
		media := w.get(path, "Accept: text/event-stream").is(200).Header("Content-Type")
		require.Equal(t, live, strings.HasPrefix(media, apitype.MediaEvents), path)
		streams[r.Path] = live
	})
	require.Greater(t, len(streams), 15)
}

// A PUT of JSON takes each setting of a policy beside the other members as well.
func TestAPolicyStandsBesideTheOtherMembers(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	shown := w.get("/channel/c/consumer/k").is(200).json()
	policy, _ := shown["Policy"].(map[string]any)
	require.NotEmpty(t, policy)
	for name, value := range policy {
		body := map[string]any{name: value}
		w.do("PUT", "/channel/c/consumer/k", apitest.Encoded(t, body), "Content-Type: application/json").is(200)
	}
	require.Equal(t, policy, w.get("/channel/c/consumer/k").json()["Policy"])
}

// A group takes conditions as other resources do, and documents as GET shows them.
func TestAGroupTakesItsConditionsAndWhatGetShows(t *testing.T) {
	w := newWorld(t, nil)
	const group, json = "/group/g", "Content-Type: application/json"
	made := w.put(group, "maxChannels=3", "If-None-Match: *").is(201)
	w.put(group, "maxChannels=4", "If-None-Match: *").is(412)
	old := "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT"
	w.put(group, "maxChannels=4", old).is(412)
	w.do("PUT", group, w.get(group).is(200).Body, json, "If-Match: "+made.Header("ETag")).is(200)
	w.put("/channel/c", "group=g").is(201)
	w.do("PUT", "/channel/c", w.get("/channel/c").is(200).Body, json).is(200)
	w.put("/channel/c", "group=").is(200)
	w.put("/producer/p", "publishRate=10/10s").is(201)
	w.do("PUT", "/producer/p", w.get("/producer/p").is(200).Body, json).is(200)
	w.get("/tokens", "If-Modified-Since: Thu, 01 Jan 1970 00:00:01 GMT").is(200)
	for _, refused := range []string{`If-Match: "another"`, "If-None-Match: *", old} {
		w.do("DELETE", group, "", refused).is(412)
	}
	later := "If-Unmodified-Since: Thu, 01 Jan 2099 00:00:01 GMT"
	w.put(group, "maxChannels=5", later).is(200)
	w.do("DELETE", group, "", "If-Match: "+w.get(group).Header("ETag"), `If-None-Match: "another"`, later).is(204)
}
