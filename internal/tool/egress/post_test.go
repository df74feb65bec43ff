package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func TestARequestArrivesAsItWasFilled(t *testing.T) {
	for _, protocol := range []string{"", "h2"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			var got *http.Request
			var body []byte
			srv := h2server(t, func(w http.ResponseWriter, r *http.Request) {
				got = r
				body, _ = io.ReadAll(r.Body)
				w.WriteHeader(http.StatusAccepted)
				w.Write([]byte("thanks"))
			})
			target, err := client(t).Target(ToConsumers, srv.URL+"/a%2Fb//../c?x=1&y=%20", protocol)
			require.NoError(t, err)
			req := fasthttp.AcquireRequest()
			defer fasthttp.ReleaseRequest(req)
			req.SetRequestURI("http://elsewhere.example/other") // ours wins
			req.Header.SetContentType("application/x-thing")
			req.Header.Set("X-Broker-Message-ID", "m1")
			req.Header.Add("X-Many", "1")
			req.Header.Add("X-Many", "2")
			req.SetBody([]byte("pay\x00load"))

			r := target.Post(req, 5*time.Second)
			require.NoError(t, r.Err)
			require.True(t, r.OK())
			require.True(t, r.Sent)
			require.False(t, r.Local)
			require.Equal(t, http.StatusAccepted, r.Status)
			require.Equal(t, "thanks", string(r.Answer))
			require.Equal(t, time.Duration(-1), r.RetryAfter)
			require.Positive(t, r.Took)

			require.Equal(t, http.MethodPost, got.Method)
			require.Equal(t, "/a%2Fb//../c?x=1&y=%20", got.RequestURI)
			require.Equal(t, strings.TrimPrefix(srv.URL, "http://"), got.Host)
			require.Equal(t, "Penstock/test", got.UserAgent())
			require.Equal(t, "application/x-thing", got.Header.Get("Content-Type"))
			require.Equal(t, "m1", got.Header.Get("X-Broker-Message-ID"))
			require.Equal(t, []string{"1", "2"}, got.Header["X-Many"])
			require.Empty(t, got.Header.Get("Accept-Encoding"), "compressed answers are not asked for")
			require.Equal(t, "pay\x00load", string(body))
			require.EqualValues(t, len(body), got.ContentLength)
			require.Equal(t, map[string]int{"": 1, "h2": 2}[protocol], got.ProtoMajor)
		})
	}
}

func TestAnEmptyBodyIsSent(t *testing.T) {
	for _, protocol := range []string{"", "h2"} {
		var n atomic.Int64
		srv := h2server(t, func(_ http.ResponseWriter, r *http.Request) {
			c, _ := io.Copy(io.Discard, r.Body)
			n.Store(c)
		})
		require.True(t, post(t, client(t), srv.URL, protocol, "", 5*time.Second).OK())
		require.Zero(t, n.Load())
	}
}

func TestExactlyOneRequestPerPost(t *testing.T) {
	t.Run("a server that reads the request and closes", func(t *testing.T) {
		srv := answering(t, func(net.Conn, int) bool { return false })
		r := post(t, client(t), srv.url(), "", "x", 5*time.Second)
		require.ErrorIs(t, r.Err, ErrNoAnswer)
		require.True(t, r.Sent)
		require.False(t, r.Local)
		require.Zero(t, r.Status)
		require.EqualValues(t, 1, srv.requests.Load())
	})
	t.Run("the same on a connection that was used before", func(t *testing.T) {
		srv := answering(t, func(c net.Conn, n int) bool {
			if n == 1 {
				c.Write([]byte(says("200 OK", "")))
			}
			return n == 1
		})
		c := client(t)
		require.True(t, post(t, c, srv.url(), "", "x", 5*time.Second).OK())
		r := post(t, c, srv.url(), "", "x", 5*time.Second)
		require.ErrorIs(t, r.Err, ErrNoAnswer)
		require.True(t, r.Sent)
		require.EqualValues(t, 2, srv.requests.Load())
		require.EqualValues(t, 1, srv.conns.Load())
	})
	t.Run("a reset", func(t *testing.T) {
		srv := answering(t, func(c net.Conn, _ int) bool {
			c.(*net.TCPConn).SetLinger(0)
			return false
		})
		r := post(t, client(t), srv.url(), "", "x", 5*time.Second)
		require.ErrorIs(t, r.Err, ErrNoAnswer)
		require.EqualValues(t, 1, srv.requests.Load())
	})
	t.Run("HTTP/2, stream and connection cut", func(t *testing.T) {
		for _, body := range []string{"x", ""} {
			var n atomic.Int32
			srv := h2server(t, func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				n.Add(1)
				panic(http.ErrAbortHandler)
			})
			c := client(t)
			r := post(t, c, srv.URL, "h2", body, 5*time.Second)
			require.Error(t, r.Err)
			require.True(t, r.Sent)
			require.False(t, r.Local)
			require.EqualValues(t, 1, n.Load())
		}
	})
}

