package egress

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// Frame types and codes of RFC 9113.
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway   = 0, 1, 3, 4, 7
	codeNo, codeProtocol, codeInternal, codeRefused, codeCalm, code11 = 0, 1, 2, 7, 11, 13
)

func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, flags), stream), payload...)
}

func word(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// A rawH2 is an HTTP/2 server that answers each request by hand.
type rawH2 struct {
	net.Listener
	conns, requests, answered, over atomic.Int32

	leaves atomic.Pointer[func(no int32) bool] // connections that end at once, nil: none
	pour   func(conn net.Conn)                 // writes to each connection beside the answers, nil: nothing
}

func (s *rawH2) url() string { return "http://" + s.Addr().String() + "/cb" }

// ok is the answer 200.
func (s *rawH2) ok(stream uint32) []byte {
	s.answered.Add(1)
	return frame(frameHeaders, 5, stream, 0x88) // END_STREAM, END_HEADERS; :status 200
}

// An h2conn is one connection to it.
type h2conn struct {
	n      int    // requests so far
	stream uint32 // of the present one
	top    uint32 // the highest stream so far
	gone   bool   // GOAWAY was sent
	last   uint32 // of GOAWAY: later streams are ignored
}

// goAway says that no request after the last one is processed.
func (c *h2conn) goAway(last uint32, code uint32) []byte {
	c.gone, c.last = true, last
	return frame(frameGoAway, 0, 0, append(word(last), word(code)...)...)
}

// speaking serves HTTP/2. answer returns what is said to a request; the connection ends when closes
// is true.
func speaking(t testing.TB, answer func(s *rawH2, c *h2conn) (frames []byte, closes bool)) *rawH2 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawH2{Listener: l}
	var conns sync.Map
	t.Cleanup(func() {
		_ = l.Close()
		conns.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			no := s.conns.Add(1)
			conns.Store(conn, true)
			if leaves := s.leaves.Load(); leaves != nil && (*leaves)(no) {
				_, _ = conn.Write(append(frame(frameSettings, 0, 0), (&h2conn{}).goAway(0, codeNo)...))
				_ = conn.(*net.TCPConn).CloseWrite() // a reset would take what was said with it
				continue
			}
			go s.serve(conn, answer)
		}
	}()
	return s
}

func (s *rawH2) serve(conn net.Conn, answer func(*rawH2, *h2conn) ([]byte, bool)) {
	defer s.over.Add(1)
	defer conn.Close()
	if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	_, _ = conn.Write(frame(frameSettings, 0, 0))
	head := make([]byte, 9)
	c := &h2conn{}
	for {
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head)>>8)); err != nil {
			return
		}
		switch {
		case head[3] == frameSettings && head[4] == 0:
			_, _ = conn.Write(frame(frameSettings, 1, 0))
		case (head[3] == frameData || head[3] == frameHeaders) && head[4]&1 != 0: // END_STREAM
			c.n++
			c.stream = binary.BigEndian.Uint32(head[5:])
			c.top = max(c.top, c.stream)
			if c.gone {
				if c.stream <= c.last {
					_, _ = conn.Write(s.ok(c.stream))
				}
				continue
			}
			s.requests.Add(1)
			say, closes := answer(s, c)
			_, _ = conn.Write(say)
			if closes {
				return
			}
			if s.pour != nil {
				s.pour(conn)
				return
			}
		}
	}
}

func TestARequestThatHTTP2RefusesUnreadIsSentAgain(t *testing.T) {
	for name, answer := range map[string]func(s *rawH2, c *h2conn) ([]byte, bool){
		"GOAWAY after each few requests": func(s *rawH2, c *h2conn) ([]byte, bool) {
			if c.n == 3 {
				return append(c.goAway(c.top, codeNo), s.ok(c.stream)...), false
			}
			return s.ok(c.stream), false
		},
		"GOAWAY instead of an answer": func(s *rawH2, c *h2conn) ([]byte, bool) {
			if s.conns.Load()%2 == 1 {
				return c.goAway(0, codeNo), false
			}
			return s.ok(c.stream), false
		},
		"GOAWAY with an error": func(s *rawH2, c *h2conn) ([]byte, bool) {
			if s.conns.Load()%2 == 1 {
				return c.goAway(0, codeCalm), false
			}
			return s.ok(c.stream), false
		},
		"REFUSED_STREAM": func(s *rawH2, c *h2conn) ([]byte, bool) {
			if s.requests.Load()%3 != 0 {
				return frame(frameReset, 0, c.stream, word(codeRefused)...), false
			}
			return s.ok(c.stream), false
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := speaking(t, answer)
			target, err := client(t).Target(ToConsumers, s.url(), "h2")
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 10 {
						if r := postTo(target, "x", 20*time.Second); !r.OK() {
							t.Errorf("%+v", r)
						}
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 40, s.answered.Load(), "each request is processed once")
		})
	}
}

