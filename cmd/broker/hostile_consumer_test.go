package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A hostile consumer speaks on the bare socket and remembers the requests that
// it was sent, by job and attempt.
type hostile struct {
	url      string
	mu       sync.Mutex
	requests map[string]int
}

func (h *hostile) note(r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests[r.Header.Get("X-Broker-Job-ID")+" "+r.Header.Get("X-Broker-Attempt")]++
}

// newHostile reads one request after the other and leaves the connection to
// behave, which returns true to read the next one.
func newHostile(t *testing.T, behave func(c *net.TCPConn) bool) *hostile {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &hostile{url: "http://" + l.Addr().String(), requests: map[string]int{}}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	over := false
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		over = true
		for c := range open {
			_ = c.Close()
		}
	})
	serve := func(c *net.TCPConn) {
		defer c.Close()
		br := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			h.note(r)
			if !behave(c) {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if over {
				_ = c.Close()
			}
			open[c] = true
			mu.Unlock()
			go func() {
				serve(c.(*net.TCPConn))
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			}()
		}
	}()
	return h
}

// says answers with text and goes on.
func says(text string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, err := io.WriteString(c, text)
		return err == nil
	}
}

// saysAndHangs answers with text and then nothing until the broker hangs up.
func saysAndHangs(text string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
		return false
	}
}

// pours answers with text and then with filler until the broker hangs up.
func pours(text string, filler []byte) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, err := io.WriteString(c, text)
		for err == nil {
			_, err = c.Write(filler)
		}
		return false
	}
}

// drips answers with text and then with a byte now and then.
func drips(text string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, err := io.WriteString(c, text)
		for err == nil {
			time.Sleep(100 * time.Millisecond)
			_, err = io.WriteString(c, "x")
		}
		return false
	}
}

// resets answers with text and cuts the connection.
func resets(text string) func(*net.TCPConn) bool {
	return func(c *net.TCPConn) bool {
		_, _ = io.WriteString(c, text)
		_ = c.SetLinger(0)
		return false
	}
}

const okHead = "HTTP/1.1 200 OK\r\n"

// A behaviour is what a consumer does with every request, and how its jobs end.
type behaviour struct {
	behave func(*net.TCPConn) bool
	end    string // DELIVERED or DEAD
}