func TestAConnectionTheServerClosedWhileIdleIsNotUsed(t *testing.T) {
	closed := make(chan struct{})
	srv := answering(t, func(c net.Conn, _ int) bool {
		c.Write([]byte(says("200 OK", "ok")))
		c.Close() // keep-alive was promised
		closed <- struct{}{}
		return false
	})
	c := client(t)
	for range 20 {
		r := post(t, c, srv.url(), "", "x", 5*time.Second)
		require.NoError(t, r.Err)
		<-closed
	}
	require.EqualValues(t, 20, srv.requests.Load())
}

func TestWhatAServerSaysUnaskedIsNotTheNextAnswer(t *testing.T) {
	answered, poisoned := make(chan struct{}), make(chan struct{})
	srv := answering(t, func(c net.Conn, n int) bool {
		c.Write([]byte(says("200 OK", "ok")))
		if n == 1 {
			<-answered
			c.Write([]byte(says("500 Poison", "")))
			close(poisoned)
		}
		return true
	})
	c := client(t)
	require.True(t, post(t, c, srv.url(), "", "x", 5*time.Second).OK())
	close(answered)
	<-poisoned
	require.True(t, post(t, c, srv.url(), "", "x", 5*time.Second).OK())

	trailing := saying(t, says("200 OK", "ok")+says("500 Poison", ""))
	require.True(t, post(t, c, trailing.url(), "", "x", 5*time.Second).OK())
	require.True(t, post(t, c, trailing.url(), "", "x", 5*time.Second).OK())
	require.EqualValues(t, 2, trailing.conns.Load())
}

func TestConnectionsAreReusedAndIdleOnesClosed(t *testing.T) {
	srv := saying(t, says("200 OK", "ok"))
	c := client(t, func(o *Options) { o.IdleTimeout = 400 * time.Millisecond })
	a, err := c.Target(ToConsumers, srv.url(), "")
	require.NoError(t, err)
	b, err := c.Target(ToConsumers, srv.url()+"?other", "")
	require.NoError(t, err)
	for range 10 {
		require.True(t, postTo(a, "x", 20*time.Second).OK())
		require.True(t, postTo(b, "x", 20*time.Second).OK())
	}
	require.EqualValues(t, 1, srv.conns.Load(), "targets of one host share connections")
	require.Eventually(t, func() bool { return c.open() == 0 }, 30*time.Second, 5*time.Millisecond)
	require.True(t, postTo(a, "x", 20*time.Second).OK())
	require.EqualValues(t, 2, srv.conns.Load())
}

func TestAHostNobodyPostsToIsForgottenAndItsTargetsStillWork(t *testing.T) {
	srv := saying(t, says("200 OK", "ok", "Connection: close"))
	c := client(t)
	target, err := c.Target(ToConsumers, srv.url(), "")
	require.NoError(t, err)
	require.True(t, postTo(target, "x", 20*time.Second).OK())
	h := target.host.Load()
	require.False(t, h.sweep(time.Now()))
	require.True(t, h.sweep(time.Now().Add(2*forgetHostAfter)))
	c.mu.Lock()
	delete(c.hosts, h.key)
	c.mu.Unlock()
	require.True(t, postTo(target, "x", 20*time.Second).OK())
	require.NotSame(t, h, target.host.Load())
}

