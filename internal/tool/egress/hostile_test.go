package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A counted connection tells how much of an answer was taken from its socket.
type counted struct {
	net.Conn
	taken *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.taken.Add(int64(n))
	return n, err
}

// forever writes chunk until the other side has had enough.
func forever(c net.Conn, chunk []byte) {
	for {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}

// A consumer with gigabytes to say is heard for 64 KiB and costs no memory.
func TestEndlessAnswersCostNoMemory(t *testing.T) {
	filler := bytes.Repeat([]byte("x"), 256<<10)
	for name, tc := range map[string]struct {
		head  string
		chunk []byte
		ok    bool
	}{
		"1 GiB with its length":   {"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", filler, true},
		"8 EiB with their length": {"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n", filler, true},
		"without an end":          {"HTTP/1.1 200 OK\r\n\r\n", filler, true},
		"chunks without an end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
			[]byte("1000\r\n" + string(filler[:4096]) + "\r\n"), true},
		"one chunk of 1 GiB": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n", filler, true},
		"a chunk extension":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", filler, false},
		"a trailer without an end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
			[]byte("X-A: bbbbbbbbbbbbbbbb\r\n"), false},
		"headers without an end":    {"HTTP/1.1 200 OK\r\n", []byte("X-A: bbbbbbbbbbbbbbbb\r\n"), false},
		"one header without an end": {"HTTP/1.1 200 OK\r\nX-A: ", filler, false},
		"a status without an end":   {"HTTP/1.1 200 ", filler, false},
		"interim answers for ever":  {"", []byte("HTTP/1.1 100 Continue\r\n\r\n"), false},
		"interim answers with heads": {"", []byte("HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", 8<<10) +
			"\r\n\r\n"), false},
		"empty lines for ever": {"", []byte("\r\n"), false},
		"nothing like HTTP":    {"", filler, false},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			srv := answering(t, func(c net.Conn, _ int) bool {
				_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
				out := counted{c, &sent}
				_, _ = io.WriteString(out, tc.head)
				forever(out, tc.chunk)
				return false
			})
			c := client(t)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 10 {
				r := post(t, c, srv.url(), "", "x", 30*time.Second)
				require.Equal(t, tc.ok, r.OK(), "%+v", r)
				require.NotErrorIs(t, r.Err, ErrTimeout)
				require.LessOrEqual(t, len(r.Answer), keepAnswerBytes)
			}
			runtime.ReadMemStats(&after)
			require.EqualValues(t, 10, srv.requests.Load(), "one request per attempt")
			require.EqualValues(t, 0, c.open(), "such a connection is not kept")
			// The server's own buffers are in it: what counts is that it is no
			// multiple of what the consumers would have sent.
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
		})
	}
}

