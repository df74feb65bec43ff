package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pushSettings leave room for a busy machine: what these stories check is not
// a matter of time.
var pushSettings = []string{"BROKER_RATIONAL_DELAY=500ms", "BROKER_DELIVERY_TIMEOUT=20s", "BROKER_RETRY_BACKOFF=200ms",
	"BROKER_MAX_RETRIES=1"}

func TestPush(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.with(pushSettings...).start()
		for name, story := range map[string]func(*testing.T, *process){
			"a delivery has the headers of the contract":             deliveryHeaders,
			"a body arrives byte for byte":                           exactBodies,
			"a publish that reaches nobody says so":                  reachesNobody,
			"a relay may send back the headers of a delivery":        relayedHeaders,
			"the content type arrives as it was sent":                contentTypes,
			"metadata never overrides our headers":                   metadataNeverOverrides,
			"a hanging consumer delays nobody else":                  hangingConsumer,
			"a redirect is a failure and is not followed":            redirects,
			"2xx is delivered and everything else is not":            statusCodes,
			"what is no HTTP answer is a failure":                    brokenAnswers,
			"a channel without consumers takes messages":             nobodyThere,
			"a changed callback URL counts from the next attempt":    changedCallback,
			"a changed token counts from the next attempt":           changedToken,
			"a consumer may become pull and push again":              changedType,
			"a pull consumer is never called":                        pullIsNotCalled,
			"one broken consumer does not fail the others' delivery": independentStatus,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

func deliveryHeaders(t *testing.T, p *process) {
	sink := newSink(t, nil)
	at := make(chan string, 1)
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		at <- r.Method + " " + r.RequestURI + " " + r.Host
	})
	s := p.stage(t, "k="+sink.URL, "path="+callback+"/hook/a%2Fb?x=1&y=%20")
	own := s.publish(`{"hello":"world"}`, "Content-Type", "application/json", "X-Broker-Message-Priority", "7",
		"X-Broker-Message-ID", "order-1",
		"X-Broker-Metadata-Headers", "x-tenant, traceparent", "X-Tenant", "T1", "traceparent", "00-a-b-01", "Authorization",
		"Bearer secret", "X-Other", "not named")
	m := s.awaitStatus(own, "DELIVERED")
	u, err := url.Parse(callback)
	require.NoError(t, err)
	require.Equal(t, "POST /hook/a%2Fb?x=1&y=%20 "+u.Host, <-at)

	h := sink.all()[0].header
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Penstock/" + version,
		"X-Broker-Consumer-Token": "k-token", "X-Broker-Channel-ID": s.channel, "X-Broker-Consumer-ID": "k",
		"X-Broker-Producer-ID": "p",
		"X-Broker-Message-ID":  "order-1", "X-Broker-Message-Priority": "7", "X-Broker-Attempt": "1",
		"X-Tenant": "T1", "Traceparent": "00-a-b-01", "X-Broker-Metadata-Headers": "traceparent,x-tenant",
		"Content-Length": "17",
	} {
		require.Equal(t, []string{want}, h.Values(name), name)
	}
	require.Equal(t, m.Jobs[0].ID, h.Get("X-Broker-Job-ID"))
	require.NotEmpty(t, h.Get("X-Request-ID"))
	for name, values := range h {
		require.NotContains(t, []string{"Authorization", "X-Other", "X-Broker-Producer-Token", "X-Broker-Channel-Token",
			"X-Broker-Admin-Token"}, name)
		for _, secret := range []string{"p-token", "c-token", adminToken, "Bearer secret"} {
			require.NotContains(t, values, secret, name)
		}
	}

	// Without an ID, a priority and metadata of its own.
	s.awaitStatus(s.publish("plain"), "DELIVERED")
	for _, got := range sink.all() {
		if got.body != "plain" {
			continue
		}
		require.Regexp(t, `^[0-9a-v]{20}$`, got.header.Get("X-Broker-Message-ID"))
		require.Equal(t, "0", got.header.Get("X-Broker-Message-Priority"))
		require.Empty(t, got.header.Values("X-Broker-Metadata-Headers"))
	}
}