func behaviours() map[string]behaviour {
	zeros := bytes.Repeat([]byte("x"), 256<<10)
	all := map[string]behaviour{
		"never-answers":        {saysAndHangs(""), "DEAD"},
		"hangs-in-the-status":  {saysAndHangs("HTTP/1.1 2"), "DEAD"},
		"hangs-in-the-headers": {saysAndHangs(okHead + "X-A: b\r\n"), "DEAD"},
		"hangs-in-the-body":    {saysAndHangs(okHead + "Content-Length: 10\r\n\r\nabc"), "DEAD"},
		"hangs-in-a-chunk":     {saysAndHangs(okHead + "Transfer-Encoding: chunked\r\n\r\na\r\nabc"), "DEAD"},
		"drips-headers":        {drips(okHead + "X-A: "), "DEAD"},
		"drips-a-body":         {drips(okHead + "Content-Length: 60000\r\n\r\n"), "DEAD"},
		"closes":               {func(*net.TCPConn) bool { return false }, "DEAD"},
		"resets":               {resets(""), "DEAD"},
		"resets-in-headers":    {resets(okHead + "X-A: b"), "DEAD"},
		"resets-in-the-body":   {resets(okHead + "Content-Length: 10\r\n\r\nabc"), "DEAD"},
		"lies-short": {func(c *net.TCPConn) bool {
			says(okHead + "Content-Length: 10\r\n\r\nabc")(c)
			return false
		}, "DEAD"},
		"lies-long": {says(
			okHead + "Content-Length: 1\r\n\r\nabcHTTP/1.1 500 Poison\r\nContent-Length: 0\r\n\r\n"), "DELIVERED"},
		"two-lengths":         {says(okHead + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "DEAD"},
		"a-gigabyte":          {pours(okHead+"Content-Length: 1073741824\r\n\r\n", zeros), "DELIVERED"},
		"no-end":              {pours(okHead+"\r\n", zeros), "DELIVERED"},
		"a-failing-gigabyte":  {pours("HTTP/1.1 500 No\r\nContent-Length: 1073741824\r\n\r\n", zeros), "DEAD"},
		"endless-headers":     {pours(okHead, []byte("X-A: bbbbbbbbbbbb\r\n")), "DEAD"},
		"one-endless-header":  {pours(okHead+"X-A: ", zeros), "DEAD"},
		"interim-for-ever":    {pours("", []byte("HTTP/1.1 103 Early Hints\r\n\r\n")), "DEAD"},
		"garbage":             {pours("", zeros), "DEAD"},
		"ssh":                 {saysAndHangs("SSH-2.0-OpenSSH_9.9\r\n"), "DEAD"},
		"speaks-http2":        {saysAndHangs("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), "DEAD"},
		"redirects-to-itself": {says("HTTP/1.1 307 Again\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), "DEAD"},
		"redirects-inside": {says("HTTP/1.1 302 Found\r\nLocation: " +
			"http://169.254.169.254/latest/meta-data\r\nContent-Length: 0\r\n\r\n"), "DEAD"},
		"switches": {saysAndHangs(
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "DEAD"},
		"status-zero": {says("HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"), "DEAD"},
		"keep-alive-and-close": {func(c *net.TCPConn) bool { says(okHead + "Content-Length: 0\r\n\r\n")(c); return false },
			"DELIVERED"},
	}
	for i, after := range []string{"-5", "soon", "1000000000", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT",
		"Thu, 01 Jan 1970 00:00:00 GMT", "1.5", "0"} {
		for _, code := range []int{429, 503} {
			all[fmt.Sprintf("retry-after-%d-%d", code,
				i)] = behaviour{says(fmt.Sprintf("HTTP/1.1 %d Later\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", code, after)),
				"DEAD"}
		}
	}
	return all
}

// What a process uses, and what it may use more of after an attack than before: connections of the test
// itself, and garbage: the heap may grow to twice of what is in use before it is collected, which the
// runtime does every two minutes at the latest. The memory that the system counts says nothing here: the race
// detector never gives back what it needs for the largest heap that there was.
var resources = []struct {
	metric string
	slack  float64
}{
	{"go_goroutines", 10},
	{"process_open_fds", 4},
	{"go_memstats_heap_inuse_bytes", 32 << 20},
}

func (p *process) resources() (now []float64) {
	for _, r := range resources {
		now = append(now, p.gauge(p.t, r.metric))
	}
	ends, files := p.pooled()
	now[0] -= float64(ends) // the embedded Redis has two goroutines for each connection, of which both ends are ours
	now[1] -= float64(ends + files)
	return now
}

// pooled counts the descriptors of the pools of connections to the embedded
// stores: ends of connections between the embedded Redis and the process itself,
// up to twenty per CPU, and files of the database. The pools grow to what was
// needed at once, whatever clients and consumers do, and are kept. 0 where the
// system does not show them.
func (p *process) pooled() (ends, files int) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, 0
	}
	own := map[string]bool{} // inodes of our sockets
	folder := fmt.Sprintf("/proc/%d/fd/", p.pid())
	entries, err := os.ReadDir(folder)
	require.NoError(p.t, err)
	for _, e := range entries {
		if link, err := os.Readlink(folder + e.Name()); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
			if strings.Contains(link, "/penstock.db") {
				files++
			}
		}
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(p.base, "http://"), ":")
	route, err := strconv.ParseUint(port, 10, 16)
	require.NoError(p.t, err)
	inside, connected := map[string]bool{}, [][2]string{}
	// sl, local, remote, state, queues, timers, retransmits, user, timeout, inode
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || !own[f[9]] {
			continue
		}
		if f[3] != "0A" { // not listening
			connected = append(connected, [2]string{f[1], f[2]})
		} else if f[1] != fmt.Sprintf("0100007F:%04X", route) {
			inside[f[1]] = true
		}
	}
	for _, c := range connected {
		if inside[c[0]] || inside[c[1]] {
			ends++
		}
	}
	return ends, files
}

// pid is the process of the broker, which may be this one.
func (p *process) pid() int {
	if p.cmd == nil {
		return os.Getpid()
	}
	return p.cmd.Process.Pid
}

// awaitResources waits until the process is back at its baseline, or at as much
// of it as is given.
func (p *process) awaitResources(baseline []float64) {
	p.t.Helper()
	start := time.Now()
	for {
		time.Sleep(100 * time.Millisecond) // the question costs resources too
		now, over := p.resources(), false
		for i := range baseline {
			over = over || now[i] > baseline[i]+resources[i].slack
		}
		report := fmt.Sprintf("goroutines, descriptors, bytes: %.0f before, %.0f after %v", baseline, now,
			time.Since(start).Round(time.Second))
		if !over {
			p.t.Log(report)
			return
		}
		if time.Since(start) > patience {
			p.t.Fatal(report)
		}
	}
}

// Every consumer misbehaves in its own way and gets exactly one request per
// attempt; a good one beside them gets every message once; clients that abuse
// the listener meanwhile get nothing; and afterwards the process is as before.
func TestHostileConsumersGetOneRequestPerAttemptAndLeaveNothingBehind(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with("BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=8s", "BROKER_RETRY_BACKOFF=200ms",
		"BROKER_MAX_RETRIES=1", "BROKER_RETRY_MAX_DELAY=500ms", "GOGC=100").start() // else 128 MiB of garbage may gather
	good := newSink(t, nil)
	warm := p.stage(t, "good="+good.URL)
	for i := range 200 {
		warm.persist("warm-" + strconv.Itoa(i))
	}
	eventually(t, "the warm-up", func() bool { return good.distinct() == 200 })
	baseline := p.resources()

	s := p.stage(t, "good="+good.URL)
	consumers := map[string]*hostile{}
	for name, b := range behaviours() {
		consumers[name] = newHostile(t, b.behave)
		s.join(name + "=" + consumers[name].url)
	}
	abuse(t, p)
	const messages = 3
	var at []string
	for i := range messages {
		at = append(at, s.persist("work-"+strconv.Itoa(i)))
	}
	ends := behaviours()
	attempts := map[string]int{}
	for _, location := range at {
		var m apitype.Message
		eventually(t, "the end of all jobs", func() bool {
			m = s.message(location + "?size=1000")
			for _, j := range m.Jobs {
				if j.Status != "DELIVERED" && j.Status != "DEAD" {
					return false
				}
			}
			return len(m.Jobs) == len(consumers)+1
		})
		for _, j := range m.Jobs {
			attempts[j.ConsumerID] += j.Attempts
			if b, ok := ends[j.ConsumerID]; ok {
				require.Equal(t, b.end, j.Status, "%s: %s", j.ConsumerID, j.Reason)
				require.LessOrEqual(t, j.Attempts, 2, "%s: %s", j.ConsumerID, j.Reason)
			} else {
				require.Equal(t, "DELIVERED", j.Status)
			}
		}
	}
	for name, h := range consumers {
		h.mu.Lock()
		require.NotEmpty(t, h.requests, name)
		require.LessOrEqual(t, len(h.requests), attempts[name], name)
		for attempt, n := range h.requests {
			require.Equal(t, 1, n, "%s: %s", name, attempt)
		}
		h.mu.Unlock()
	}
	require.Equal(t, 200+messages, good.count(), "each once")
	p.awaitResources(baseline)
}

// persist publishes a body that is its own message ID, again and again until it
// is stored: a machine that flushes slowly may answer 503.
func (s *stage) persist(body string) (location string) {
	s.t.Helper()
	eventually(s.t, "a message to be stored", func() bool {
		r := s.post(body, "X-Broker-Message-ID", body)
		location = r.header.Get("Location")
		return r.stored()
	})
	return location
}

// abuse opens connections that send half a request, nothing, or garbage, and
// closes them when the test is over or the broker had enough.
func abuse(t *testing.T, p *process) {
	for i := range 300 {
		conn := p.dial()
		text := []string{"", "POST ", "GET /producers HTTP/1.1\r\nHost: b\r\nX-A: ",
			"POST /channel/c/broadcast HTTP/1.1\r\nHost: b\r\nContent-Length: 1000\r\n\r\nsome",
			"\x00\x01\x02\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: b\r\n\r\n"}[i%6]
		_, err := io.WriteString(conn, text)
		require.NoError(t, err)
		if i%2 == 0 {
			_ = conn.SetLinger(0)
		}
		time.AfterFunc(5*time.Second, func() { _ = conn.Close() })
	}
}

// One consumer of a hundred hangs: the other ninety-nine get every message,
// each once, while it holds no more than its share of the requests.
func TestHostileConsumerThatHangsDelaysNoneOfNinetyNine(t *testing.T) {
	parallel(t)
	const n, messages = 100, 20
	var held atomic.Int32
	hanging := serveHTTP(t, func(_ http.ResponseWriter, _ *http.Request, over <-chan struct{}) {
		held.Add(1)
		<-over
	})
	p := realWorld(t).with("BROKER_DELIVERY_TIMEOUT=10m").start()
	sink := newSink(t, nil)
	s := p.stage(t, "hanging="+hanging)
	for i := 1; i < n; i++ {
		s.join(fmt.Sprintf("k%d=%s", i, sink.URL))
	}
	for i := range messages {
		s.persist(strconv.Itoa(i))
	}
	eventually(t, "every message at the ninety-nine", func() bool { return sink.count() == messages*(n-1) })
	seen := map[string]int{}
	for _, r := range sink.all() {
		seen[r.header.Get("X-Broker-Consumer-ID")+" "+r.body]++
	}
	require.Len(t, seen, messages*(n-1))
	eventually(t, "the hanging one to hold its jobs", func() bool { return held.Load() == messages })
	s.persist("one-more")
	eventually(t, "the one more", func() bool { return sink.times("one-more") == n-1 })
	require.Equal(t, (messages+1)*(n-1), sink.count(), "each once")
}