func TestAtMost64KiBOfAnAnswerIsRead(t *testing.T) {
	c := client(t)
	for name, e := range map[string]*endless{
		"a length": {head: "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", filler: "x"},
		"no end":   {head: "HTTP/1.1 200 OK\r\n\r\n", filler: "x"},
		"small chunks": {head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", filler: "64\r\n" +
			strings.Repeat("x", 100) + "\r\n"},
		"one chunk":       {head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n", filler: "x"},
		"a failure":       {head: "HTTP/1.1 500 No\r\n\r\n", filler: "x"},
		"headers":         {head: "HTTP/1.1 200 OK\r\n", filler: "X-A: b\r\n"},
		"a header":        {head: "HTTP/1.1 200 OK\r\nX-A: ", filler: "x"},
		"a trailer":       {head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", filler: "X-A: b\r\n"},
		"garbage":         {filler: "x"},
		"interim answers": {filler: "HTTP/1.1 103 Early Hints\r\n\r\n"},
	} {
		_, keep := exchangeWith(c, e)
		require.False(t, keep, name)
		// The buffer that reads ahead, and one read more of the body.
		require.LessOrEqual(t, e.taken, maxAnswerBytes+2*maxHeadBytes, name)
	}
	chatty := &endless{filler: "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", 8<<10) + "\r\n\r\n"}
	_, keep := exchangeWith(c, chatty)
	require.False(t, keep)
	require.LessOrEqual(t, chatty.taken, 101*maxHeadBytes, "at most 100 interim answers")
}

// bomb is 8 MiB of zeros in a few KiB.
func bomb(t *testing.T) string {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	require.NoError(t, err)
	_, err = z.Write(make([]byte, 8<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

func TestACompressedAnswerIsNeverUnpacked(t *testing.T) {
	packed := bomb(t)
	for _, protocol := range []string{"", "h2"} {
		srv := h2server(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, packed)
		})
		c := client(t)
		r := post(t, c, srv.URL, protocol, "x", 30*time.Second)
		require.True(t, r.OK())
		require.Equal(t, packed[:keepAnswerBytes], string(r.Answer))
	}
}

func TestManyHeadersAreRefusedAndSomeAreRead(t *testing.T) {
	for n, ok := range map[int]bool{100: true, 100_000: false} {
		srv := answering(t, func(c net.Conn, _ int) bool {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "X-%d: v\r\n", i)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+b.String()+"Content-Length: 0\r\n\r\n")
			return false
		})
		r := post(t, client(t), srv.url(), "", "x", 30*time.Second)
		require.Equal(t, ok, r.OK(), "%d headers: %v", n, r.Err)
	}
}

// Lengths that two readers could take differently are no answer, and what
// comes after them is not the answer to the next delivery.
func TestAnswersOfDoubtfulLengthAreNotBelieved(t *testing.T) {
	for name, head := range map[string]string{
		"two lengths":           "Content-Length: 2\r\nContent-Length: 3\r\n",
		"a list of lengths":     "Content-Length: 2, 3\r\n",
		"a negative length":     "Content-Length: -2\r\n",
		"a signed length":       "Content-Length: +2\r\n",
		"an overflowing length": "Content-Length: 99999999999999999999\r\n",
		"a hexadecimal length":  "Content-Length: 0x2\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			srv := saying(t, "HTTP/1.1 200 OK\r\n"+head+"\r\nok"+says("200 OK", "poison"))
			c := client(t)
			for range 3 {
				r := post(t, c, srv.url(), "", "x", 30*time.Second)
				require.False(t, r.OK(), "%+v", r)
				require.Error(t, r.Err)
			}
			require.EqualValues(t, 3, srv.requests.Load())
			require.EqualValues(t, 3, srv.conns.Load(), "such a connection is not kept")
		})
	}
}

func TestAStatusHasThreeDigits(t *testing.T) {
	for _, status := range []string{"0", "000", "1", "20", "020", "002", "099", "1000", "2000", "20000", "99999999",
		"-200", "+200", "2e2", "0200", "200.0"} {
		r := post(t, client(t), saying(t, "HTTP/1.1 "+status+" OK\r\nContent-Length: 0\r\n\r\n").url(), "", "x",
			30*time.Second)
		require.Error(t, r.Err, status)
		require.False(t, r.OK(), status)
		require.Zero(t, r.Status, status)
	}
}

func TestAnswersWithLengthAndChunksEndTheirConnection(t *testing.T) {
	srv := saying(t, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		says("500 Poison", ""))
	c := client(t)
	for range 3 {
		post(t, c, srv.url(), "", "x", 30*time.Second)
	}
	require.EqualValues(t, 3, srv.conns.Load())
}

