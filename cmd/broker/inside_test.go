package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// hidden are words of the errors of a dial, and addresses of the inside.
var hidden = []string{"127.0.0.1", "::1", "dial", "refused", "forbidden", "allowed", "listens", "lookup",
	"no such host", "timeout", "malformed"}

func requireHides(t *testing.T, text string) {
	t.Helper()
	for _, word := range hidden {
		require.NotContains(t, text, word)
	}
}

// fetched is a bulk of a file that must not be had: it fails for the same reason whatever is there.
func (s *stage) fetched(url string) string {
	s.t.Helper()
	r := s.tryBulk("application/json", `{"FileURL":"`+url+`","Format":"ndjson","Template":{"Payload":"{{a}}"}}`)
	require.Equal(s.t, 202, r.status, r.body)
	b := s.awaitBulk(r.header.Get("Location"), "FAILED")
	require.Zero(s.t, b.Published)
	return b.Reason
}

// inner is a server beside the broker, with the number of its requests.
func inner(t *testing.T, answer string) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	return serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		asked.Add(1)
		_, _ = io.WriteString(w, answer)
	}), asked
}

func TestNothingInsideIsFetchedForAProducer(t *testing.T) {
	parallel(t)
	url, asked := inner(t, `{"a":"inner"}`+"\n")
	s := embeddedWorld(t).start("BROKER_MAX_RETRIES=0").stage(t)
	for _, at := range []string{url, s.base, "http://10.0.0.1/", "http://[::1]:1/", "http://[64:ff9b::a00:1]/",
		"http://0/", "http://2130706433/"} {
		requireProblem(t, s.tryBulk("application/json", `{"FileURL":"`+at+`/","Format":"csv"}`), 400, "invalid_file_url")
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	reasons := map[string]bool{}
	for _, at := range []string{"http://localhost:" + port + "/", "http://LOCALHOST.:" + port + "/", "http://localhost:1/",
		"http://nowhere.invalid/"} {
		reasons[s.fetched(at)] = true
	}
	require.Len(t, reasons, 1, "an open port, a closed one and no host are told alike: %v", reasons)
	for reason := range reasons {
		requireHides(t, reason)
	}
	require.Zero(t, asked.Load())
	require.Contains(t, s.log.String(), "address not allowed", "the log keeps the detail")
}

func TestTheBrokerItselfIsNeverFetched(t *testing.T) {
	parallel(t)
	s := embeddedWorld(t).start(fetchInside, "BROKER_MAX_RETRIES=0").stage(t)
	port := s.base[strings.LastIndexByte(s.base, ':'):]
	closed := s.fetched("http://127.0.0.1:1/")
	requireHides(t, closed)
	for _, host := range []string{"127.0.0.1", "localhost", "LocalHost.", "127.1", "2130706433", "[::ffff:127.0.0.1]"} {
		require.Equal(t, closed, s.fetched("http://"+host+port+"/metrics"), host)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // speaks no HTTP
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.6\r\n")
			_ = conn.Close()
		}
	}()
	require.Equal(t, closed, s.fetched("http://"+silent.Addr().String()+"/"))
}

// Another broker of the installation is another address, so it is asked, and refuses.
func TestNoBrokerAnswersAnotherOnOpenManagement(t *testing.T) {
	parallel(t)
	other := embeddedWorld(t).start("BROKER_USER_AGENT=Other/2")
	other.put("/channel/orders", "token", "very-secret")
	s := embeddedWorld(t).start(fetchInside, "BROKER_MAX_RETRIES=0", "BROKER_USER_AGENT=Mozilla/5.0").stage(t)
	require.Contains(t, s.fetched(other.base+"/channel/orders"), "403")
	for name, headers := range map[string][]string{
		"its own User-Agent": {"User-Agent", "Other/2"}, "another version": {"User-Agent", "Penstock/0.1 (x)"},
		"a broker of any User-Agent": {"User-Agent", "Mozilla/5.0", egress.MadeByBroker, "broker"},
		"an empty header":            {egress.MadeByBroker, ""},
	} {
		for _, path := range []string{"/channel/orders", "/channels", "/channel/orders/messages",
			"/channel/orders/reconcile"} {
			requireProblem(t, other.do("GET", path, "", headers...), 403, "made_by_broker")
		}
		requireProblem(t, other.do("POST", "/channel/orders/pause", "", headers...), 403, "made_by_broker")
		require.Equal(t, 200, other.do("GET", "/channel/orders", "", append(headers, "X-Broker-Admin-Token",
			adminToken)...).status, name)
	}
	require.Equal(t, 200, other.do("GET", "/channel/orders", "").status)
}