func TestAnswers(t *testing.T) {
	big := strings.Repeat("b", 10<<20)
	chunked := "HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tc := range []struct {
		name, say string
		status    int
		err       error
		answer    string
	}{
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, nil, ""},
		{"a redirect is a status like any other", says("302 Found", "moved", "Location: http://169.254.169.254/"), 302,
			nil, "moved"},
		{"a 307 too", says("307 Temporary Redirect", "", "Location: /cb"), 307, nil, ""},
		{"an error with a text", says("500 Oops", "broken"), 500, nil, "broken"},
		{"an answer longer than we keep", says("500 Oops", big[:5000]), 500, nil, big[:1024]},
		{"a 10 MiB answer is still a success", says("200 OK", big), 200, nil, big[:1024]},
		{"a 10 MiB failure", says("503 Busy", big), 503, nil, big[:1024]},
		{"10 MiB in chunks", fmt.Sprintf(chunked, "200 OK") + "a00000\r\n" + big + "\r\n0\r\n\r\n", 200, nil, big[:1024]},
		{"10 MiB until the connection ends", "HTTP/1.1 200 OK\r\n\r\n" + big, 200, nil, big[:1024]},
		{"chunks", fmt.Sprintf(chunked, "200 OK") + "3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n", 200, nil, "abcde"},
		{"a body until the connection ends", "HTTP/1.0 200 OK\r\n\r\nabc", 200, nil, "abc"},
		{"compressed bytes are passed on untouched", says("200 OK", "\x1f\x8b\x08\x00junk", "Content-Encoding: gzip"), 200,
			nil, "\x1f\x8b\x08\x00junk"},
		{"interim answers", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + says("201 Created",
			"ok"), 201, nil, "ok"},
		{"a body shorter than it says", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 200, ErrIncomplete, "abc"},
		{"broken chunks", fmt.Sprintf(chunked, "200 OK") + "3\r\nabcXX", 200, ErrIncomplete, "abc"},
		{"chunks without an end", fmt.Sprintf(chunked, "200 OK") + "3\r\nabc\r\n", 200, ErrIncomplete, "abc"},
		{"a body longer than it says", says("200 OK", "abc") + "defghi", 200, nil, "abc"},
		{"half a head", "HTTP/1.1 200 OK\r\nX-Ha", 0, errAny, ""},
		{"nothing like HTTP", "SSH-2.0-OpenSSH_9.9\r\n", 0, errAny, ""},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 0, errAny, ""},
		{"endless headers", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", 2000), 0,
			errAny, ""},
		{"a flood of 1xx", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10000), 0, errAny, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := answering(t, func(c net.Conn, _ int) bool {
				c.Write([]byte(tc.say))
				return false
			})
			r := post(t, client(t), srv.url(), "", "x", 5*time.Second)
			switch tc.err {
			case nil:
				require.NoError(t, r.Err)
			case errAny:
				require.Error(t, r.Err)
				require.NotErrorIs(t, r.Err, ErrTimeout)
			default:
				require.ErrorIs(t, r.Err, tc.err)
			}
			require.Equal(t, tc.status, r.Status)
			require.Equal(t, tc.answer, string(r.Answer))
			require.True(t, r.Sent)
			require.False(t, r.Local)
			require.Equal(t, tc.err == nil && tc.status/100 == 2, r.OK())
			require.EqualValues(t, 1, srv.requests.Load())
		})
	}
}

var errAny = errors.New("any error")

