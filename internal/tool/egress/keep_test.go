package egress

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// all keeps every header.
func all(string) bool { return true }

// keeping posts to a server and keeps what keep says, over both protocols.
func keeping(t *testing.T, handler http.HandlerFunc, keep func() *Keep, check func(t *testing.T, r Result, k *Keep)) {
	for _, protocol := range []string{"", "h2"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var p http.Protocols
			p.SetHTTP1(true)
			p.SetUnencryptedHTTP2(true)
			s := &http.Server{Handler: handler, Protocols: &p}
			go s.Serve(l)
			t.Cleanup(func() { s.Close() })
			c := client(t)
			target, err := c.Target(ToConsumers, "http://"+l.Addr().String()+"/", protocol)
			require.NoError(t, err)
			req := fasthttp.AcquireRequest()
			defer fasthttp.ReleaseRequest(req)
			k := keep()
			check(t, target.PostKeeping(req, 30*time.Second, k), k)
		})
	}
}

func TestABodyIsKeptWholeUpToTheByte(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 5000, 9999, 10_000, 10_001, 200_000} {
		for _, chunked := range []bool{false, true} {
			body, asked := strings.Repeat("x", size), atomic.Int64{}
			keeping(t, func(w http.ResponseWriter, _ *http.Request) {
				if !chunked {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				_, _ = io.WriteString(w, body[:size/2])
				if chunked {
					w.(http.Flusher).Flush()
				}
				_, _ = io.WriteString(w, body[size/2:])
			}, func() *Keep {
				asked.Store(0)
				return &Keep{Bytes: 10_000, Headers: all, Has: 2000, Room: func(n int) bool { asked.Add(int64(n)); return true }}
			}, func(t *testing.T, r Result, k *Keep) {
				require.NoError(t, r.Err)
				require.Equal(t, body[:min(size, 10_000)], string(r.Response.Body))
				require.Equal(t, size > 10_000, r.Response.Truncated)
				require.False(t, k.Cut())
				kept := int64(min(size, 10_000))
				require.GreaterOrEqual(t, asked.Load(), kept-2000, "room is asked for")
				require.LessOrEqual(t, asked.Load(), max(0, 2*kept-2000))
			})
		}
	}
}

func TestABodyWithoutRoomIsCutOffAndNotAFailure(t *testing.T) {
	keeping(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 9000)) },
		func() *Keep {
			return &Keep{Bytes: 10_000, Headers: all, Has: 1000, Room: func(int) bool { return false }}
		},
		func(t *testing.T, r Result, k *Keep) {
			require.NoError(t, r.Err)
			require.True(t, r.OK())
			require.True(t, k.Cut())
			require.True(t, r.Response.Truncated)
			require.GreaterOrEqual(t, len(r.Response.Body), 1000, "what it has is used")
			require.Less(t, len(r.Response.Body), 2048)
		})
}

func TestABodyThatDripsIsCutOffWhenItsPlaceEnds(t *testing.T) {
	keeping(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 3000))
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	}, func() *Keep {
		k := &Keep{Bytes: 10_000, Headers: all, Has: 100}
		k.Room = func(int) bool { time.AfterFunc(50*time.Millisecond, k.End); return true }
		return k
	}, func(t *testing.T, r Result, k *Keep) {
		require.NoError(t, r.Err)
		require.True(t, k.Cut())
		require.Len(t, r.Response.Body, 3000)
		require.True(t, r.Response.Truncated)
		k.End() // late: nothing is read any more
	})
}

func TestAnAnswerThatWaitedForRoomUntilItsDeadlineIsKept(t *testing.T) {
	l := hearing(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"+strings.Repeat("x", 2000))
		hang(c)
	})
	target, err := client(t).Target(ToConsumers, "http://"+l.Addr().String()+"/", "")
	require.NoError(t, err)
	for waited, want := range map[bool]error{true: nil, false: ErrTimeout} {
		req := fasthttp.AcquireRequest()
		k := &Keep{Bytes: 10_000, Headers: all, Waited: waited}
		r := target.PostKeeping(req, 2*time.Second, k)
		fasthttp.ReleaseRequest(req)
		require.ErrorIs(t, r.Err, want)
		require.Equal(t, waited, r.OK())
		require.Equal(t, waited, k.Cut())
	}
}

// What a consumer sends over HTTP/2 before its answer is read waits at the consumer.
func TestAnAnswerOfHTTP2ThatIsNotReadYetTakesLittleMemory(t *testing.T) {
	const size = 8 << 20
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	var written atomic.Int64
	s := &http.Server{Protocols: &p, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 16<<10)
		for written.Load() < size {
			n, err := w.Write(chunk)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	target, err := client(t).Target(ToConsumers, "http://"+l.Addr().String()+"/", "h2")
	require.NoError(t, err)
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	waits, room := make(chan struct{}, 1), make(chan bool)
	done := make(chan Result)
	go func() {
		done <- target.PostKeeping(req, 30*time.Second, &Keep{Bytes: size, Headers: all, Has: firstKept,
			Room: func(int) bool {
				select {
				case waits <- struct{}{}:
				default:
				}
				return <-room
			}})
	}()
	<-waits
	var before int64
	require.Eventually(t, func() bool { // until the consumer sends no more
		now := written.Load()
		still := now == before
		before = now
		return still && now > 0
	}, 10*time.Second, 300*time.Millisecond)
	require.LessOrEqual(t, written.Load(), int64(256<<10))
	close(room)
	r := <-done
	require.True(t, r.Response.Truncated)
}

func TestLinesOfOneHeaderAreKeptAsOne(t *testing.T) {
	r := &Response{}
	keep := &Keep{Headers: func(string) bool { return true }}
	for _, line := range [][2]string{{"Content-Language", "de"}, {"X-B", "1"}, {"Content-Language", "en"}, {"X-B", ""},
		{"B", "2"}} {
		r.Add(keep, line[0], line[1])
	}
	require.Equal(t, "Content-Language:de, en\nX-B:1, \nB:2\n", string(r.Headers))
}
