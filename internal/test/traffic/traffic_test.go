package traffic

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func recorder(t *testing.T) (*Recorder, func() []Exchange) {
	t.Helper()
	folder := t.TempDir()
	r := New(folder)
	return r, func() []Exchange {
		require.NoError(t, r.Close())
		all, err := Read(folder, "")
		require.NoError(t, err)
		none, err := Read(folder, "another.test-")
		require.NoError(t, err)
		require.Empty(t, none)
		return all
	}
}

func exchange(path string, status int, answer string) Exchange {
	return Exchange{Method: "GET", Path: path, Headers: http.Header{}, Status: status,
		Answer: http.Header{"Content-Type": {"application/problem+json"}}, Text: []byte(answer)}
}

// Exchanges differ in kind by all that the comparison looks at, and not by values.
func TestSomeOfEachKindAreKept(t *testing.T) {
	r, all := recorder(t)
	kinds := []Exchange{
		exchange("/channel/c", 200, `{"a":1}`), exchange("/channel/c", 404, `{"a":1}`), exchange("/channels", 200, `{"a":1}`),
		exchange("/channel/c", 200, `{"b":1}`), exchange("/channel/c", 200, `{"a":{"b":[{"c":1}]}}`),
		exchange("/channel/c?first=1", 200, `{"a":1}`), exchange("/channel/c", 200, `{"code":"one"}`),
		exchange("/channel/c", 200, `{"code":"two"}`), exchange("/channel/c", 200, "{\"l\":1}\n{\"m\":2}\n"),
	}
	more := exchange("/channel/c", 200, `{"a":1}`)
	more.Headers.Set("If-Match", "*")
	kinds = append(kinds, more)
	more = exchange("/channel/c", 200, `{"a":1}`)
	more.Answer.Set("ETag", "x")
	kinds = append(kinds, more)
	more = exchange("/channel/c", 200, `{"a":1}`)
	more.Headers.Set("Content-Type", "application/x-www-form-urlencoded")
	more.Body = []byte("a=b")
	kinds = append(kinds, more)
	var wg sync.WaitGroup
	for range 10 * mostOfKind {
		wg.Go(func() {
			for _, e := range kinds {
				require.NoError(t, r.Record(e))
			}
		})
	}
	require.NoError(t, r.Record(exchange("/channel/d", 200, `{"a":2}`))) // another value
	wg.Wait()
	require.Len(t, all(), len(kinds)*mostOfKind)
}

func TestRoutesAndLongBodies(t *testing.T) {
	r, all := recorder(t)
	e := exchange("/channel/c?x=%zz", 200, strings.Repeat("a", mostBody+1))
	e.Method, e.Body = "HEAD", []byte("short")
	require.NoError(t, r.Record(e))
	require.NoError(t, r.Record(exchange("/nowhere/else", 404, `{"code":"no_such_path"}`)))
	got := all()
	require.Equal(t, []string{"GET /channel/{channel}", ""}, []string{got[0].Route, got[1].Route})
	require.True(t, got[0].TextCut)
	require.False(t, got[0].Cut)
	require.Len(t, got[0].Text, mostBody)
	require.Equal(t, "short", string(got[0].Body))
}

func TestBothTransportsRecordWhatWasSentAndRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Length", fmt.Sprint(len(body)))
		_, _ = io.WriteString(w, "read "+string(body))
	}))
	t.Cleanup(server.Close)
	r, all := recorder(t)
	c := &http.Client{Transport: &netTransport{r, http.DefaultTransport}}
	res, err := c.Post(server.URL+"/channel/c/broadcast?q=1", "text/plain", strings.NewReader("one"))
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "read one", string(text))
	require.NoError(t, res.Body.Close())
	res, err = c.Get(server.URL + "/channels")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close()) // nobody reads it
	c.CloseIdleConnections()
	skip := func(method, path string) bool { return method == "GET" && path == "/skipped" }
	hc := &fasthttp.HostClient{Addr: server.Listener.Addr().String(), Transport: &fastTransport{r, skip}}
	for _, path := range []string{"/skipped", "/producers"} {
		status, body, err := hc.Get(nil, server.URL+path)
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.Equal(t, "read ", string(body))
	}
	got := all()
	require.Len(t, got, 3)
	require.Equal(t, "POST /channel/{channel}/broadcast", got[0].Route)
	require.Equal(t, []string{"/channel/c/broadcast?q=1", "one", "read one", "3"}, []string{got[0].Path,
		string(got[0].Body), string(got[0].Text), got[0].Answer.Get("X-Length")})
	require.False(t, got[0].Cut || got[0].TextCut)
	require.Equal(t, "text/plain", got[0].Headers.Get("Content-Type"))
	require.True(t, got[1].TextCut)
	require.Equal(t, "GET /producers", got[2].Route)
	require.Equal(t, "read ", string(got[2].Text))
}

func TestWithoutAFolderNothingIsRecorded(t *testing.T) {
	if ofProcess() != nil {
		require.NotNil(t, Fasthttp(nil)) // these tests themselves are recorded
		return
	}
	require.Nil(t, Fasthttp(nil))
	require.Equal(t, http.DefaultTransport, HTTP(http.DefaultTransport))
}