func reachesNobody(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t)
	recipients := func(headers ...string) []string {
		r := s.post("x", headers...)
		require.Equal(t, 201, r.status, r.body)
		return r.header.Values("X-Broker-Recipients")
	}
	require.Equal(t, []string{"0"}, recipients())
	s.join("k=" + sink.URL)
	require.Empty(t, recipients())
	s.put(s.path("/consumer/k"), "filter", "priority > 5")
	require.Equal(t, []string{"0"}, recipients())
	require.Empty(t, recipients("X-Broker-Message-Priority", "6"))
	s.join("pull")
	require.Empty(t, recipients())
	require.Equal(t, []string{"0"}, recipients("X-Broker-Consumers", "k"))
}

// A relay posts what it got to another channel, with all the broker's headers but those that it sets.
func relayedHeaders(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s, next := p.stage(t, "k="+sink.URL), p.stage(t)
	s.awaitStatus(s.publish("relayed", "X-Broker-Metadata-Headers", "x-tenant", "X-Tenant", "T1", "X-Broker-Ordering-Key",
		"o-1", "X-Broker-Message-Priority", "9"), "DELIVERED")
	var headers []string
	for name, values := range sink.all()[0].header {
		if strings.HasPrefix(name, "X-Broker-") && name != "X-Broker-Producer-Id" && name != "X-Broker-Message-Id" {
			headers = append(headers, name, values[0])
		}
	}
	require.GreaterOrEqual(t, len(headers)/2, 6)
	next.publish("relayed", headers...)
	r := next.post("relayed", append(headers, "X-Broker-Priority", "9")...)
	require.Equal(t, 400, r.status, r.body)
	require.Contains(t, r.body, "unknown_header")
}

func exactBodies(t *testing.T, p *process) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := make([]byte, 4<<20)
	for i := range large {
		large[i] = byte(i * i >> 8)
	}
	bodies := map[string]string{
		"empty": "", "one zero byte": "\x00", "every byte": string(every), "not UTF-8": "\xff\xfe\xc3\x28",
		"line ends":   "a\r\n\r\nb\n",
		"spaced JSON": "{ \"a\" :1e2, \"b\":\"\\u00e9\" }\n", "markup": "<&>\u2028", "the largest": string(large),
	}
	got := make(chan [3]string, 2*len(bodies))
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			got <- [3]string{r.Header.Get("X-Broker-Message-ID"), fmt.Sprintf("%x", sha256.Sum256(b)),
				r.Header.Get("Content-Length")}
		}
	})
	s := p.stage(t, "k="+callback)
	want := map[string]string{}
	for name, body := range bodies {
		id := strings.ReplaceAll(name, " ", "-")
		want[id] = fmt.Sprintf("%x %d", sha256.Sum256([]byte(body)), len(body))
		s.publish(body, "X-Broker-Message-ID", id)
	}
	for range bodies {
		g := <-got
		require.Equal(t, want[g[0]], g[1]+" "+g[2], g[0])
		delete(want, g[0])
	}
	require.Empty(t, want)
}

func contentTypes(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	types := []string{"application/json", "text/plain; charset=ISO-8859-1", "Application/Vnd.Example+JSON;  Version=\"2\"",
		"multipart/form-data; boundary=x",
		"application/x-www-form-urlencoded", "not a media type"}
	for _, ct := range types {
		s.publish(ct, "Content-Type", ct)
	}
	s.publish("application/octet-stream") // our client sends no Content-Type then
	eventually(t, "all", func() bool { return sink.count() == len(types)+1 })
	for _, got := range sink.all() {
		require.Equal(t, []string{got.body}, got.header.Values("Content-Type"))
	}
	raw := rawExchange(t, p, "POST "+s.path("/broadcast")+" HTTP/1.1\r\nHost: b\r\nContent-Length: "+
		"4\r\nX-Broker-Channel-Token: c-token\r\n"+
		"X-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: p-token\r\nX-Broker-Message-ID: bare\r\n\r\nbare")
	require.Contains(t, raw, "201 Created")
	eventually(t, "the bare one", func() bool { return sink.times("bare") == 1 })
	all := sink.all()
	require.Equal(t, []string{"application/octet-stream"}, all[len(all)-1].header.Values("Content-Type"))
	require.Equal(t, "application/octet-stream", s.message(s.path("/message/bare")).ContentType)
}

