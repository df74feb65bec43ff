package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A hall is a server with few places, and the listener's address.
type hall struct {
	t      *testing.T
	addr   string
	places *Places
	hold   chan struct{} // GET /held ends when it is closed

	held    atomic.Int32 // such requests
	release func()       // closes hold, once
}

func newHall(t *testing.T, most int) *hall {
	t.Helper()
	w := newWorld(t, nil)
	h := &hall{t: t, places: NewPlaces(most), hold: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.hold) })
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.addr = inner.Addr().String()
	s := NewServer(func(rc *fasthttp.RequestCtx) {
		if string(rc.Path()) == "/held" {
			h.held.Add(1)
			<-h.hold
			return
		}
		w.api.Handler(rc)
	}, ServerOptions{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(Listen(inner, h.places)) }()
	t.Cleanup(func() {
		h.release()
		require.NoError(t, s.Shutdown())
		require.NoError(t, <-served)
		for _, b := range h.places.Bounds() {
			require.Eventually(t, func() bool { return b.Taken() == 0 }, time.Minute, time.Millisecond) // one may linger
		}
	})
	return h
}

// dial connects from an address of loopback and sends text.
func (h *hall) dial(from, text string) *bufio.ReadWriter {
	h.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", h.addr)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = c.Close() })
	require.NoError(h.t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, text)
	require.NoError(h.t, err)
	return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
}

const probe = "GET /livez HTTP/1.1\r\nHost: broker\r\n\r\n"

// ask sends one more request and returns the status and whether the server closes; 0: there is no answer.
func ask(c *bufio.ReadWriter, text string) (status int, closes bool) {
	_, _ = c.WriteString(text)
	_ = c.Flush()
	r, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		return 0, true
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode, r.Close
}

// awaitTaken waits until the server has accepted so many.
func (h *hall) awaitTaken(main int64) {
	require.Eventually(h.t, func() bool { return h.places.main.Taken() == main }, 30*time.Second, time.Millisecond)
}

func TestAtTheLimitOfAnAddressTheConnectionGoesThatHasRestedLongest(t *testing.T) {
	h := newHall(t, 16) // 14 and 2 late ones: one address gets 7
	kept := h.dial("127.0.0.1", "")
	status, _ := ask(kept, probe)
	require.Equal(t, 200, status)
	var silent []*bufio.ReadWriter
	for _, text := range []string{"", "G", "GET /livez HTTP/1.1\r\nHost: b", "", "", ""} {
		silent = append(silent, h.dial("127.0.0.1", text))
	}
	h.awaitTaken(7)
	for i := range 4 {
		next := h.dial("127.0.0.1", "")
		status, closes := ask(next, probe)
		require.Equal(t, 200, status)
		require.False(t, closes, "it has a place of its own")
		text, err := io.ReadAll(silent[i])
		require.NoError(t, err, "a normal end")
		require.NotContains(t, string(text), "200")
	}
	require.EqualValues(t, 7, h.places.main.Taken())
	status, closes := ask(kept, probe)
	require.Equal(t, 200, status, "those without a head go first")
	require.False(t, closes)
	status, _ = ask(h.dial("127.0.0.2", ""), probe)
	require.Equal(t, 200, status, "another address has room")
}

func TestALateConnectionIsForProbesAndManagement(t *testing.T) {
	h := newHall(t, 64) // 56 and 8 late ones: one address gets 28 and 4
	var busy []*bufio.ReadWriter
	for range 28 {
		busy = append(busy, h.dial("127.0.0.1", "GET /held HTTP/1.1\r\nHost: broker\r\n\r\n"))
	}
	require.Eventually(t, func() bool { return h.held.Load() == 28 }, 30*time.Second, time.Millisecond,
		"none rests any more")
	require.EqualValues(t, 28, h.places.main.Taken())
	for request, want := range map[string]int{
		"GET /channels":                              200,
		"GET /metrics":                               200,
		"POST /channel/c/broadcast":                  503,
		"POST /channel/c/batch":                      503,
		"GET /channel/c/consumer/k/queued-jobs":      503,
		"POST /channel/c/consumer/k/claim":           503,
		"GET /channel/c/message/06gvk862do000000001": 503,
	} {
		status, closes := ask(h.dial("127.0.0.1", ""), request+" HTTP/1.1\r\nHost: broker\r\nContent-Length: 0\r\n\r\n")
		require.Equal(t, want, status, request)
		require.True(t, closes, "%s %d %d", request, h.places.main.Taken(), h.places.late.Taken())
	}
	drip := h.dial("127.0.0.1", "GET")
	for range 20 { // the same address goes on to be probed beside heads that do not come
		status, _ := ask(h.dial("127.0.0.1", ""), probe)
		require.Equal(t, 200, status)
		h.dial("127.0.0.1", "GET")
	}
	_, err := io.ReadAll(drip)
	require.NoError(t, err)
	h.release()
	for _, c := range busy {
		status, closes := ask(c, "")
		require.Equal(t, 200, status, "a connection at work is left alone")
		require.False(t, closes)
	}
	require.Eventually(t, func() bool { // all is as before
		status, closes := ask(h.dial("127.0.0.1", ""), probe)
		return status == 200 && !closes
	}, 30*time.Second, time.Millisecond)
}
