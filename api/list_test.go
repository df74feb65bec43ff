package api

import (
	"fmt"
	"math/rand"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// walk follows Pages.next from path and returns all links.
func (w *world) walk(path string) (all []string) {
	w.t.Helper()
	for path != "" {
		r := w.get(path).is(200)
		v := r.json()
		r.lastModified()
		require.Len(w.t, v, 3)
		require.Contains(w.t, v, "Links")
		require.Nil(w.t, v["Links"])
		for _, link := range v["Result"].([]any) {
			all = append(all, link.(string))
		}
		path, _ = v["Pages"].(map[string]any)["next"].(string)
	}
	return all
}

func TestListsAreOrderedByIDAndWalkedOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	var producers, channels, consumers []string
	producers, channels = append(producers, "/producer/p"), append(channels, "/channel/c")
	ids := []string{}
	for i := range 60 {
		ids = append(ids, fmt.Sprintf("x%03d", i*7%60), fmt.Sprintf("X-%d~", i))
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		w.put("/producer/"+id, "").is(201)
		w.put("/channel/"+id, "").is(201)
		w.put("/channel/c/consumer/"+id, "type=pull").is(201)
		producers, channels, consumers = append(producers, "/producer/"+id), append(channels, "/channel/"+
			id), append(consumers, "/channel/c/consumer/"+id)
	}
	for path, want := range map[string][]string{"/producers": producers, "/channels": channels,
		"/channel/c/consumers": consumers} {
		sort.Strings(want)
		require.Equal(t, want, w.walk(path))
		require.Equal(t, want, w.walk(path+"?size=7"))
		require.Equal(t, want, w.walk(path+"?size=1000"))
		require.Len(t, w.get(path).json()["Result"], 25)
		require.Len(t, w.get(path + "?size=101").json()["Result"], 100)
		for _, link := range want[:3] {
			w.get(link).is(200)
		}
	}
	require.Equal(t, "/producer/x000", w.get("/producers?first=x000&size=1").json()["Result"].([]any)[0],
		"first is the ID the page starts at")
	require.Equal(t, "/producer/x000", w.get("/producers?first=x&size=1").json()["Result"].([]any)[0],
		"first need not exist")
	require.Equal(t, map[string]any{}, w.get("/producers?first=zzz").json()["Pages"])
	require.Equal(t, []any{}, w.get("/producers?first=zzz").json()["Result"])
}

func TestListParametersAreChecked(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "push")
	for _, path := range []string{"/producers", "/channels", "/channel/c/consumers", "/channel/c/messages",
		"/channel/c/consumer/k/dlq"} {
		for query, code := range map[string]string{
			"size=0": "invalid_size", "size=-5": "invalid_size", "size=abc": "invalid_size", "size=1e3": "invalid_size",
			"size=":     "invalid_size",
			"first=%25": "invalid_id", "first=%27%20OR%20%271%27=%271": "invalid_id", "size=1&size=2": "invalid_query",
			"first=%zz":                         "invalid_query",
			"first=" + strings.Repeat("a", 256): "invalid_id", "next=JyBPUiAnMSc9JzE%3D": "unknown_parameter",
			"previous=x": "unknown_parameter",
		} {
			w.get(path+"?"+query).problem(400, code)
		}
	}
	w.get("/channel/c/messages?statusChangedSince=x").problem(400, "invalid_date")
	w.get("/producers?statusChangedSince=2026-01-31T15:04:05Z").problem(400, "unknown_parameter")
}

func TestEmptyListsHaveAStableLastModified(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/producers", "/channels"} {
		r := w.get(path).is(200)
		require.Equal(t, "{\"Result\":[],\"Pages\":{},\"Links\":null}\n", r.Body)
		require.True(t, time.Unix(0, 0).Equal(r.lastModified()))
	}
	w.channel()
	k := w.consumer("k", "push")
	at := w.get("/channel/c").lastModified()
	require.Equal(t, at, w.get("/channel/c/messages").is(200).lastModified())
	require.Equal(t, k.ChangedAt.Truncate(time.Second), w.get("/channel/c/consumer/k/dlq").is(200).lastModified())
}

func TestAPageIsNewWhenTheListGrowsBehindIt(t *testing.T) {
	w := newWorld(t, nil)
	w.put("/producer/a", "").is(201)
	r := w.get("/producers?size=1").is(200)
	w.put("/producer/b", "").is(201)
	w.get("/producers?size=1", "If-None-Match: "+r.Header("ETag")).is(200)
	require.Equal(t, "/producers?first=b&size=1", w.get("/producers?size=1").json()["Pages"].(map[string]any)["next"])
}