func TestOneDeadlineCoversTheWholeExchange(t *testing.T) {
	drip := func(first string) func(net.Conn, int) bool {
		return func(c net.Conn, _ int) bool {
			c.Write([]byte(first))
			for {
				time.Sleep(5 * time.Millisecond)
				if _, err := c.Write([]byte("x")); err != nil {
					return false
				}
			}
		}
	}
	hang := func(c net.Conn, _ int) bool {
		io.Copy(io.Discard, c) // until the client gives up
		return false
	}
	for name, handle := range map[string]func(net.Conn, int) bool{
		"no answer":          hang,
		"dripping headers":   drip("HTTP/1.1 200 OK\r\nX-A: "),
		"dripping body":      drip("HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"),
		"endless small body": drip("HTTP/1.1 200 OK\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			srv := answering(t, handle)
			r := post(t, client(t), srv.url(), "", "x", 2*time.Second)
			require.ErrorIs(t, r.Err, ErrTimeout)
			require.False(t, r.OK())
			require.True(t, r.Sent)
			require.False(t, r.Local)
			require.Less(t, r.Took, 20*time.Second)
		})
	}
	t.Run("a server that never reads the body", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close() // connections wait in the backlog: nobody accepts
		r := post(t, client(t), "http://"+l.Addr().String(), "", strings.Repeat("x", 32<<20), 2*time.Second)
		require.ErrorIs(t, r.Err, ErrTimeout)
		require.True(t, r.Sent)
		require.Less(t, r.Took, 20*time.Second)
	})
	t.Run("a TLS handshake that never ends", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		for _, protocol := range []string{"", "h2"} {
			r := post(t, client(t), "https://"+l.Addr().String(), protocol, "x", 100*time.Millisecond)
			require.ErrorIs(t, r.Err, ErrTimeout)
			require.False(t, r.Sent)
			require.Less(t, r.Took, 20*time.Second)
		}
	})
	t.Run("a name server that never answers", func(t *testing.T) {
		c := client(t, func(o *Options) {
			o.Lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		r := post(t, c, "http://slow.example/", "", "x", 100*time.Millisecond)
		require.ErrorIs(t, r.Err, ErrTimeout)
		require.False(t, r.Sent)
		require.False(t, r.Local)
		require.Less(t, r.Took, 20*time.Second)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		srv := h2server(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		r := post(t, client(t), srv.URL, "h2", "x", 2*time.Second)
		require.ErrorIs(t, r.Err, ErrTimeout)
		require.True(t, r.Sent)
		require.Less(t, r.Took, 20*time.Second)
	})
	t.Run("no time at all", func(t *testing.T) {
		srv := saying(t, says("200 OK", ""))
		for _, protocol := range []string{"", "h2"} {
			r := post(t, client(t), srv.url(), protocol, "x", 0)
			require.ErrorIs(t, r.Err, ErrTimeout)
			require.False(t, r.Sent)
		}
		require.Zero(t, srv.requests.Load())
	})
}

func TestATimedOutExchangeDoesNotTouchTheRequestAnyMore(t *testing.T) {
	for _, protocol := range []string{"", "h2"} {
		over := make(chan struct{})
		srv := h2server(t, func(http.ResponseWriter, *http.Request) { <-over }) // never reads the body
		t.Cleanup(func() { close(over) })
		target, err := client(t).Target(ToConsumers, srv.URL, protocol)
		require.NoError(t, err)
		req := fasthttp.AcquireRequest()
		body := bytes.Repeat([]byte("x"), 4<<20)
		for range 5 {
			req.Reset()
			req.SetBodyRaw(body)
			r := target.Post(req, 20*time.Millisecond)
			require.ErrorIs(t, r.Err, ErrTimeout)
			for i := range body { // the race detector sees a late reader
				body[i]++
			}
		}
		fasthttp.ReleaseRequest(req)
	}
}

func TestAnEarlyRefusalOfALargeBodyIsHeard(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		br := bufio.NewReader(conn)
		http.ReadRequest(br)
		conn.Write([]byte(says("413 Too Large", "too large", "Connection: close")))
		io.CopyN(io.Discard, br, 1<<20)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, br)
	}()
	r := post(t, client(t), "http://"+l.Addr().String(), "", strings.Repeat("x", 4<<20), 5*time.Second)
	require.NoError(t, r.Err)
	require.Equal(t, 413, r.Status)
	require.Equal(t, "too large", string(r.Answer))
}

func TestNothingIsSentWhereNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	for _, protocol := range []string{"", "h2"} {
		r := post(t, client(t), "http://"+l.Addr().String(), protocol, "x", 5*time.Second)
		require.ErrorContains(t, r.Err, "refused")
		require.False(t, r.Sent)
		require.False(t, r.Local, "a consumer that is down is its own fault")
	}
}

func TestTheCapPerHostReleasesInsteadOfFailing(t *testing.T) {
	for _, protocol := range []string{"", "h2"} {
		arrived, release := make(chan struct{}, 2), make(chan struct{})
		srv := h2server(t, func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-release
		})
		c := client(t, func(o *Options) { o.MaxConnsPerHost = 2 })
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { post(t, c, srv.URL, protocol, "x", 5*time.Second) })
		}
		<-arrived
		<-arrived
		r := post(t, c, srv.URL+"/another", protocol, "x", 5*time.Second)
		require.ErrorIs(t, r.Err, ErrBusy)
		require.True(t, r.Local)
		require.False(t, r.Sent)
		require.Less(t, r.Took, 20*time.Second)
		close(release)
		wg.Wait()
		require.True(t, post(t, c, srv.URL, protocol, "x", 5*time.Second).OK())
	}
}