func TestAConsumerThatRefusesAllRequestsGotNone(t *testing.T) {
	s := speaking(t, func(_ *rawH2, c *h2conn) ([]byte, bool) {
		return frame(frameReset, 0, c.stream, word(codeRefused)...), false
	})
	r := post(t, client(t), s.url(), "h2", "x", 500*time.Millisecond)
	require.ErrorIs(t, r.Err, ErrRefused)
	require.False(t, r.Sent)
	require.Greater(t, s.requests.Load(), int32(2))
	require.Less(t, s.requests.Load(), int32(30), "with pauses")
}

// What may have been processed is not sent again, and its reason is no text of a library.
func TestOtherFailuresOfHTTP2AreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(stream uint32) []byte
		told   string
	}{
		"INTERNAL_ERROR": {func(stream uint32) []byte { return frame(frameReset, 0, stream, word(codeInternal)...) },
			"the consumer ended the HTTP/2 stream (INTERNAL_ERROR)"},
		"PROTOCOL_ERROR": {func(stream uint32) []byte { return frame(frameReset, 0, stream, word(codeProtocol)...) },
			"the consumer ended the HTTP/2 stream (PROTOCOL_ERROR)"},
		"GOAWAY that took it": {func(stream uint32) []byte {
			return frame(frameGoAway, 0, 0, append(word(stream), word(codeNo)...)...)
		}, "stream (NO_ERROR)"},
		"no answer": {func(uint32) []byte { return nil }, ErrNoAnswer.Error()},
		"nonsense": {func(stream uint32) []byte {
			return frame(frameHeaders, 5, stream, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
		}, ""},
		"a frame of no stream": {func(uint32) []byte { return frame(frameData, 0, 0, 'x') }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := speaking(t, func(_ *rawH2, c *h2conn) ([]byte, bool) { return tc.answer(c.stream), true })
			r := post(t, client(t), s.url(), "h2", "x", 20*time.Second)
			require.Error(t, r.Err)
			require.Contains(t, r.Err.Error(), tc.told)
			for _, word := range []string{"net/http", "http2:", "Transport", "stream error", "GetBody", "goroutine"} {
				require.NotContains(t, r.Err.Error(), word)
			}
			require.True(t, r.Sent)
			require.EqualValues(t, 1, s.requests.Load())
		})
	}
}

func TestAServerWithoutHTTP2GetsHTTP1(t *testing.T) {
	for name, greeting := range map[string]string{"400": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
		"a page": "<!DOCTYPE HTML>"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			var prior, posts atomic.Int32
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						buf := make([]byte, 4096)
						n, _ := conn.Read(buf)
						if strings.HasPrefix(string(buf[:n]), "PRI ") {
							prior.Add(1)
							_, _ = conn.Write([]byte(greeting))
							return
						}
						posts.Add(1)
						_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
					}()
				}
			}()
			c := client(t)
			for range 3 {
				r := post(t, c, "http://"+l.Addr().String()+"/", "h2", "x", 20*time.Second)
				require.True(t, r.OK(), "%+v", r)
			}
			require.EqualValues(t, 3, posts.Load())
			require.EqualValues(t, 1, prior.Load(), "it is remembered")
		})
	}
}

func TestAServerThatWantsHTTP1GetsIt(t *testing.T) {
	s := speaking(t, func(_ *rawH2, c *h2conn) ([]byte, bool) {
		return frame(frameReset, 0, c.stream, word(code11)...), false
	})
	r := post(t, client(t), s.url(), "h2", "x", time.Second)
	require.Error(t, r.Err, "this one speaks HTTP/2 only")
	require.EqualValues(t, 1, s.requests.Load())
	require.EqualValues(t, 2, s.conns.Load())
}