// rawExchange writes bytes to the broker and returns what it answers until it
// closes the connection or pauses. What a busy broker refused is sent again.
func rawExchange(t *testing.T, p *process, request string) (answer string) {
	t.Helper()
	for range busyRepeats {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
		require.NoError(t, err)
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		answer = readRaw(conn)
		require.NoError(t, conn.Close())
		if !busyRaw(answer) {
			break
		}
		time.Sleep(time.Second)
	}
	return answer
}

func metadataNeverOverrides(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	ours := []string{"X-Broker-Consumer-Token", "X-Broker-Message-ID", "X-Broker-Job-ID", "X-Broker-Attempt",
		"X-Broker-Channel-ID", "x-broker-consumer-id",
		"X-Broker-Message-Priority", "X-Broker-Metadata-Headers", "User-Agent", "X-Request-ID", "Content-Type",
		"Content-Length", "Host", "Connection",
		"Transfer-Encoding", "X-Broker-Producer-Token", "X-Broker-Channel-Token", "Authorization", "Cookie",
		"X_Broker_Consumer_Token", "Content_Length", "Proxy", "X-Forwarded-For", "X-HTTP-Method-Override"}
	headers := []string{"X-Broker-Metadata-Headers", strings.Join(ours, ",") + ",x-fine,X-Fine,x-absent", "X-Fine", "yes"}
	for _, name := range []string{"X-Broker-Consumer-Token", "X-Broker-Job-ID", "X-Broker-Attempt", "X-Broker-Channel-ID",
		"X-Broker-Consumer-ID", "User-Agent",
		"X-Request-ID", "Authorization", "Cookie", "X_Broker_Consumer_Token", "Content_Length", "Proxy", "X-Forwarded-For",
		"X-HTTP-Method-Override"} {
		headers = append(headers, name, "forged")
	}
	at := s.publish("body", headers...)
	m := s.awaitStatus(at, "DELIVERED")
	require.Equal(t, map[string]string{"x-fine": "yes"}, m.Headers)
	h := sink.all()[0].header
	require.Equal(t, []string{"k-token"}, h.Values("X-Broker-Consumer-Token"))
	require.Equal(t, []string{m.ID}, h.Values("X-Broker-Message-ID"))
	require.Equal(t, []string{m.Jobs[0].ID}, h.Values("X-Broker-Job-ID"))
	require.Equal(t, []string{"yes"}, h.Values("X-Fine"))
	require.Equal(t, []string{"x-fine"}, h.Values("X-Broker-Metadata-Headers"))
	for name, values := range h {
		require.NotContains(t, values, "forged", name)
	}
}

func hangingConsumer(t *testing.T, p *process) {
	const n = 100 // more than one consumer may have in flight
	var held atomic.Int32
	release := make(chan struct{})
	hanging := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		held.Add(1)
		select {
		case <-release:
		case <-over:
		}
	})
	sinks := []*sink{newSink(t, nil), newSink(t, nil), newSink(t, nil)}
	s := p.stage(t, "hanging="+hanging)
	s.put(s.path("/consumer/hanging"), "timeout", "10m") // longer than this test
	for i, k := range sinks {
		s.join(fmt.Sprintf("k%d=%s", i, k.URL))
	}
	for i := range n {
		s.publish(strconv.Itoa(i))
	}
	for _, k := range sinks {
		eventually(t, "all messages at a consumer that works", func() bool { return k.distinct() == n })
		require.Equal(t, n, k.count(), "each once")
	}
	eventually(t, "the hanging consumer to have its share", func() bool { return held.Load() == 64 })
	s.publish("one more")
	eventually(t, "the one more", func() bool { return sinks[0].times("one more") == 1 })
	require.EqualValues(t, 64, held.Load(), "not more than BROKER_CONSUMER_CONCURRENCY")
	close(release)
	eventually(t, "the rest at the slow one", func() bool { return held.Load() == n+1 })
}

