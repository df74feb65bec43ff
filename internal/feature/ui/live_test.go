package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/asset"
)

// stream asks for a page as a browser that has it already.
func stream(d *Dashboard, page, query string, from Source, open bool) *fasthttp.RequestCtx {
	var rq fasthttp.Request
	rq.SetRequestURI(page + query)
	rq.Header.Set("Accept", "text/html, text/event-stream")
	rc := &fasthttp.RequestCtx{}
	rc.Init(&rq, nil, nil)
	for _, name := range []string{"channel", "consumer", "message", "job"} {
		rc.SetUserValue(name, "id")
	}
	d.Serve(context.Background(), rc, Visit{Page: page, Open: open, Source: from})
	return rc
}

// data is what the one event of an answer says.
func data(t *testing.T, rc *fasthttp.RequestCtx) string {
	t.Helper()
	require.Equal(t, "text/event-stream", string(rc.Response.Header.ContentType()))
	require.Equal(t, "no-store", string(rc.Response.Header.Peek("Cache-Control")))
	lines, found := strings.CutSuffix(string(rc.Response.Body()), "\n\n")
	require.True(t, found)
	require.NotContains(t, lines, "\r")
	var out []string
	for _, line := range strings.Split(lines, "\n") {
		text, found := strings.CutPrefix(line, "data: ")
		require.True(t, found, line)
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

// A page that is brought up to date gets what it would have if it were loaded anew.
func TestTheEventOfALivePageIsWhatIsInsideThePage(t *testing.T) {
	d := newDashboard()
	text := hostile + "\rdata: \r\n\nevent: x\n\n"
	for path, p := range d.pages {
		var rq fasthttp.Request
		rq.SetRequestURI(path + "?channel=c")
		whole := &fasthttp.RequestCtx{}
		whole.Init(&rq, nil, nil)
		for _, name := range []string{"channel", "consumer", "message", "job"} {
			whole.SetUserValue(name, "id")
		}
		d.Serve(context.Background(), whole, Visit{Page: path, Open: true, Source: full{text}})
		body := string(whole.Response.Body())
		rc := stream(d, path, "?channel=c", full{text}, true)
		require.Equal(t, p.live, strings.Contains(body, "hx-sse:connect"), path)
		if !p.live {
			require.Equal(t, "text/html; charset=utf-8", string(rc.Response.Header.ContentType()), path)
			continue
		}
		_, inside, _ := strings.Cut(body, "<body")
		_, inside, _ = strings.Cut(inside, ">\n")
		inside, _, _ = strings.Cut(inside, "\n</body>\n</html>\n")
		feeds := strings.NewReplacer("\r\n", "\n", "\r", "\n")
		title, said, _ := strings.Cut(data(t, rc), "</title>\n")
		require.Contains(t, feeds.Replace(body), title, path)
		require.Equal(t, feeds.Replace(inside), strings.TrimSuffix(said, "\n"), path)
	}
}

func TestAPageThatShowsWhatWasAskedForIsNotLive(t *testing.T) {
	d := newDashboard()
	rc := stream(d, "/ui/channel/{channel}/message/{message}", "?show=responses", full{"a"}, true)
	require.NotContains(t, string(rc.Response.Body()), "hx-sse")
	require.Contains(t, string(rc.Response.Body()), "<!DOCTYPE html>")
}

// What is gone, or cannot be read now, is said on a page that is open; and it goes on asking.
func TestALivePageSaysWhatIsWrong(t *testing.T) {
	d := newDashboard()
	rc := stream(d, "/ui/channel/{channel}", "", empty{problem.New(404, "none_such", "It is gone.")}, true)
	require.Equal(t, 200, rc.Response.StatusCode())
	require.Contains(t, data(t, rc), "It is gone.")
	rc = stream(d, "/ui/", "", full{"a"}, false)
	require.Equal(t, "event: penstock:login\ndata: \n\n", string(rc.Response.Body()))
	require.Equal(t, 200, rc.Response.StatusCode())
}

// The first page with all that it loads: at most 60 KB in gzip. Of the script at most 300 lines are our own.
func TestAPageAndWhatItLoadsAreSmall(t *testing.T) {
	d := newDashboard()
	size := len(asset.Pack(visit(d, "/ui/", full{"orders"}).Response.Body()))
	for _, a := range assets {
		size += a.Size()
	}
	require.Less(t, size, 60_000)
	own, err := scriptFiles.ReadFile("assets/keys.js")
	require.NoError(t, err)
	require.Less(t, bytes.Count(own, []byte("\n")), 300)
	for _, never := range []string{"eval(", "innerHTML", "insertAdjacentHTML", "new Function"} {
		require.NotContains(t, string(own), never)
	}
}

func TestTheFilesOfOthersAreThoseThatTheirPageNames(t *testing.T) {
	page, err := os.ReadFile("assets/vendor/README.md")
	require.NoError(t, err)
	for _, name := range scripts {
		short, theirs := strings.CutPrefix(name, "vendor/")
		if !theirs {
			continue
		}
		text, err := scriptFiles.ReadFile("assets/" + name)
		require.NoError(t, err)
		require.Regexp(t, fmt.Sprintf("(?m)^\\| `%s` \\| `dist/.*%s` \\| `%x` \\|$", short, short, sha256.Sum256(text)),
			string(page))
	}
}
