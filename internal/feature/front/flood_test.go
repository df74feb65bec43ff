package front

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// The frames of HTTP/2 that the attacks are made of (RFC 9113, 6).
const (
	frameHeaders, frameReset, frameSettings, framePing, frameContinuation = 1, 3, 4, 6, 9

	flagEndStream, flagEndHeaders = 1, 4
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func frameOf(kind, flags byte, stream uint32, payload string) string {
	head := make([]byte, 9)
	binary.BigEndian.PutUint32(head, uint32(len(payload))<<8|uint32(kind))
	head[4] = flags
	binary.BigEndian.PutUint32(head[5:], stream)
	return string(head) + payload
}

// getOf are the headers of GET / in HPACK: indexed ones, and a literal :authority.
const getOf = "\x82\x84\x86\x01\x01h"

// attack opens a connection of h2c that reads nothing. What the server sends is dropped if drop is set.
func (r *rig) attack(drop bool) net.Conn {
	c, err := net.Dial("tcp", r.plain)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	if drop {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	_, err = io.WriteString(c, preface+frameOf(frameSettings, 0, 0, ""))
	require.NoError(r.t, err)
	return c
}

// ends writes frames until the server closes the connection, at most that many.
func ends(t *testing.T, c net.Conn, most int, next func(i int) string) (sent int) {
	t.Helper()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(patience)))
	for i := range most {
		if _, err := io.WriteString(c, next(i)); err != nil {
			return i
		}
	}
	require.Fail(t, "the server takes it for ever")
	return most
}

// serves requires that the front still serves others.
func (r *rig) serves() {
	r.t.Helper()
	c, base := r.client("h2c")
	defer c.CloseIdleConnections()
	got, err := c.Get(base)
	require.Equal(r.t, "served", read(r.t, got, err))
	require.Eventually(r.t, func() bool { return r.streams.Taken() == 0 }, patience, time.Millisecond)
}

func served(rc *fasthttp.RequestCtx) { rc.SetBodyString("served") }

// CVE-2023-44487: requests that are reset at once. Only so many run, and the connection is ended when
// more wait than it may have streams.
func TestRapidResetsAreSurvived(t *testing.T) {
	var under, most atomic.Int64
	release := make(chan struct{})
	r := newRig(t, func(rc *fasthttp.RequestCtx) {
		if string(rc.Host()) != "h" {
			served(rc)
			return
		}
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		under.Add(-1)
	}, nil)
	c := r.attack(true)
	sent := ends(t, c, 1<<20, func(i int) string {
		stream := uint32(2*i + 1)
		return frameOf(frameHeaders, flagEndStream|flagEndHeaders, stream, getOf) +
			frameOf(frameReset, 0, stream, "\x00\x00\x00\x08")
	})
	t.Logf("%d resets, at most %d handlers", sent, most.Load())
	require.LessOrEqual(t, most.Load(), int64(mostStreams))
	close(release)
	r.serves()
}

// CVE-2023-45288: a head without an end.
func TestAHeadWithoutAnEndIsEnded(t *testing.T) {
	r := newRig(t, served, nil)
	c := r.attack(true)
	_, err := io.WriteString(c, frameOf(frameHeaders, flagEndStream, 1, getOf))
	require.NoError(t, err)
	sent := ends(t, c, 10_000, func(i int) string {
		name := fmt.Sprintf("x-%06d", i)
		return frameOf(frameContinuation, 0, 1, strings.Repeat("\x00"+string(rune(len(name)))+name+"\x64"+
			strings.Repeat("v", 100), 100))
	})
	require.Less(t, sent, 1000, "some 11 KiB each")
	r.serves()
}

// A client that wants answers of the protocol and reads none of them is ended.
func TestPingsWithoutAReaderAreEnded(t *testing.T) {
	r := newRig(t, served, nil)
	c := r.attack(false)
	many := strings.Repeat(frameOf(framePing, 0, 0, "12345678"), 1000)
	ends(t, c, 100_000, func(int) string { return many })
	r.serves()
}

