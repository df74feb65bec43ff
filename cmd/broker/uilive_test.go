package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A page that is open follows what happens without being loaded anew: what the reader has opened or typed stays.
func TestThePagesOfTheDashboardAreLive(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with(quick...).start()
	p.sample("pull")
	a := newActor(t, p)
	a.RunScripts("Asia/Tokyo")
	require.Empty(t, a.Open(p.base+"/ui/channel/c/consumer/pull"))
	has := func(text string) func() bool {
		return func() bool { return strings.Contains(a.Eval("document.body.innerText"), text) }
	}
	require.True(t, has("times in Asia/Tokyo")())
	require.NotEqual(t, "", a.Eval(`document.querySelector("details").open = true, window.mine = "the same window"`))
	a.Type("header input[type=search]", "what I am looking for")
	p.publish(`{"order":1}`)
	eventually(t, "the page says that no worker claims", has("1 job waits"))
	require.Equal(t, "the same window", a.Eval("window.mine"))
	require.Equal(t, "true", a.Eval(`document.querySelector("details").open`))
	require.Equal(t, "what I am looking for", a.Eval(`document.querySelector("header input[type=search]").value`))
	require.Equal(t, "true", a.Eval(`document.activeElement === document.querySelector("header input[type=search]")`))
	require.Equal(t, "Asia/Tokyo", a.Eval(`document.querySelector("#zone").textContent.slice("times in ".length)`))
	// A time of the page is nine hours ahead of its title.
	require.Equal(t, "9", a.Eval(`(() => { const t = document.querySelector("footer time");
		return (parseInt(t.textContent) - parseInt(t.title.slice(11)) + 24) % 24; })()`))
	require.Empty(t, a.Faults())

	require.Equal(t, exitClean, p.stop())
	eventually(t, "the page says that the broker is away", has("the broker does not answer"))
}

func TestTheKeysOfTheDashboard(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	p.sample("pull")
	a := newActor(t, p)
	a.RunScripts("UTC")
	require.Empty(t, a.Open(p.base+"/ui/channels"))
	at := func(path string) func() bool {
		return func() bool { return a.Eval("document.readyState + location.pathname") == "complete"+path }
	}
	focus := func() string {
		return a.Eval(`document.activeElement.getAttribute("href") || document.activeElement.type`)
	}
	a.Key("j")
	require.Equal(t, "/ui/channel/c", focus())
	a.Key("?")
	require.Equal(t, "true", a.Eval(`document.querySelector("#keys").open`))
	a.Key("?")
	require.Equal(t, "false", a.Eval(`document.querySelector("#keys").open`))
	a.Key("g")
	a.Key("c")
	eventually(t, "the page of the consumers", at("/ui/consumers"))
	a.Key("k")
	require.Equal(t, "/ui/channel/c/consumer/pull", focus())
	a.Key("p")
	require.Contains(t, a.Eval("document.body.innerText"), "paused")
	require.Equal(t, "0", a.Eval("window.before = 0"))
	a.Key("p")
	eventually(t, "the page anew", func() bool {
		return a.Eval("document.readyState + window.before") == "completeundefined"
	})
	a.Key("/")
	require.Equal(t, "search", focus())
	a.Key("g") // it is typed
	a.Key("o")
	require.Equal(t, "go", a.Eval("document.activeElement.value"))
	require.Empty(t, a.Faults())
}

// Who logs out in another window, or whose session ends, is led to the login.
func TestALivePageWhoseSessionEndsLeadsToTheLogin(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=false")
	a := newActor(t, p)
	a.RunScripts("UTC")
	a.Open(p.base + "/ui/consumers")
	a.Type("#token", adminToken)
	a.press(".login button")
	require.Equal(t, "/ui/consumers", a.Eval("location.pathname"))
	a.DropCookies()
	eventually(t, "the login", func() bool {
		return a.Eval("location.pathname + location.search") == "/ui/login?next=%2Fui%2Fconsumers"
	})
}