// Name servers under somebody else's control answer with a good address when
// asked first and with a forbidden one afterwards.
func TestANameThatTurnsToAForbiddenAddressReachesNothing(t *testing.T) {
	good, err := net.Listen("tcp", "127.0.0.2:0")
	require.NoError(t, err)
	inner, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%s", port(t, good)))
	require.NoError(t, err)
	defer inner.Close()
	var reached atomic.Int32
	go func() {
		for {
			conn, err := inner.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			conn.Close()
		}
	}()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	})}
	go func() { _ = srv.Serve(good) }()
	defer srv.Close()

	var turned atomic.Bool
	var asked atomic.Int32
	c := client(t, func(o *Options) {
		o.Policy = policy(t, "public", "127.0.0.2/32")
		o.Lookup = func(context.Context, string) ([]netip.Addr, error) {
			asked.Add(1)
			if turned.Load() {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
		}
	})
	url := "http://rebind.example:" + port(t, good) + "/"
	target, err := c.Target(ToConsumers, url, "")
	require.NoError(t, err)
	require.True(t, postTo(target, "x", 30*time.Second).OK())
	turned.Store(true)
	// What was found is remembered a while; then the name is asked for again.
	c.dialer.names.mu.Lock()
	clear(c.dialer.names.names)
	c.dialer.names.mu.Unlock()
	r := postTo(target, "x", 30*time.Second)
	require.ErrorIs(t, r.Err, ErrForbidden)
	require.False(t, r.Sent)
	require.EqualValues(t, 2, asked.Load())
	require.Zero(t, reached.Load())
}

// No spelling of a forbidden address gets a connection, and neither does a name
// that resolves to one.
func TestNoSpellingOfAForbiddenAddressIsDialled(t *testing.T) {
	var reached atomic.Int32
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			conn.Close()
		}
	}()
	forbidden := []string{
		"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "0.0.0.0", "::", "::ffff:0.0.0.0", "10.0.0.1",
		"172.16.0.1", "192.168.0.1",
		"169.254.169.254", "100.64.0.1", "fd00::1", "fe80::1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::1",
		"2001:0:0:0:0:0:80ff:fffe",
		"224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "2001:db8::1", "fec0::1", "fd00:ec2::254",
	}
	public := policy(t, "public")
	for _, a := range forbidden {
		c := client(t, func(o *Options) { o.Policy = public }, always(a))
		for _, protocol := range []string{"", "h2"} {
			r := post(t, c, "http://name.example:"+port(t, l)+"/", protocol, "x", 30*time.Second)
			require.ErrorIs(t, r.Err, ErrForbidden, a)
			require.False(t, r.Sent, a)
		}
		host := a
		if strings.Contains(a, ":") {
			host = "[" + a + "]"
		}
		_, err := c.Target(ToConsumers, "http://"+host+":"+port(t, l)+"/", "")
		require.ErrorIs(t, err, ErrForbidden, a)
	}
	require.Zero(t, reached.Load())
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		says("200 OK", "ok"), "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n" + says("500 No", "why"),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nabc",
		"HTTP/1.1 429 Slow\r\nRetry-After: 5\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\nabc", "HTTP/1.1 200 OK\r\nX:\r\n y\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	c := NewClient(Options{})
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, answer []byte) {
		r, keep := exchangeWith(c, bytes.NewReader(answer))
		require.True(t, r.Sent)
		require.LessOrEqual(t, len(r.Answer), keepAnswerBytes)
		require.GreaterOrEqual(t, r.RetryAfter, time.Duration(-1))
		require.LessOrEqual(t, r.RetryAfter, maxRetryAfter)
		require.True(t, r.Err != nil || r.Status >= 100 && r.Status <= 999, "an answer has a status")
		require.False(t, keep && r.Err != nil, "a broken exchange ends its connection")
	})
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "-1", "1000000000", "99999999999999999999", "Mon, 04 May 2026 03:02:31 GMT", "1.5",
		" 7\t", "soon", "+5", "١", `"5s"`, "1m30.5s", ".", "99999999999999999999.9 sec"} {
		f.Add(s)
	}
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		d := parseRetryAfter(s, now)
		require.True(t, d == -1 || d >= 0 && d <= maxRetryAfter, "%v", d)
	})
}