// A large head is refused: by the HTTP/1.1 server in its own words, or by net/http.
func TestLargeHeadsAreRefused(t *testing.T) {
	r := newRig(t, served, nil)
	for _, protocol := range []string{"h2", "h2c"} {
		c, base := r.client(protocol)
		for _, size := range []int{20 << 10, 28 << 10, 64 << 10, 900 << 10} {
			req, err := http.NewRequest("GET", base, nil)
			require.NoError(t, err)
			req.Header.Set("X-Long", strings.Repeat("h", size))
			got, err := c.Do(req)
			if err != nil {
				continue // the connection is ended
			}
			require.NotEqual(t, 200, got.StatusCode)
			_ = got.Body.Close()
		}
		c.CloseIdleConnections()
	}
	r.serves()
}

// A connection without a handshake is ended, and so is one that speaks no TLS.
func TestHandshakesHaveATime(t *testing.T) {
	r := newRig(t, served, func(o *Options, _ *fasthttp.Server, _ Files) { o.Log = slog.New(slog.DiscardHandler) })
	slow, err := net.Dial("tcp", r.secure)
	require.NoError(t, err)
	defer slow.Close()
	wrong, err := net.Dial("tcp", r.secure)
	require.NoError(t, err)
	defer wrong.Close()
	_, err = io.WriteString(wrong, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(t, err)
	for _, c := range []net.Conn{wrong, slow} {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		_, err = io.ReadAll(c)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.Equal(t, "2", metric(t, r, "penstock_tls_handshake_failures_total", ""))
	r.serves()
}

// What cannot be written as HTTP/1.1 without another meaning is refused, whatever net/http does.
func TestNothingIsSmuggled(t *testing.T) {
	request := func(change func(r *http.Request)) *http.Request {
		r := &http.Request{Method: "GET", RequestURI: "/a?b", Host: "h", Header: http.Header{"X-A": {"b c\t\xff"}}}
		if change != nil {
			change(r)
		}
		return r
	}
	require.True(t, writable(request(nil)))
	require.True(t, writable(request(func(r *http.Request) { r.Method, r.RequestURI = "OPTIONS", "*" })))
	require.True(t, writable(request(func(r *http.Request) { r.Method, r.RequestURI = "CONNECT", "h:1" })))
	for name, change := range map[string]func(r *http.Request){
		"method":       func(r *http.Request) { r.Method = "GET /x HTTP/1.1\r\nA: b\r\n\r\nGET" },
		"no method":    func(r *http.Request) { r.Method = "" },
		"blank":        func(r *http.Request) { r.RequestURI = "/a HTTP/1.1" },
		"line":         func(r *http.Request) { r.RequestURI = "/a\r\nX: y" },
		"no target":    func(r *http.Request) { r.RequestURI = "" },
		"absolute":     func(r *http.Request) { r.RequestURI = "http://other/" },
		"star":         func(r *http.Request) { r.RequestURI = "*" },
		"host":         func(r *http.Request) { r.Host = "h\r\nX: y" },
		"host, blank":  func(r *http.Request) { r.Host = "h x" },
		"name":         func(r *http.Request) { r.Header["X-A: b\r\nY"] = []string{"c"} },
		"name, colon":  func(r *http.Request) { r.Header["X:A"] = []string{"c"} },
		"empty name":   func(r *http.Request) { r.Header[""] = []string{"c"} },
		"value, line":  func(r *http.Request) { r.Header["X-A"] = []string{"b\nY: z"} },
		"value, empty": func(r *http.Request) { r.Header["X-A"] = []string{"b", "\x00"} },
	} {
		require.False(t, writable(request(change)), name)
	}
	text := string(head(nil, request(func(r *http.Request) {
		r.Header = http.Header{"Transfer-Encoding": {"chunked"}, "Content-Length": {"7"}, "Connection": {"x"},
			"Te": {"trailers"}, "Expect": {"100-continue"}, "Host": {"other"}}
	})))
	require.Equal(t, "GET /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", text)
}