func TestCloseCutsWhatIsInFlightAndRefusesMore(t *testing.T) {
	for _, protocol := range []string{"", "h2"} {
		arrived := make(chan struct{})
		srv := h2server(t, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			close(arrived)
			<-r.Context().Done()
		})
		c := client(t)
		done := make(chan Result)
		go func() { done <- post(t, c, srv.URL, protocol, "x", time.Minute) }()
		<-arrived
		c.Close()
		r := <-done
		require.ErrorIs(t, r.Err, ErrClosed)
		require.True(t, r.Sent)
		require.False(t, r.Local)
		r = post(t, c, srv.URL, protocol, "x", time.Minute)
		require.ErrorIs(t, r.Err, ErrClosed)
		require.True(t, r.Local)
		require.False(t, r.Sent)
	}
}

func TestTheAddressIsCheckedWhenItIsDialled(t *testing.T) {
	srv := saying(t, says("200 OK", "secret"))
	for _, protocol := range []string{"", "h2"} {
		t.Run("protocol "+protocol, func(t *testing.T) {
			url := "http://rebind.example:" + port(t, srv) + "/"
			public := func(o *Options) { o.Policy = policy(t, "public") }
			r := post(t, client(t, public, always("127.0.0.1")), url, protocol, "x", time.Second)
			require.ErrorIs(t, r.Err, ErrForbidden)
			require.False(t, r.Sent)
			require.False(t, r.Local)
			r = post(t, client(t, public, always("::ffff:127.0.0.1", "::1")), url, protocol, "x", time.Second)
			require.ErrorIs(t, r.Err, ErrForbidden)
			r = post(t, client(t, always("169.254.169.254")), url, protocol, "x", time.Second)
			require.ErrorIs(t, r.Err, ErrForbidden)
			_, err := client(t, public).Target(ToConsumers, srv.url(), protocol)
			require.ErrorIs(t, err, ErrForbidden)
		})
	}
	require.Zero(t, srv.conns.Load())

	r := post(t, client(t, always("169.254.169.254", "127.0.0.1")), "http://mixed.example:"+port(t, srv)+"/", "", "x",
		20*time.Second)
	require.True(t, r.OK(), "the forbidden candidate is left out: %v", r.Err)
}

func TestTheSystemCallIsCheckedToo(t *testing.T) {
	d := dialer{policies: [rules]Policy{policy(t, "public")}, life: context.Background()}
	_, err := d.connect(context.Background(), ToConsumers, netip.MustParseAddrPort("127.0.0.1:9"))
	require.ErrorIs(t, err, ErrForbidden)
}

func TestOtherAddressesOfAHostAreTried(t *testing.T) {
	srv := saying(t, says("200 OK", "ok", "Connection: close"))
	c := client(t, always("127.0.0.2", "127.0.0.1", "127.0.0.3"))
	for range 6 {
		require.True(t, post(t, c, "http://three.example:"+port(t, srv)+"/", "", "x", 5*time.Second).OK())
	}
}

