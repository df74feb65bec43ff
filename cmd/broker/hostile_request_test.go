package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dial opens a connection to the broker that the test writes by hand.
func (p *process) dial() *net.TCPConn {
	p.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

// rawTokens are producerTokens as lines of a head.
const rawTokens = "X-Broker-Channel-Token: c-token\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: p-token\r\n"

// A rawCase is what somebody may write to a socket. Behind it comes a good
// broadcast, which must never be carried out; stored says that the case itself
// is a message.
type rawCase struct {
	request string
	stored  bool
}

func rawCases(s *stage) map[string]rawCase {
	line := func(target string) string { return "POST " + target + " HTTP/1.1\r\nHost: b\r\n" + rawTokens }
	head := line(s.path("/broadcast"))
	old := strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1)
	chunked := head + "Transfer-Encoding: chunked\r\n\r\n"
	return map[string]rawCase{
		"the identity coding":               {head + "Transfer-Encoding: identity\r\n\r\n", false},
		"a list of codings":                 {head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", false},
		"a length with a blank in its name": {head + "Content-Length X: 5\r\n\r\n", false},
		"a length in two headers, equal":    {head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", false},
		"a NUL in a value":                  {head + "X-A: a\x00b\r\nContent-Length: 1\r\n\r\nx", false},
		"a carriage return in a value": {head + "X-A: a\rX-Broker-Message-ID: smuggled\r\nContent-Length: 1\r\n\r\nx",
			false},
		"HTTP/1.0 in chunks":               {old + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", false},
		"a line feed in a chunk extension": {chunked + "1;a\nb\r\nx\r\n0\r\n\r\n", false},
		"chunk lines of line feeds":        {chunked + "1\nx\n0\n\n", false},
		"a chunk longer than it says":      {chunked + "1\r\nxyz\r\n0\r\n\r\n", false},
		"a negative chunk":                 {chunked + "-1\r\nx\r\n0\r\n\r\n", false},
		"a chunk of 2^64 bytes":            {chunked + "10000000000000000\r\nx\r\n0\r\n\r\n", false},
		"authority form":                   {"CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n", false},
		"the preface of HTTP/2":            {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
		"TLS":                              {"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", false},
		"a target of 1 MiB":                {line("/channel/" + strings.Repeat("a", 1<<20) + "/broadcast"), false},
		"100000 parameters":                {line(s.path("/broadcast?") + strings.Repeat("a=b&", 100_000)), false},
		"100000 headers":                   {head + strings.Repeat("X-A: b\r\n", 100_000) + "\r\n", false},
		"a header of 1 MiB":                {head + "X-A: " + strings.Repeat("b", 1<<20) + "\r\n\r\n", false},
		"chunks without an end": {chunked + strings.Repeat("10000\r\n"+strings.Repeat("x", 1<<16)+"\r\n", 80),
			false},
		"a body larger than allowed": {head + "Content-Length: 5000000\r\n\r\n" + strings.Repeat("x", 5_000_000),
			false},
		"a huge length and no body": {head + "Content-Length: 9223372036854775807\r\n\r\n", false},
		"HTTP/1.0":                  {old + "X-Broker-Message-ID: old\r\nContent-Length: 1\r\n\r\nx", true},
		"a body longer than its length": {head + "X-Broker-Message-ID: short\r\nContent-Length: " +
			"1\r\n\r\nx\x00\x00\x00\r\n\r\n", true},
		"a body behind Expect, asked to close": {head + "Expect: 100-continue\r\nConnection: " +
			"close\r\nX-Broker-Message-ID: expect\r\nContent-Length: 1\r\n\r\nx", true},
	}
}

// Each shape is answered once and its connection closed, nothing hidden behind
// it is carried out, and the broker goes on.
func TestHostileRequestsEndTheirConnectionAndStoreNothing(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s := p.stage(t, "k")
	hidden := "POST " + s.path("/broadcast") + " HTTP/1.1\r\nHost: b\r\nX-Broker-Message-ID: smuggled\r\n" + rawTokens +
		"Content-Length: 1\r\n\r\nx"
	stored := 0
	var all sync.WaitGroup
	for name, c := range rawCases(s) {
		if c.stored {
			stored++
		}
		conn := p.dial()
		all.Go(func() {
			var final string
			for try := 0; ; try++ {
				// The broker may hang up while we are still writing.
				_, _ = io.WriteString(conn, c.request+hidden)
				final = strings.TrimPrefix(readRaw(conn), "HTTP/1.1 100 Continue\r\n\r\n")
				if try == busyRepeats || !c.stored || !busyRaw(final) {
					break
				}
				time.Sleep(time.Second)
				conn = p.dial()
			}
			// What comes behind a message may be refused, never stored.
			want := `^(HTTP/1\.1 4\d\d |$)`
			if c.stored {
				want = `^HTTP/1\.1 201 `
			}
			if !assertRegexp(t, want, final, name) {
				return
			}
			if n := strings.Count(final, " 201 "); c.stored && n != 1 || !c.stored && n != 0 {
				t.Errorf("%s: %d requests were carried out: %s", name, n, final)
			}
			if !closed(conn) {
				t.Errorf("%s: the connection is still open: %s", name, final)
			}
		})
	}
	all.Wait()
	require.Equal(t, 404, s.do("GET", s.path("/message/smuggled"), "").status)
	s.publish("the broker goes on")
	require.Len(t, s.awaitQueued("k", stored+1), stored+1)
	require.Equal(t, "x", s.message(s.path("/message/short")).Payload)
}

func assertRegexp(t *testing.T, want, text, name string) bool {
	ok := regexp.MustCompile(want).MatchString(text)
	if !ok {
		t.Errorf("%s: %.200q", name, text)
	}
	return ok
}

// closed reports whether the other side has ended the connection, after what
// it had sent was read. readRaw has waited for it.
func closed(conn net.Conn) bool {
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// A producer that dies in the middle of its body has published nothing,
// wherever the cut falls.
func TestHostileHalfABodyIsNoMessage(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		s := w.start().stage(t, "k")
		job := s.newJob("k")
		broadcast := "POST " + s.path("/broadcast") + " HTTP/1.1\r\nHost: b\r\nX-Broker-Message-ID: half\r\n" + rawTokens
		put := "PUT /producer/half HTTP/1.1\r\nHost: b\r\nContent-Type: " + formType + "\r\n"
		move := "POST " + s.path("/consumer/k/job/", job) +
			" HTTP/1.1\r\nHost: b\r\nX-Broker-Channel-Token: c-token\r\nX-Broker-Consumer-Token: k-token\r\n"
		for name, request := range map[string]string{
			"a message of a length":                broadcast + "Content-Length: 100\r\n\r\nhalf",
			"a message before its first chunk":     broadcast + "Transfer-Encoding: chunked\r\n\r\n",
			"a message inside a chunk":             broadcast + "Transfer-Encoding: chunked\r\n\r\n64\r\nhalf",
			"a message between two chunks":         broadcast + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
			"a message before the end of its last": broadcast + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
			"a form of a length":                   put + "Content-Length: 100\r\n\r\ntoken=half",
			"a form between two chunks":            put + "Transfer-Encoding: chunked\r\n\r\na\r\ntoken=half\r\n",
			"a transition between two chunks":      move + "Transfer-Encoding: chunked\r\n\r\n" + chunk(to("INFLIGHT")),
			"a transition with a length too large by 1": move + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(to("INFLIGHT"))+
				1, to("INFLIGHT")),
		} {
			conn := s.dial()
			_, err := io.WriteString(conn, request)
			require.NoError(t, err)
			require.NoError(t, conn.CloseWrite())
			require.Regexp(t, `^HTTP/1\.1 400 `, readRaw(conn), name)
			require.True(t, closed(conn), name)
		}
		require.Equal(t, 404, s.do("GET", s.path("/message/half"), "").status)
		require.Equal(t, 404, s.do("GET", "/producer/half", "").status)
		require.Equal(t, "QUEUED", s.job("k", job).Status)

		// Whole bodies are whole, also of a client that stops sending after them.
		for name, request := range map[string]string{
			"chunks":   broadcast + "Transfer-Encoding: chunked\r\n\r\n" + chunk("whole") + "0\r\n\r\n",
			"a length": strings.Replace(broadcast, "half", "half-2", 1) + "Content-Length: 5\r\n\r\nwhole",
		} {
			conn := s.dial()
			_, err := io.WriteString(conn, request)
			require.NoError(t, err)
			require.NoError(t, conn.CloseWrite())
			require.Regexp(t, `^HTTP/1\.1 201 `, readRaw(conn), name)
		}
		require.Equal(t, "whole", s.message(s.path("/message/half")).Payload)
		require.Equal(t, "whole", s.message(s.path("/message/half-2")).Payload)
	})
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// What is unusual and unambiguous is served: a target with a host, a client
// that waits to be asked for its body. Methods that nobody knows are refused.
func TestHostileExpectationsAndAbsoluteTargetsAreServed(t *testing.T) {
	parallel(t)
	s := embeddedWorld(t).start().stage(t, "k")
	answer := rawExchange(t, s.process, "POST http://elsewhere.example"+s.path("/broadcast")+
		" HTTP/1.1\r\nHost: b\r\nX-Broker-Message-ID: absolute\r\n"+rawTokens+"Content-Length: 1\r\n\r\nx")
	require.Regexp(t, `^HTTP/1\.1 201 `, answer)
	for range busyRepeats {
		conn := s.dial()
		_, err := io.WriteString(conn, "POST "+s.path("/broadcast")+" HTTP/1.1\r\nHost: b\r\nX-Broker-Message-ID: "+
			"asked\r\nExpect: 100-continue\r\n"+rawTokens+"Content-Length: 1\r\n\r\n")
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", readRaw(conn))
		_, err = io.WriteString(conn, "x")
		require.NoError(t, err)
		if answer = readRaw(conn); !busyRaw(answer) {
			break
		}
		time.Sleep(time.Second)
	}
	require.Regexp(t, `^HTTP/1\.1 201 `, answer)
	s.awaitQueued("k", 2)
	for _, method := range []string{"FROB", "TRACE", "CONNECT", "PROPFIND", "post", "P\u00d6ST"} {
		require.Regexp(t, `^HTTP/1\.1 4\d\d `, rawExchange(t, s.process, method+" "+s.path("/broadcast")+
			" HTTP/1.1\r\nHost: b\r\n"+rawTokens+"Content-Length: 1\r\n\r\nx"), method)
	}
	require.Len(t, s.queued("k", "limit=100"), 2)
}
