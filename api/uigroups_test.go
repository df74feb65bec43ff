package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThePageOfGroupsPausesOneInTwoSteps(t *testing.T) {
	w, count := newUIWorld(t, nil)
	require.Equal(t, "There is no group", w.page("/ui/groups").is(200).title())
	w.put("/group/shop", "name=The+shop&maxChannels=7&publishRate=100/1s").is(201)
	w.put("/channel/c", "token=c&group=shop").is(201)
	w.consumer("k", "push")
	count()
	r := w.page("/ui/groups").is(200)
	require.Equal(t, "No group is paused", r.title())
	for _, text := range []string{`href="/ui/channels?group=shop"`, "The shop", "at most 7 channels", "100/1s",
		`href="/ui/group/shop/action/pause">Pause</a>`} {
		require.Contains(t, r.Body, text)
	}
	require.Contains(t, w.page("/ui/channels").is(200).Body, `href="/ui/groups"`)

	asked := w.page("/ui/group/shop/action/pause").is(200)
	require.Equal(t, "Pause the group shop?", asked.title())
	require.Contains(t, asked.Body, "The group has 1 channel")
	require.Equal(t, "ACTIVE", w.stateOf("/group/shop"), "the question changes nothing")
	q := asked.asks()
	w.press(q, "Origin: http://evil").is(303) // open management is not open to other sites
	w.change("pause group", "/group/shop", func() {
		require.Contains(t, w.press(q).is(303).Header("Location"), "/ui/groups?done=pause.0.")
	})
	require.Equal(t, "PAUSED", w.stateOf("/group/shop"))
	w.press(q).is(409) // there is nothing to do any more
	done := w.press(w.page("/ui/group/shop/action/resume").is(200).asks()).is(303).Header("Location")
	require.Contains(t, w.page(done).is(200).Body, "Done: it goes on.")
	require.NotContains(t, w.page("/ui/groups?done=pause.0.forged").is(200).Body, "Done")
	w.doAction("/ui/group/shop/action/pause").is(303)
	require.Equal(t, "One group is paused", w.page("/ui/groups").is(200).title())
	require.Contains(t, w.page("/ui/channels").is(200).Body, "Its group is paused")
	w.get("/ui/group/none/action/pause", browser).is(404)
	w.get("/ui/group/shop/action/purge", browser).is(404)
}

func TestThePageOfGroupsHasPagesAndStandsStillWhereNobodyMayAct(t *testing.T) {
	w, _ := newUIWorld(t, nil)
	for i := range pageEntries + 1 {
		w.put(fmt.Sprintf("/group/g%03d", i), "name=g").is(201)
	}
	r := w.page("/ui/groups").is(200)
	require.Contains(t, r.Body, `href="/ui/groups?first=g050">Next page</a>`)
	require.NotContains(t, r.Body, "g050<")
	r = w.page("/ui/groups?first=g050").is(200)
	require.Contains(t, r.Body, "g050")
	require.NotContains(t, r.Body, "Next page")
	require.Equal(t, "There are no more groups", w.page("/ui/groups?first=zzz").is(200).title())
	token, _ := w.token("management:read")
	w.api.o.OpenManagement = false
	login := w.do("POST", "/ui/login", url.Values{"token": {token}}.Encode(), formHeader, browser).is(303)
	session, _, _ := strings.Cut(login.Header("Set-Cookie"), ";")
	require.NotContains(t, w.page("/ui/groups", "Cookie: "+session).is(200).Body, "action/pause")
	w.get("/ui/group/g000/action/pause", "Cookie: "+session, browser).is(403)
	w.get("/ui/groups", browser).is(303)
}