func TestALocationIsAskedWhereItsConsumerIs(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		s := w.with(quick...).start("BROKER_DELIVERY_TIMEOUT=10s").stage(t)
		elsewhere, asked := inner(t, "from elsewhere")
		r := serveHTTP(t, func(w http.ResponseWriter, q *http.Request, _ <-chan struct{}) {
			switch q.URL.Path {
			case "/result":
				_, _ = io.WriteString(w, "a result")
			case "/elsewhere":
				w.Header().Set("Location", elsewhere+"/result")
				w.WriteHeader(202)
			case "/broker":
				w.Header().Set("Location", s.base+s.path())
				w.WriteHeader(202)
			default:
				w.Header().Set("Location", "http://"+strings.Replace(q.Host, "localhost", "LOCALHOST.", 1)+"/result")
				w.WriteHeader(202)
			}
		})
		name := strings.Replace(r, "127.0.0.1", "localhost", 1)
		for id, callback := range map[string]string{"same": r + "/same", "name": name + "/same", "elsewhere": r +
			"/elsewhere", "broker": r + "/broker"} {
			s.put(s.path("/consumer/", id), "callbackUrl", callback, "responses", "store", "async", "true",
				"resultDeadline", "10s")
		}
		at := s.publish("x")
		v := s.responses(at[strings.LastIndexByte(at, '/')+1:], "?wait=60s")
		require.True(t, v.Complete)
		for _, one := range v.Result {
			switch one.ConsumerID {
			case "same", "name":
				require.Equal(t, "a result", one.Body, one.ConsumerID)
			default:
				require.Equal(t, "FAILED", one.State, "%+v", one)
				require.Empty(t, one.Body)
				requireHides(t, one.Reason)
			}
		}
		require.Zero(t, asked.Load())
		require.Contains(t, s.log.String(), "a result was not asked for")
	})
}

// Token endpoints, reply URLs and the alert webhook are URLs of management, and yet never this broker.
func TestTheBrokerPostsToItselfForCallbacksOnly(t *testing.T) {
	parallel(t)
	addr := freeAddr(t)
	hook := "http://" + addr + "/channel/hook/pause" // what a request to it would leave behind
	p := embeddedWorld(t).with(quick...).launch("BROKER_LISTEN="+addr, "BROKER_USER_AGENT=x", "BROKER_ALERT_WEBHOOK_URL="+
		hook, "BROKER_ALERT_DLQ_GROWTH=1")
	p.base = "http://" + addr
	p.awaitReady()
	sink := newSink(t, nil)
	s := p.stage(t, "relay="+p.base+"/channel/nobody/broadcast")
	s.put("/channel/hook", "token", "t")
	s.put("/producer/p", "replyUrl", hook, "statusEvents", "all")
	s.put(s.path("/consumer/oauth"), "token", "t", "callbackUrl", sink.URL, "authorization", "oauth2 "+hook+" id secret")
	s.put(s.path("/consumer/answers"), "token", "t", "callbackUrl", sink.URL, "responses", "callback")
	s.publish("x")
	eventually(t, "dead letters", func() bool { return len(s.dead("oauth", 10)) == 1 && len(s.dead("relay", 10)) == 1 })
	require.Equal(t, 404, s.dead("relay", 10)[0].StatusCode, "a callback may be a channel of this broker")
	for _, word := range []string{"127.0.0.1", "listens", "dial"} {
		require.NotContains(t, s.dead("oauth", 10)[0].Reason, word)
	}
	eventually(t, "a dead reply", func() bool {
		return strings.Contains(s.do("GET", "/producer/p/dlq", "").body, "the broker itself listens")
	})
	eventually(t, "a failed alert", func() bool {
		return strings.Contains(s.do("GET", "/channel/~alerts/consumer/~webhook/why", "").body,
			"address not allowed: the broker itself listens")
	})
	for line := range strings.Lines(s.do("GET", "/metrics", "").body) {
		if strings.HasPrefix(line, "penstock_http_requests_total") && strings.Contains(line, "/channel/{channel}/pause") {
			require.Equal(t, "0", strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), line)
		}
	}
}

func TestAProducerNeverSeesACallback(t *testing.T) {
	parallel(t)
	for _, open := range []bool{true, false} {
		s := embeddedWorld(t).with(quick...).start("BROKER_MAX_RETRIES=0", fmt.Sprintf("BROKER_OPEN_MANAGEMENT=%v", open))
		admin := []string{"X-Broker-Admin-Token", adminToken, "Content-Type", "application/x-www-form-urlencoded"}
		for path, form := range map[string]string{"/producer/p": "token=p-token", "/channel/c": "token=c-token"} {
			require.Equal(t, 201, s.do("PUT", path, form, admin...).status)
		}
		require.Equal(t, 201, s.do("PUT", "/channel/c/consumer/k",
			"token=k-token&responses=store&callbackUrl=http://127.0.0.1:1/secret-hook", admin...).status)
		at := s.publish("x")
		eventually(t, "a dead letter", func() bool {
			return strings.Contains(s.do("GET", at, "", admin...).body, `"Status":"DEAD"`)
		})
		require.Contains(t, s.do("GET", at, "", admin...).body, "secret-hook")
		job := strings.Split(strings.SplitN(s.do("GET", at, "", admin...).body, `"JobURL":"`, 2)[1], `"`)[0]
		for _, path := range []string{at, at + "/responses", at + "/timeline", job, job + "/timeline"} {
			r := s.do("GET", path, "", producerTokens...)
			require.Equal(t, 200, r.status, "%s %s", path, r.body)
			for _, word := range []string{"127.0.0.1", "secret-hook", "dial", "refused"} {
				require.NotContains(t, r.body, word, "%s, open management %v", path, open)
			}
			require.Contains(t, s.do("GET", path, "", admin...).body, "127.0.0.1", path)
		}
	}
}