func TestNamesAreAskedForRarely(t *testing.T) {
	srv := saying(t, says("200 OK", "ok", "Connection: close"))
	var asked, fail atomic.Int32
	c := client(t, func(o *Options) {
		o.Lookup = func(context.Context, string) ([]netip.Addr, error) {
			asked.Add(1)
			time.Sleep(10 * time.Millisecond)
			if fail.Load() == 1 {
				return nil, &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			post(t, c, "http://Cached.example.:"+port(t, srv)+"/", "", "x", 5*time.Second)
			post(t, c, "http://cached.example:"+port(t, srv)+"/", "", "x", 5*time.Second)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, asked.Load())
	require.EqualValues(t, 40, srv.requests.Load())

	fail.Store(1)
	r := post(t, c, "http://missing.example/", "", "x", 20*time.Second)
	require.ErrorContains(t, r.Err, "no such host")
	require.False(t, r.Sent)
	require.False(t, r.Local)
	require.Less(t, foundFor, 30*time.Second)
}

func TestTheNameCacheIsBounded(t *testing.T) {
	r := resolver{names: map[string]answer{}}
	for i := range 2 * maxNames {
		r.remember(strconv.Itoa(i), answer{until: time.Now().Add(time.Minute)})
	}
	require.LessOrEqual(t, len(r.names), maxNames)
	require.Contains(t, r.names, strconv.Itoa(2*maxNames-1))
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of refused certificates
	srv.StartTLS()
	defer srv.Close()
	old := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	defer old.Close()

	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	defer plain.Close()

	c := client(t, trust(srv), always("127.0.0.1"))
	for _, tc := range []struct{ url, protocol, want string }{
		{srv.URL, "", "HTTP/1.1"},
		{srv.URL, "h2", "HTTP/2.0"},
		{old.URL, "", "HTTP/1.1"},
		{old.URL, "h2", "HTTP/1.1"},
		{srv.URL, "auto", "HTTP/2.0"},
		{old.URL, "auto", "HTTP/1.1"},
		{plain.URL, "auto", "HTTP/1.1"},
		{"https://example.com:" + port(t, srv.Listener) + "/", "", "HTTP/1.1"}, // the test certificate's name
		{"https://example.com:" + port(t, srv.Listener) + "/", "h2", "HTTP/2.0"},
	} {
		for range 3 {
			r := post(t, c, tc.url, tc.protocol, "x", 5*time.Second)
			require.NoError(t, r.Err)
			require.Equal(t, tc.want, string(r.Answer))
		}
	}
	for _, protocol := range []string{"", "h2"} {
		r := post(t, c, "https://wrong.test:"+port(t, srv.Listener), protocol, "x", 5*time.Second)
		require.ErrorContains(t, r.Err, "certificate")
		require.False(t, r.Sent)
		require.False(t, r.Local)
		r = post(t, client(t), srv.URL, protocol, "x", 5*time.Second)
		require.ErrorContains(t, r.Err, "certificate")
	}
}

func TestHTTP2HasTheSameLimits(t *testing.T) {
	var handle atomic.Pointer[http.HandlerFunc]
	var n atomic.Int32
	srv := h2server(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		(*handle.Load())(w, r)
	})
	c := client(t)
	do := func(h http.HandlerFunc) Result {
		handle.Store(&h)
		n.Store(0)
		r := post(t, c, srv.URL, "h2", "x", 5*time.Second)
		require.EqualValues(t, 1, n.Load())
		return r
	}
	r := do(func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 10<<20)) })
	require.True(t, r.OK())
	require.Len(t, r.Answer, 1024)
	r = do(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
	})
	require.NoError(t, r.Err)
	require.Equal(t, 307, r.Status)
	r = do(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(503)
		w.Write([]byte("junk"))
	})
	require.Equal(t, 503, r.Status)
	require.Equal(t, 7*time.Second, r.RetryAfter)
	require.Equal(t, "junk", string(r.Answer))
	r = do(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Big", strings.Repeat("x", 64<<10)) })
	require.Error(t, r.Err)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": -1, "0": 0, "7": 7 * time.Second, " 30 ": 30 * time.Second, "86400": 24 * time.Hour, "86401": 24 * time.Hour,
		"99999999999999999999999": 24 * time.Hour, "-1": -1, "soon": -1, "0x10": -1,
		"Mon, 04 May 2026 03:02:31 GMT":  30 * time.Second,
		"Mon, 04 May 2026 03:00:00 GMT":  0,
		"Mon, 04 May 2099 03:00:00 GMT":  24 * time.Hour,
		"Monday, 04-May-26 03:02:31 GMT": 30 * time.Second,
	} {
		require.Equal(t, want, parseRetryAfter(s, now), s)
	}
	srv := saying(t, says("429 Slow Down", "", "Retry-After: 12"))
	r := post(t, client(t), srv.url(), "", "x", 20*time.Second)
	require.NoError(t, r.Err)
	require.Equal(t, 12*time.Second, r.RetryAfter)
}

func TestOnlyKnownProtocolsAreTargets(t *testing.T) {
	_, err := client(t).Target(ToConsumers, "http://h/", "h3")
	require.Error(t, err)
}

func TestGoroutinesReturnToTheirNumber(t *testing.T) {
	srv := h2server(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
	})
	before := runtime.NumGoroutine()
	c := client(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			path := []string{"/", "/hang"}[i%2]
			post(t, c, srv.URL+path, []string{"", "h2"}[i/2%2], "x", 50*time.Millisecond)
		})
	}
	wg.Wait()
	c.Close()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

func (c *Client) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// h2server speaks HTTP/1.1 and, with prior knowledge, HTTP/2.
func h2server(t testing.TB, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(handle)
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	srv.Config.Protocols = &p
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}
