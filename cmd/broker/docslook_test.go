package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/browser"
)

// referencePages are the pages of the reference.
var referencePages = []string{"/docs?q=lease", "/docs?q=xyzzy", "/docs/errors", "/docs/try", "/docs"}

// Each page of the reference fits a telephone and a wide screen, in both themes, and axe-core finds nothing to say.
// At /docs/try the forms of each kind are open. The list of routes is the largest page by far, and has nothing that
// the others lack: axe-core sees it once.
func TestThePagesOfTheReferenceAreForEverybody(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	source := browser.Axe(t)
	b := browser.Start(t)
	b.RunScripts("UTC")
	for _, path := range referencePages {
		for _, screen := range []struct {
			width int
			theme string
		}{{1200, "light"}, {1200, "dark"}, {360, "light"}} {
			b.Screen(screen.width, screen.theme)
			require.Empty(t, b.Open(p.base+path), path)
			if path == "/docs/try" {
				keepPicture(t, fmt.Sprintf("docs_try-closed-%d-%s.png", screen.width, screen.theme), b.Picture())
				b.Eval(`for (const id of ["postChannelBroadcast", "putChannelConsumer", "deleteProducer", "postChannelBulk"]) {
					document.getElementById(id).open = true; } ''`)
			}
			_, content, _ := b.Size()
			require.LessOrEqual(t, content, screen.width, "%s has to be scrolled sideways", path)
			picture := b.Picture()
			light, _ := look(t, picture)
			require.Equal(t, screen.theme == "light", light > 0.5, path)
			keepPicture(t, fmt.Sprintf("%s-%d-%s.png", strings.Trim(strings.NewReplacer("/", "_", "?", "_", "=",
				"_").Replace(path), "_"), screen.width, screen.theme), picture)
			if path == "/docs" && screen.theme == "dark" || path == "/docs" && screen.width < 1200 {
				continue
			}
			require.Empty(t, b.Violations(source), "%s at %d, %s", path, screen.width, screen.theme)
		}
	}
}

// Without JavaScript a search works, and no form of /docs/try can be sent.
func TestTheReferenceWorksWithoutScripts(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	b := browser.Start(t)
	require.Empty(t, b.Open(p.base+"/docs"))
	b.Type("[name=q]", `lease_lost`)
	require.Empty(t, b.Press("[role=search] button"))
	require.Contains(t, b.HTML(), `href="/docs/errors#lease_lost"`)
	b.Clear("[name=q]")
	b.Type("[name=q]", `"><img src=x onerror=alert(1)>`)
	require.Empty(t, b.Press("[role=search] button"))
	require.Contains(t, b.HTML(), "Nothing has all these words")
	require.NotContains(t, b.HTML(), "<img")
	require.Empty(t, b.Open(p.base+"/docs/try"))
	require.Contains(t, b.HTML(), "which does not run here")
	require.NotContains(t, b.HTML(), "<button>Send")
}

// A trial is the page at /docs/try in a browser.
type trial struct {
	t *testing.T
	b *browser.Browser
}

// fill opens the form of a route and writes into its fields, pairs of name and text.
func (tr *trial) fill(route string, pairs ...string) {
	tr.t.Helper()
	tr.b.Eval("location.hash = ''; location.hash = '#" + route + "'; ''")
	eventually(tr.t, "the form is open", func() bool {
		return tr.b.Eval("document.getElementById('"+route+"').open") == "true"
	})
	for i := 0; i < len(pairs); i += 2 {
		field := fmt.Sprintf(`#%s [name="%s"]`, route, pairs[i])
		tr.b.Clear(field)
		tr.b.Type(field, pairs[i+1])
	}
}

// send sends the form of a route and returns what the page says of the answer.
func (tr *trial) send(route string) (status, shown string) {
	tr.t.Helper()
	tr.b.Click("#" + route + " button")
	read := func(selector string) string {
		return tr.b.Eval("document.querySelector('#" + route + " " + selector + "').textContent")
	}
	eventually(tr.t, "an answer", func() bool {
		said := read("[role=status]")
		return said != "" && said != "Waiting for the broker." && tr.b.Eval("document.querySelector('#"+route+
			" button').disabled") == "false"
	})
	return read("[role=status]"), read("pre")
}

