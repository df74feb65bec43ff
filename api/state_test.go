package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// setState moves a consumer, whatever its state.
func (w *world) setState(k *durable.Consumer, to durable.ConsumerState) *durable.Consumer {
	w.t.Helper()
	_, _, err := w.store.SetConsumerState(context.Background(), durable.StateChange{ConsumerNo: k.No, To: to,
		Reason: "by a <test>",
		From: []durable.ConsumerState{durable.StateActive, durable.StatePaused, durable.StateDead, durable.StateGone,
			durable.StateProbing}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.cat.Refresh(context.Background()))
	return w.cat.ConsumerByNo(k.No)
}

// publicURL is the address of the broker in links.
const publicURL = "https://broker.example/at"

// linkOfDead makes a consumer dead and returns the path of the link that revives it.
func (w *world) linkOfDead(k *durable.Consumer) string {
	w.t.Helper()
	k = w.setState(k, durable.StateDead)
	alert := durable.Alert{Event: durable.ConsumerDead, ChannelID: "c", ConsumerID: k.ID, ConsumerNo: k.No,
		AtMs: k.StateMs}
	link, err := w.states.AlertLink(context.Background(), &alert)
	require.NoError(w.t, err)
	path, ok := strings.CutPrefix(link, publicURL)
	require.True(w.t, ok, link)
	return path
}

func TestARevivalLinkWorksOnceAndOnlyByPost(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k, other := w.consumer("k", "pull"), w.consumer("other", "pull")
	link := w.linkOfDead(k)
	for range 2 { // scanners open links
		r := w.get(link).is(200)
		require.Contains(t, r.Body, "by a &lt;test&gt;")
		require.Equal(t, "no-store", r.Header("Cache-Control"))
		require.Equal(t, "DEAD", w.get("/channel/c/consumer/k").is(200).json()["State"])
	}
	w.setState(other, durable.StateDead)
	w.do("POST", strings.Replace(link, "/k/", "/other/", 1), "").problem(410, "link_invalid")
	w.do("POST", link+"x", "").problem(410, "link_invalid")
	w.do("POST", link, "").is(200)
	require.Equal(t, "ACTIVE", w.get("/channel/c/consumer/k").is(200).json()["State"])
	w.get(link).problem(410, "link_invalid")
	w.setState(k, durable.StateDead)
	w.do("POST", link, "").problem(410, "link_invalid")
	require.Equal(t, "DEAD", w.get("/channel/c/consumer/k").is(200).json()["State"], "a link works once")
}

func TestARevivalLinkExpires(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	link := w.linkOfDead(w.consumer("k", "pull"))
	w.ahead = 7*24*time.Hour + time.Minute
	w.get(link).problem(410, "link_invalid")
	w.do("POST", link, "").problem(410, "link_invalid")
	require.Equal(t, "DEAD", w.get("/channel/c/consumer/k").is(200).json()["State"])
	w.ahead = 7*24*time.Hour - time.Minute
	w.get(link).is(200)
	w.do("POST", link, "").is(200)
}

func TestAConsumerIsShownWithoutCountsWhileRedisIsAway(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	tag := w.get("/channel/c/consumer/k").is(200).Header("ETag")
	w.mini.Close()
	r := w.get("/channel/c/consumer/k").is(200)
	require.NotContains(t, r.json(), "Queued")
	require.Equal(t, tag, r.Header("ETag"))
	require.Equal(t, "PAUSED", w.do("POST", "/channel/c/consumer/k/pause", "").is(200).json()["State"])
}
