package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A rawSink keeps the heads of the requests that it gets, as they came.
type rawSink struct {
	url   string
	mu    sync.Mutex
	heads []string // of HTTP/1.1 with its line ends, of HTTP/2 a line for each header
}

func (s *rawSink) add(head string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = append(s.heads, head)
}

func (s *rawSink) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.heads...)
}

// newRawSink takes HTTP/1.1 without a library that would make sense of it.
func newRawSink(t *testing.T) *rawSink {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawSink{url: "http://" + ln.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer conn.Close(); s.serve(conn) })
		}
	})
	return s
}

// serve answers one request, whose body ends with the line "end".
func (s *rawSink) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		c, err := r.ReadByte()
		if err != nil {
			return
		}
		head.WriteByte(c)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "end\n" {
		s.add("no body: " + line)
	}
	s.add(head.String())
	_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
}

func newH2Sink(t *testing.T) *rawSink {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawSink{url: "http://" + ln.Addr().String()}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := "POST " + r.Proto + "\r\n"
		for name, values := range r.Header {
			for _, v := range values {
				head += name + ": " + v + "\r\n"
			}
		}
		s.add(head + "\r\n")
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// reservedOnPage are the names that the API page reserves, with their variants.
func reservedOnPage(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/headers.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "<!-- reserved -->")
	table, _, _ = strings.Cut(table, "<!-- /reserved -->")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		for _, quoted := range strings.Fields(cells[1]) {
			name := strings.ReplaceAll(strings.Trim(quoted, "`"), "*", "Forged")
			names = append(names, name, strings.ToLower(name), strings.ToUpper(strings.ReplaceAll(name, "-", "_")),
				strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1))
		}
	}
	require.Greater(t, len(names), 300)
	return names
}

// What a producer names reaches no consumer as a header that something in front of
// it, or under it, would act on, over either protocol and through either route.
func TestNoReservedHeaderIsSmuggledIntoADelivery(t *testing.T) {
	p := embeddedWorld(t).with(pushSettings...).start()
	plain, h2 := newRawSink(t), newH2Sink(t)
	s := p.stage(t, "plain="+plain.url)
	s.put(s.path("/consumer/h2"), "token", "h2-token", "callbackUrl", h2.url, "protocol", "h2")

	names := reservedOnPage(t)
	published := 0
	for chunk := 0; chunk < len(names); chunk += 40 {
		part := names[chunk:min(chunk+40, len(names))]
		headers := http.Header{"X-Broker-Metadata-Headers": {"X-Fine, " + strings.Join(part, ",")}, "X-Fine": {"yes"}}
		for _, name := range part {
			if !actedUpon(name) {
				headers[name] = []string{"forged"}
			}
		}
		for i := 0; i < len(producerTokens); i += 2 {
			headers.Set(producerTokens[i], producerTokens[i+1])
		}
		r, err := s.askWith("POST", s.path("/broadcast"), "end\n", headers)
		require.NoError(t, err)
		require.Equal(t, 201, r.status, r.body)
		published++
	}
	var lines []string
	for _, name := range names { // a batch may refuse the line, and never sends the header
		line, err := json.Marshal(map[string]any{"Headers": map[string]string{name: "forged", "X-Fine": "yes"},
			"Payload": "end\n"})
		require.NoError(t, err)
		lines = append(lines, string(line))
	}
	line, err := json.Marshal(map[string]any{"Headers": map[string]string{"X-Fine": "yes",
		"X-Odd": "\u010d\u010a\u2028\u0085 \t", "x!#$%&'*+.^`|~": "1"}, "Payload": "end\n"})
	require.NoError(t, err)
	r := s.do("POST", s.path("/batch"), strings.Join(append(lines, string(line)), "\n"),
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	require.Equal(t, 200, r.status, r.body)
	for i, answer := range parseLines(t, r.body) {
		if answer.Status == 201 {
			published++
		} else {
			require.Equal(t, 400, answer.Status, "%v: %v", answer, append(lines, string(line))[i])
		}
	}

	for name, sink := range map[string]*rawSink{"HTTP/1.1": plain, "HTTP/2": h2} {
		eventually(t, "the deliveries over "+name, func() bool { return len(sink.all()) >= published })
		for _, head := range sink.all() {
			require.NotContains(t, strings.ToLower(head), "forged", name)
			seen := map[string]bool{}
			for header := range strings.Lines(strings.TrimSuffix(head, "\r\n")) {
				require.True(t, strings.HasSuffix(header, "\r\n"), "%q", head)
				key, _, ok := strings.Cut(header, ":")
				if !ok { // the request line
					require.True(t, strings.HasPrefix(header, "POST "), "%q", header)
					continue
				}
				key = strings.Map(func(r rune) rune {
					if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
						return r
					}
					return '_'
				}, strings.ToLower(key))
				require.False(t, seen[key], "%s twice in %q", key, head)
				seen[key] = true
			}
			require.True(t, seen["x_fine"] && seen["x_broker_consumer_token"] && seen["x_broker_metadata_headers"], "%q", head)
		}
	}
}

// actedUpon tells the headers that mean something to a request of the test itself,
// in the very form in which they do.
func actedUpon(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Expect", "Transfer-Encoding", "Content-Length",
		"Content-Type", "Content-Encoding", "Proxy-Forged",
		"Http2-Settings", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "X-Broker-") || strings.HasPrefix(name, "x-broker-")
}

// A consumer whose token travels in a header of its own gets it once, under every
// name that its server could take for it.
func TestTheHeaderOfTheTokenIsTheBrokersUnderEveryName(t *testing.T) {
	p := embeddedWorld(t).with(append([]string{"BROKER_CONSUMER_TOKEN_HEADER=X-Acme-Token"}, pushSettings...)...).start()
	sink := newRawSink(t)
	s := p.stage(t, "k="+sink.url)
	for n, name := range []string{"X-Acme-Token", "X_Acme_Token", "x.acme-token", "X-ACME_TOKEN"} {
		headers := append([]string{"X-Broker-Metadata-Headers", name + ",X-Fine", "X-Fine", "yes"}, name, "forged")
		s.publish("end\n", headers...)
		eventually(t, "the delivery", func() bool { return len(sink.all()) == n+1 })
	}
	for _, head := range sink.all() {
		require.NotContains(t, head, "forged")
		require.Equal(t, 1, strings.Count(strings.ToLower(head), "acme"), "%q", head)
		require.Contains(t, head, "X-Acme-Token: k-token\r\n", fmt.Sprintf("%q", head))
	}
}