func TestRequestsOfTheReferenceInABrowser(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	p.put("/producer/shop", "token", "p-token")
	p.put("/channel/orders", "token", "c-token")
	b := browser.Start(t)
	b.RunScripts("UTC")
	b.Screen(1200, "light")
	require.Empty(t, b.Open(p.base+"/docs/try#postChannelBroadcast"))
	tr := &trial{t, b}

	// A publish is stored, and a repeat of it refused.
	b.Type("#tokens [name=channel]", "c-token")
	b.Type("#tokens [name=producer]", "p-token")
	const publish = "postChannelBroadcast"
	tr.fill(publish, "path:channel", "orders", "header:X-Broker-Producer-ID", "shop",
		"header:X-Broker-Message-ID", "order-1", "body", `{"id":820982911946154508}`)
	status, shown := tr.send(publish)
	require.Contains(t, status, "201 Created", shown)
	require.Contains(t, shown, "POST /channel/orders/broadcast")
	require.NotContains(t, shown, "c-token")
	keepPicture(t, "docs_try-answer.png", b.Picture())
	stored := p.do("GET", "/channel/orders/message/order-1", "")
	require.Equal(t, 200, stored.status, stored.body)
	var message struct{ Payload, ContentType string }
	require.NoError(t, json.Unmarshal([]byte(stored.body), &message))
	require.Equal(t, `{"id":820982911946154508}`, message.Payload)
	require.Equal(t, "application/json", message.ContentType)
	status, _ = tr.send(publish)
	require.Contains(t, status, "409 Conflict")
	require.Contains(t, status, "duplicate_message_id")

	// A wrong token shows the problem, with a link to its line.
	b.Clear("#tokens [name=producer]")
	b.Type("#tokens [name=producer]", "another")
	status, shown = tr.send(publish)
	require.Contains(t, status, "403 Forbidden")
	require.Contains(t, shown, `"code":"producer_token_mismatch"`)
	require.Contains(t, b.HTML(), `<a href="/docs/errors#producer_token_mismatch">producer_token_mismatch</a>`)
	require.NotContains(t, b.HTML(), "c-token")
	require.Equal(t, "0 0 /docs/try", b.Eval("`${localStorage.length} ${sessionStorage.length} ${location.pathname}`"))
	tr.destroys(p)
	tr.refuses(p)
	tr.cuts(p)
	tr.stops(p)
}

// destroys tries a DELETE without a token, which the broker takes from its own pages. The page asks first, and each
// time.
func (tr *trial) destroys(p *process) {
	tr.t.Helper()
	const remove = "deleteProducer"
	tr.fill(remove, "path:producer", "other")
	p.put("/producer/other", "token", "o-token")
	tr.b.Click("#" + remove + " button") // the browser does not send it
	require.Equal(tr.t, "true", tr.b.Eval("document.querySelector('#"+remove+" [name=mean]').validity.valueMissing"))
	require.Equal(tr.t, 200, p.do("GET", "/producer/other", "").status)
	tr.b.Click("#" + remove + " [name=mean]")
	status, _ := tr.send(remove)
	require.Contains(tr.t, status, "204")
	require.Equal(tr.t, 404, p.do("GET", "/producer/other", "").status)
	require.Equal(tr.t, "false", tr.b.Eval("document.querySelector('#"+remove+" [name=mean]').checked"))
}

// refuses tries IDs that a browser would take as a way up the path.
func (tr *trial) refuses(p *process) {
	tr.t.Helper()
	tr.b.Type("#tokens [name=admin]", adminToken)
	const show = "getChannel"
	for _, id := range []string{"..", ".", "a/b", "../producer/shop", `a\b`} {
		tr.fill(show, "path:channel", id)
		status, _ := tr.send(show)
		require.Contains(tr.t, status, "a browser would send the request to another path", id)
	}
	for _, id := range []string{"%2e%2e", "a?b=c", "a#b", "é ü"} {
		tr.fill(show, "path:channel", id)
		status, shown := tr.send(show)
		require.Regexp(tr.t, "^40[04] ", status, id)
		require.Contains(tr.t, shown, "GET /channel/", id)
		require.Regexp(tr.t, `"code":"(channel_not_found|invalid_id)"`, shown, id)
	}
	require.Equal(tr.t, 200, p.do("GET", "/producer/shop", "").status)
}

// cuts shows a message that is larger than what a page shows.
func (tr *trial) cuts(p *process) {
	tr.t.Helper()
	r := p.do("POST", "/channel/orders/broadcast", strings.Repeat("é", 300<<10), "X-Broker-Channel-Token", "c-token",
		"X-Broker-Producer-ID", "shop", "X-Broker-Producer-Token", "p-token", "X-Broker-Message-ID", "large")
	require.Equal(tr.t, 201, r.status, r.body)
	const show = "getChannelMessage"
	tr.fill(show, "path:channel", "orders", "path:message", "large")
	status, shown := tr.send(show)
	require.Contains(tr.t, status, "200 OK")
	require.Contains(tr.t, shown, "(cut: the answer has more than 256 KiB)")
	require.Less(tr.t, len(shown), 300<<10)
}

// stops ends a claim that waits for a job.
func (tr *trial) stops(p *process) {
	tr.t.Helper()
	p.put("/channel/orders/consumer/worker", "token", "k-token", "type", "pull")
	const claim = "postChannelConsumerClaim"
	tr.b.Type("#tokens [name=consumer]", "k-token")
	tr.fill(claim, "path:channel", "orders", "path:consumer", "worker", "query:wait", "20s", "body", "")
	tr.b.Click("#" + claim + " button")
	eventually(tr.t, "the request is under way", func() bool {
		return tr.b.Eval("document.querySelector('#"+claim+" button[type=button]').hidden") == "false"
	})
	tr.b.Click("#" + claim + " button[type=button]")
	eventually(tr.t, "it is stopped", func() bool {
		return strings.HasPrefix(tr.b.Eval("document.querySelector('#"+claim+" [role=status]').textContent"), "Stopped.")
	})
	tr.fill(claim, "query:wait", "")
	status, shown := tr.send(claim)
	require.Contains(tr.t, status, "200 OK")
	require.Contains(tr.t, shown, `"Result":[]`)
}
