package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A departure is how a client leaves its connection.
type departure int

const (
	leavesByClose departure = iota
	leavesByReset           // unread and unsent bytes are dropped at once
	leavesByHalf            // it stops sending, reads what comes, then closes
	leavesByStall           // it does nothing for a while
	departures              // how many there are
)

// leaveBy does so. Stalled connections are kept in the yard, oldest closed first.
func leaveBy(d departure, c *net.TCPConn, y *yard) {
	switch d {
	case leavesByReset:
		_ = c.SetLinger(0)
	case leavesByHalf:
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
	case leavesByStall:
		y.keep(c)
		return
	}
	_ = c.Close()
}

// A yard holds the latest connections that do nothing.
type yard struct{ held chan *net.TCPConn }

func (y *yard) keep(c *net.TCPConn) {
	for {
		select {
		case y.held <- c:
			return
		default:
		}
		select {
		case old := <-y.held:
			_ = old.Close()
		default:
		}
	}
}

func (y *yard) clear() {
	for {
		select {
		case c := <-y.held:
			_ = c.Close()
		default:
			return
		}
	}
}

// goneRequests are whole requests to channel gone, of every kind of route.
func goneRequests(message string) map[string]string {
	request := func(method, path, tokens, body string) string {
		return method + " /channel/gone" + path + " HTTP/1.1\r\nHost: b\r\n" + tokens +
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	const consumer = "X-Broker-Channel-Token: c-token\r\nX-Broker-Consumer-Token: k-token\r\n"
	lines := strings.Repeat(`{"Payload":"gone"}`+"\n", 300)
	return map[string]string{
		"batch": request("POST", "/batch", rawTokens+"Content-Type: application/x-ndjson\r\n", lines),
		"batch in chunks": "POST /channel/gone/batch HTTP/1.1\r\nHost: b\r\n" + rawTokens +
			"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat(chunk(`{"Payload":"gone"}`+"\n"), 100) + "0\r\n\r\n",
		"broadcast": request("POST", "/broadcast", rawTokens, strings.Repeat("gone", 50)),
		"claim":     request("POST", "/consumer/k/claim?limit=3&timeout=1", consumer, ""),
		"long poll": request("POST", "/consumer/empty/claim?wait=20s", strings.Replace(consumer, "k-token",
			"empty-token", 1), ""),
		"jobs": request("POST", "/consumer/k/jobs", consumer,
			`{"Updates":[{"ID":"06gvk862do0000000000","Lease":"x.1","NextState":"DELIVERED"}]}`),
		"queued jobs": request("GET", "/consumer/k/queued-jobs?limit=5", consumer, ""),
		"messages":    request("GET", "/messages?size=5", "", ""),
		"message":     strings.Replace(request("GET", "", "", ""), "/channel/gone", message, 1),
	}
}

// boundaries are the byte boundaries of n bytes, of long ones those of their first
// and last and some between.
func boundaries(n int) []int {
	const edge = 450
	var out []int
	for i := 0; i <= n; i++ {
		if i <= edge || i >= n-60 || i%97 == 0 {
			out = append(out, i)
		}
	}
	return out
}

// cutRequests sends parts of a request and leaves; cutAnswers sends it whole, reads
// a part of its answer and leaves.
func (p *process) cutRequests(request string, shift int, y *yard) {
	for i, n := range boundaries(len(request)) {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
		if err != nil {
			continue // the broker is gone, which the end of the test tells
		}
		_, _ = io.WriteString(c, request[:n])
		leaveBy(departure((i+shift)%int(departures)), c.(*net.TCPConn), y)
	}
}

func (p *process) cutAnswers(request string, shift int, y *yard) {
	for i := 0; i < 700; i += 1 + i/100 {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
		if err != nil {
			continue
		}
		_, _ = io.WriteString(c, request)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // a long poll has no answer
		_, _ = io.ReadFull(c, make([]byte, i))
		leaveBy(departure((i+shift)%int(departures)), c.(*net.TCPConn), y)
	}
}

// A good client uses every kind of route on its own channel and knows each byte that
// it must get.
type goodClient struct {
	*process
	no   int
	http *http.Client
}

func (g *goodClient) ask(method, path, body string, headers ...string) (int, http.Header, string, error) {
	req, err := http.NewRequest(method, g.base+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	id := fmt.Sprintf("good-%d-%d", g.no, time.Now().UnixNano())
	req.Header.Set("X-Request-ID", id)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := g.http.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.Header.Get("X-Request-ID") != id {
		err = fmt.Errorf("the answer of request %s is that of %s", id, res.Header.Get("X-Request-ID"))
	}
	return res.StatusCode, res.Header, string(b), err
}

// round goes once through the routes. A full or late broker may refuse with 503:
// then the round is not held against it.
func (g *goodClient) round(n int) error {
	channel := fmt.Sprintf("/channel/good-%d", g.no)
	wrong := func(what string, status int, body string, err error) error {
		if err == nil && status == 503 {
			return nil
		}
		return fmt.Errorf("client %d, round %d: %s: %v %d %.300q", g.no, n, what, err, status, body)
	}
	id := fmt.Sprintf("m-%d-%d", g.no, n)
	payload := strings.Repeat(id+" ", 50+n%500)
	status, h, body, err := g.ask("POST", channel+"/broadcast", payload, append([]string{"X-Broker-Message-ID", id},
		producerTokens...)...)
	if err != nil || status != 201 || h.Get("Location") != channel+"/message/"+id {
		return wrong("broadcast", status, body, err)
	}
	status, _, body, err = g.ask("GET", channel+"/message/"+id, "")
	var m struct{ ID, Payload string }
	if err != nil || status != 200 || json.Unmarshal([]byte(body), &m) != nil || m.ID != id || m.Payload != payload {
		return wrong("message", status, body, err)
	}
	var lines, want strings.Builder
	for i := range 30 {
		fmt.Fprintf(&lines, `{"MessageID":"%s-%d","Payload":"%s-%d"}`+"\n", id, i, id, i)
		fmt.Fprintf(&want, `{"Status":201,"MessageID":"%s-%d","Location":"%s/message/%s-%d"}`+"\n", id, i, channel, id, i)
	}
	status, _, body, err = g.ask("POST", channel+"/batch", lines.String(),
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	if err != nil || status != 200 || body != want.String() && !strings.Contains(body, `"Status":503`) {
		return wrong("batch", status, body, err)
	}
	status, _, body, err = g.ask("POST", channel+"/consumer/k/claim?limit=500&wait=5s&timeout=60", "",
		consumerTokens("k")...)
	var page apitype.ClaimedJobs
	if err != nil || status != 200 || json.Unmarshal([]byte(body), &page) != nil {
		return wrong("claim", status, body, err)
	}
	var updates []string
	for _, j := range page.Result {
		if own := fmt.Sprintf("m-%d-", g.no); !strings.HasPrefix(j.Message.MessageID, own) ||
			!strings.HasPrefix(j.Message.Payload, own) {
			return wrong("a job of somebody else", status, body, nil)
		}
		updates = append(updates, fmt.Sprintf(`{"ID":"%s","Lease":"%s","NextState":"DELIVERED"}`, j.ID, j.Lease))
	}
	status, _, body, err = g.ask("POST", channel+"/consumer/k/jobs", `{"Updates":[`+strings.Join(updates, ",")+`]}`,
		consumerTokens("k")...)
	var results apitype.UpdateResults
	if err != nil || status != 200 || json.Unmarshal([]byte(body), &results) != nil ||
		len(results.Result) != len(page.Result) {
		return wrong("jobs", status, body, err)
	}
	for i, r := range results.Result {
		if r.ID != page.Result[i].ID {
			return wrong("jobs", status, body, nil)
		}
	}
	status, _, body, err = g.ask("GET", channel+"/messages?size=10", "")
	if err != nil || status != 200 || strings.Contains(body, "/channel/gone") ||
		!strings.Contains(body, channel+"/message/m-") {
		return wrong("messages", status, body, err)
	}
	return nil
}

// Clients of every route leave in every way, at every byte of their requests and
// answers, while others work: nothing ends, nobody gets bytes of somebody else, and
// what the broker held for them is free again.
func TestClientsThatGoAwayHarmNobody(t *testing.T) {
	p := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=true")
	p.put("/producer/p", "token", "p-token")
	for _, channel := range []string{"gone", "good-0", "good-1", "good-2"} {
		p.put("/channel/"+channel, "token", "c-token")
		for _, k := range []string{"k", "empty"} {
			p.put("/channel/"+channel+"/consumer/"+k, "token", k+"-token", "type", "pull")
		}
	}
	p.put("/channel/empty", "token", "c-token")
	message := p.do("POST", "/channel/gone/broadcast", "gone", producerTokens...).header.Get("Location")
	requests := goneRequests(message)
	requests["long poll"] = strings.Replace(requests["long poll"], "/channel/gone/consumer/empty",
		"/channel/empty/consumer/empty", 1)
	p.put("/channel/empty/consumer/empty", "token", "empty-token", "type", "pull")

	var rounds atomic.Int64
	working, stop := context.WithCancel(t.Context())
	defer stop()
	work := func(g *goodClient) {
		for n := 0; working.Err() == nil && !t.Failed(); n++ {
			if err := g.round(n); err != nil {
				t.Error(err)
				return
			}
			rounds.Add(1)
		}
	}
	client.CloseIdleConnections()
	goroutines, files, heap := p.gauge(t, "go_goroutines"), p.gauge(t, "process_open_fds"), p.gauge(t,
		"go_memstats_heap_inuse_bytes")

	var good, bad sync.WaitGroup
	for no := range 3 {
		transport := &http.Transport{MaxIdleConnsPerHost: 4}
		g := &goodClient{p, no, &http.Client{Timeout: patience, Transport: transport}}
		good.Go(func() { work(g); transport.CloseIdleConnections() })
	}
	y := &yard{make(chan *net.TCPConn, 200)}
	route := 0
	for _, request := range requests {
		route++
		shift := route
		bad.Go(func() { p.cutRequests(request, shift, y) })
		bad.Go(func() { p.cutAnswers(request, shift+1, y) })
	}
	bad.Wait()
	before := rounds.Load()
	if !t.Failed() {
		eventually(t, "the others to go on", func() bool { return rounds.Load() >= before+3 || t.Failed() })
	}
	stop()
	good.Wait()
	y.clear()
	require.False(t, t.Failed())
	t.Logf("%d rounds of others", rounds.Load())

	// The pool of connections to Redis has grown to its bound, both ends of it in this
	// process, and so has the cache of payloads for the jobs that wait. Of the clients,
	// thousands, nothing is left.
	for what, limit := range map[string]float64{"go_goroutines": goroutines + 100, "process_open_fds": files + 100,
		"go_memstats_heap_inuse_bytes": heap + cacheBytes + 64<<20} {
		eventually(t, fmt.Sprintf("%s below %.0f", what, limit), func() bool {
			client.CloseIdleConnections()
			return p.gauge(t, what) < limit
		})
	}
	for _, where := range []string{"batch reader", "batch writer", "batch answers"} {
		require.Zero(t, p.count(t, `penstock_panics_total{where="`+where+`"}`))
	}
	require.Zero(t, p.gauge(t, "penstock_http_panics_total"))
	conn := p.dial()
	_, err := io.WriteString(conn, requests["batch"])
	require.NoError(t, err)
	n := 0
	for scanner := bufio.NewScanner(readHTTP(t, conn)); scanner.Scan(); n++ {
		require.Contains(t, scanner.Text(), `{"Status":201,`)
	}
	require.Equal(t, 300, n)
}