func redirects(t *testing.T, p *process) {
	target := newSink(t, nil)
	codes := []int{300, 301, 302, 303, 305, 307, 308}
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		b, _ := io.ReadAll(r.Body)
		code, _ := strconv.Atoi(string(b))
		w.Header().Set("Location", target.URL+"/elsewhere")
		w.WriteHeader(code)
	})
	s := p.stage(t, "k="+callback)
	at := map[int]string{}
	for _, code := range codes {
		at[code] = s.publish(strconv.Itoa(code))
	}
	for _, code := range codes {
		require.Equal(t, code, s.awaitStatus(at[code], "DEAD").Jobs[0].StatusCode)
	}
	require.Zero(t, target.count())
}

func statusCodes(t *testing.T, p *process) {
	want := map[int]string{304: "DEAD"}
	for _, code := range []int{200, 201, 202, 203, 204, 205, 206, 207, 226, 250, 299} {
		want[code] = "DELIVERED"
	}
	for _, code := range []int{400, 401, 403, 404, 405, 408, 409, 413, 422, 425, 429, 499, 500, 501, 502, 503, 504, 599,
		600, 999} {
		want[code] = "DEAD"
	}
	sink := newSink(t, func(_ int, r received) int {
		code, _ := strconv.Atoi(r.body)
		return code
	})
	s := p.stage(t, "k="+sink.URL)
	at := map[int]string{}
	for code := range want {
		at[code] = s.publish(strconv.Itoa(code))
	}
	for code, status := range want {
		j := s.awaitStatus(at[code], status).Jobs[0]
		attempts := map[string]int{"DELIVERED": 1, "DEAD": 2}[status]
		require.Equal(t, attempts, j.Attempts, "%d", code)
		require.Equal(t, attempts, sink.times(strconv.Itoa(code)), "%d", code)
		if status == "DEAD" {
			require.Equal(t, code, j.StatusCode)
			require.Contains(t, j.Reason, strconv.Itoa(code))
		}
	}
}

func brokenAnswers(t *testing.T, p *process) {
	answers := map[string]string{
		"closed": "", "no HTTP": "hello\r\n\r\n", "half a line": "HTTP/1.1 2", "no code": "HTTP/1.1 abc OK\r\n\r\n",
		"only continue": "HTTP/1.1 100 Continue\r\n\r\n",
	}
	callback := serveHTTP(t, func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
		b, _ := io.ReadAll(r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, answers[string(b)])
		_ = conn.Close()
	})
	s := p.stage(t, "k="+callback)
	at := map[string]string{}
	for name := range answers {
		at[name] = s.publish(name)
	}
	for name := range answers {
		j := s.awaitStatus(at[name], "DEAD").Jobs[0]
		require.Equal(t, 2, j.Attempts, name)
		require.NotEmpty(t, j.Reason, name)
	}
	// A success with more to say than anybody wants to read is a success.
	talkative := newTalkative(t)
	k := p.stage(t, "k="+talkative)
	require.Equal(t, 1, k.awaitStatus(k.publish("x"), "DELIVERED").Jobs[0].Attempts)
}

// newTalkative answers 200 and then never stops.
func newTalkative(t *testing.T) string {
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request, over <-chan struct{}) {
		chunk := make([]byte, 32<<10)
		for {
			select {
			case <-over:
				return
			default:
			}
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
}
