package intake

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// sender and other are the keys of two users.
var sender, other = share.Producer(1), share.Producer(2)

func bound(most int64) *share.Bound { return share.New(share.Options{Name: "bodies", Most: most}) }

// serve answers requests with the outcome of reading their bodies, and with the
// bytes that are counted meanwhile.
func serve(t *testing.T, b *share.Bound, most int) *fasthttputil.InmemoryListener {
	l := NewLimit(b, most)
	ln := fasthttputil.NewInmemoryListener()
	s := &fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(rc *fasthttp.RequestCtx) {
		taken, err := l.Load(rc, sender)
		if err != nil {
			problem.Write(rc, err)
			rc.SetConnectionClose()
			return
		}
		fmt.Fprintf(rc, "%d bytes, %d counted, token %q", len(rc.Request.Body()), b.Taken(),
			rc.Request.Header.Peek("X-Token"))
		l.Drop(rc, taken)
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		require.NoError(t, <-done)
		require.Zero(t, b.Taken(), "what was counted is given back")
	})
	return ln
}

// say sends a request and returns status and body of the answer.
func say(t *testing.T, ln *fasthttputil.InmemoryListener, request string) (int, string) {
	t.Helper()
	c, err := ln.Dial()
	require.NoError(t, err)
	defer c.Close()
	go func() { _, _ = io.WriteString(c, request) }()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func TestABodyWithinItsLimitIsLoaded(t *testing.T) {
	ln := serve(t, bound(1<<20), 100<<10)
	for _, n := range []int{0, 1, 1 << 10, 16 << 10, 20_000, 100 << 10} {
		body := strings.Repeat("x", n)
		status, answer := say(t, ln, fmt.Sprintf("POST / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s", n, body))
		require.Equal(t, 200, status)
		require.Equal(t, fmt.Sprintf(`%d bytes, %d counted, token ""`, n, n), answer)
		status, answer = say(t, ln, fmt.Sprintf("POST / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: "+
			"chunked\r\n\r\n%s0\r\nX-Token: forged\r\n\r\n", chunk(body)))
		require.Equal(t, 200, status)
		require.Contains(t, answer, fmt.Sprintf("%d bytes, ", n))
		require.Contains(t, answer, `token ""`, "a trailer is no header")
	}
}

func chunk(body string) string {
	if body == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
}

func TestALargerBodyIsRefused(t *testing.T) {
	for _, most := range []int{0, 1, 5000} {
		ln := serve(t, bound(1<<20), most)
		body := strings.Repeat("x", most+1)
		for _, request := range []string{
			fmt.Sprintf("POST / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
			fmt.Sprintf("GET / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
			"POST / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(body) + "0\r\n\r\n",
		} {
			status, answer := say(t, ln, request)
			require.Equal(t, 413, status, answer)
			require.Contains(t, answer, "body_too_large")
		}
		for _, request := range []string{
			"POST / HTTP/1.1\r\nHost: b\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		} {
			status, answer := say(t, ln, request)
			require.Equal(t, 200, status, answer)
		}
	}
}

func TestTheBoundRefusesWhatWouldBeTooMuchTogether(t *testing.T) {
	b := bound(10_000)
	ln := serve(t, b, 1<<20)
	require.True(t, b.Take(other, 6000))
	request := func(n int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("x", n))
	}
	status, answer := say(t, ln, request(5000))
	require.Equal(t, 503, status)
	require.Contains(t, answer, problem.ErrOverloaded.Code)
	require.EqualValues(t, 6000, b.Taken())
	status, _ = say(t, ln, request(3000))
	require.Equal(t, 200, status)
	b.Give(other, 6000)
	status, _ = say(t, ln, request(5000))
	require.Equal(t, 200, status)
}

// A slow body of a user who has much is ended for the sake of another one's, which gets through.
func TestTheSlowestBodyIsEndedWhenAnotherUserNeedsItsMemory(t *testing.T) {
	b := bound(200 << 10)
	keys := make(chan share.Key, 2)
	l := NewLimit(b, 1<<20)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(rc *fasthttp.RequestCtx) {
		loaded, err := l.Load(rc, <-keys)
		if err != nil {
			problem.Write(rc, err)
			return
		}
		l.Drop(rc, loaded)
	}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	defer func() {
		require.NoError(t, s.Shutdown())
		require.NoError(t, <-done)
		require.Zero(t, b.Taken())
	}()
	keys <- sender
	slow, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer slow.Close()
	_, err = fmt.Fprintf(slow, "POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 100000\r\n\r\n%s",
		strings.Repeat("x", 70_000))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Held(sender) > 70_000 }, time.Minute, time.Millisecond)
	answer := make(chan int, 1)
	go func() {
		r, err := http.ReadResponse(bufio.NewReader(slow), nil)
		if err != nil {
			answer <- 0
			return
		}
		answer <- r.StatusCode
	}()
	body := strings.Repeat("y", 90_000)
	require.Eventually(t, func() bool { // until the slow one is old enough to be compared
		keys <- other
		status := tell(t, ln.Addr().String(), fmt.Sprintf("POST / HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body))
		return status == 200
	}, time.Minute, time.Millisecond)
	require.Equal(t, 408, <-answer)
}

// tell sends a request over TCP and returns the status of the answer, 0 where there is none.
func tell(t *testing.T, addr, request string) int {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	go func() { _, _ = io.WriteString(c, request) }()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	return answer.StatusCode
}

// A client that announces much and sends little holds what it has sent.
func TestMemoryFollowsWhatHasArrived(t *testing.T) {
	b := bound(1 << 30)
	g := growing{bound: b}
	arrived := 0
	err := g.read(readerFunc(func(p []byte) (int, error) {
		require.LessOrEqual(t, b.Taken(), int64(max(firstOfLength, 2*arrived)))
		n := min(len(p), 1000)
		arrived += n
		if arrived > 300_000 {
			return 0, io.ErrUnexpectedEOF
		}
		return n, nil
	}), firstOfLength, 64<<20)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// deadlines notes the read deadlines of a connection.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestALargeBodyMayTakeLongAndNoneMayStop(t *testing.T) {
	begun := time.Now()
	at := func(d time.Duration) time.Time { return begun.Add(d) }
	for name, c := range map[string]struct {
		now  time.Duration
		got  int
		want time.Duration
	}{
		"nothing yet":               {0, 0, Patience},
		"a fast one may not pause":  {time.Second, 60 << 20, time.Second + Patience},
		"at the minimum rate":       {800 * time.Second, 800 * MinRate, 800*time.Second + Patience},
		"slower than that":          {100 * time.Second, 75 * MinRate, 75*time.Second + Patience},
		"too slow for long: over":   {100 * time.Second, 60 * MinRate, 60*time.Second + Patience},
		"64 MiB at 10 KiB a second": {6553 * time.Second, 64 << 20, 6553*time.Second + Patience},
	} {
		require.Equal(t, at(c.want), Deadline(begun, at(c.now), c.got), name)
	}

	d := &deadlines{}
	g := growing{bound: bound(1 << 30), conn: d, begun: begun}
	require.NoError(t, g.read(bytes.NewReader(make([]byte, paceStep-1)), 1<<10, paceStep-1))
	require.Empty(t, d.set, "a small body costs no call")
	g = growing{bound: g.bound, conn: d, begun: begun}
	require.NoError(t, g.read(bytes.NewReader(make([]byte, 4<<20)), 1<<10, 4<<20))
	require.NotEmpty(t, d.set)
	require.LessOrEqual(t, len(d.set), 4<<20/paceStep)
}