// A consumer that floods its connection loses it, and each later attempt has a connection of its own.
// One that answers much, again and again, keeps it.
func TestAConnectionOfHTTP2ThatIsFloodedEnds(t *testing.T) {
	// of an unknown type; PING
	flood := append(frame(0x77, 0, 0, make([]byte, 16<<10)...), frame(6, 0, 0, make([]byte, 8)...)...)
	var poured atomic.Int64
	s := speaking(t, func(s *rawH2, c *h2conn) ([]byte, bool) { return s.ok(c.stream), false })
	s.pour = func(conn net.Conn) {
		for {
			n, err := conn.Write(flood)
			if poured.Add(int64(n)); err != nil {
				return
			}
		}
	}
	c := client(t)
	for range 3 {
		before := s.conns.Load()
		_ = post(t, c, s.url(), "h2", "x", 10*time.Second) // it may get its answer first
		require.Eventually(t, func() bool { return s.over.Load() > before }, 10*time.Second, time.Millisecond)
	}
	require.EqualValues(t, 3, s.conns.Load())
	require.Less(t, poured.Load(), int64(3*(restGrant+16<<20)), "what the sockets take is not read")

	body := frame(frameData, 0, 0, make([]byte, 16<<10)...)
	much := speaking(t, func(s *rawH2, c *h2conn) (say []byte, closes bool) {
		say = frame(frameHeaders, 4, c.stream, 0x88)
		for range 3 {
			say = append(say, frame(frameData, 0, c.stream, body[9:]...)...)
		}
		return append(say, frame(frameData, 1, c.stream)...), false
	})
	for range 200 { // 10 MB
		r := post(t, c, much.url(), "h2", "x", 10*time.Second)
		require.NoError(t, r.Err)
		require.Equal(t, 200, r.Status)
	}
	require.EqualValues(t, 1, much.conns.Load())
}

// A consumer with an https URL that does not speak HTTP/2 sees header names as they are written, and
// what is wrong with its answers is named.
func TestAnHTTPSServerWithoutHTTP2GetsHTTP1(t *testing.T) {
	known := httptest.NewTLSServer(nil)
	t.Cleanup(known.Close)
	for name, tc := range map[string]struct {
		answer string
		err    error
	}{
		"an answer":           {"HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 2\n\nok", nil},
		"no HTTP":             {"SSH-2.0-OpenSSH\r\n", errNotHTTP},
		"different lengths":   {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", errLengths},
		"a length of letters": {"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", errLength},
		"a transfer coding":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", errTransfer},
		"a header":            {"HTTP/1.1 200 OK\r\nno header\r\n\r\nok", errHeader},
		"large headers":       {"HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", maxHeadBytes) + "\r\n\r\n", errHeadSize},
		"chunks":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n", errChunks},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: known.TLS.Certificates,
				MinVersion: tls.VersionTLS12})
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			got := make(chan string, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				buf := make([]byte, 4096)
				n, _ := conn.Read(buf)
				got <- string(buf[:n])
				_, _ = io.WriteString(conn, tc.answer)
			}()
			target, err := client(t, trust(known)).Target(ToConsumers, "https://"+l.Addr().String(), "h2")
			require.NoError(t, err)
			req := fasthttp.AcquireRequest()
			defer fasthttp.ReleaseRequest(req)
			req.Header.SetCanonical([]byte("SOAPAction"), []byte("urn:x"))
			r := target.Post(req, 20*time.Second)
			require.ErrorIs(t, r.Err, tc.err)
			require.Contains(t, <-got, "\r\nSOAPAction: urn:x\r\n")
		})
	}
}

// A consumer that goes away before it has a request on a connection has processed none.
func TestAConnectionThatEndsBeforeARequestRefusesIt(t *testing.T) {
	s := speaking(t, func(s *rawH2, c *h2conn) ([]byte, bool) { return s.ok(c.stream), false })
	leaves := func(no int32) bool { return no < 4 }
	s.leaves.Store(&leaves)
	for range 3 {
		r := post(t, client(t), s.url(), "h2", "x", 20*time.Second)
		require.True(t, r.OK(), "%+v", r)
	}
	require.EqualValues(t, 3, s.answered.Load())
}
