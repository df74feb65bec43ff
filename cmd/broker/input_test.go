package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A badRequest is what somebody may send, and the answer of the contract.
type badRequest struct {
	name, method, path, body string
	headers                  []string
	status                   int
	code                     string // "" : any
}

const formType = "application/x-www-form-urlencoded"

// badRequests are refused on stage s, which has message m and pull consumer k
// with a queued job.
func badRequests(s *stage, job string) []badRequest {
	broadcast, k := s.path("/broadcast"), s.path("/consumer/k")
	as := func(pairs ...string) []string { return append(append([]string{}, producerTokens...), pairs...) }
	form := []string{"Content-Type", formType}
	injection := "x%27%20OR%20%271%27=%271"
	long := strings.Repeat("a", 256)
	all := []badRequest{
		{"an unknown path", "GET", "/nothing", "", nil, 404, "no_such_path"},
		{"a trailing slash", "GET", "/producers/", "", nil, 404, "no_such_path"},
		{"a path out of the tree", "GET", "/channel/%2e%2e/messages", "", nil, 400, "invalid_id"},
		{"DELETE of a consumer", "DELETE", k, "", nil, 405, "method_not_allowed"},
		{"DELETE of a message", "DELETE", s.path("/message/m"), "", nil, 405, "method_not_allowed"},
		{"PUT of a message", "PUT", s.path("/message/m"), "x", nil, 405, "method_not_allowed"},
		{"POST of a channel", "POST", s.path(), "", nil, 405, "method_not_allowed"},
		{"GET of the broadcast", "GET", broadcast, "", nil, 405, "method_not_allowed"},
		{"an unknown method", "FROB", "/producers", "", nil, 405, "method_not_allowed"},

		{"a PUT of XML", "PUT", "/producer/bad", `<token>x</token>`, []string{"Content-Type", "application/xml"}, 415,
			"unsupported_media_type"},
		{"a PUT of half of a JSON object", "PUT", "/producer/bad", `{"token":"x"`, []string{"Content-Type",
			"application/json"}, 400, "invalid_json"},
		{"a member twice", "PUT", "/producer/bad", `{"token":"x","Token":"x"}`, []string{"Content-Type", "application/json"},
			400, "duplicate_field"},
		{"a PUT without a type", "PUT", "/producer/bad", "token=x", nil, 415, "unsupported_media_type"},
		{"a form that is not well encoded", "PUT", "/producer/bad", "token=%zz", form, 400, "invalid_form"},
		{"a field twice", "PUT", "/producer/bad", "token=a&token=b", form, 400, "duplicate_field"},
		{"a token with a blank", "PUT", "/producer/bad", "token=a+b", form, 400, "invalid_token"},
		{"a token with a line end", "PUT", "/producer/bad", "token=a%0d%0ab", form, 400, "invalid_token"},
		{"a token that is too long", "PUT", "/producer/bad", "token=" + long, form, 400, "invalid_token"},
		{"a name that is too long", "PUT", "/producer/bad", "name=" + long, form, 400, "invalid_name"},
		{"a name that is not UTF-8", "PUT", "/producer/bad", "name=%ff", form, 400, "invalid_name"},
		{"a large form", "PUT", "/producer/bad", "name=" + strings.Repeat("a", 70_000), form, 413, "body_too_large"},
		{"an ID with a quote", "PUT", "/producer/" + injection, "token=x", form, 400, "invalid_id"},
		{"an ID with a percent sign", "GET", "/producer/%25", "", nil, 400, "invalid_id"},
		{"an ID with a slash", "PUT", "/producer/a%2Fb", "token=x", form, 400, "invalid_id"},
		{"an ID that is too long", "PUT", "/producer/" + long, "token=x", form, 400, "invalid_id"},
		{"an ID with a zero byte", "PUT", "/producer/a%00", "token=x", form, 400, "invalid_id"},
		{"a stale condition", "PUT", s.path(), "name=x", append(form, "If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"),
			412, "precondition_failed"},
		{"a condition that is no date", "PUT", s.path(), "name=x", append(form, "If-Unmodified-Since", "yesterday"), 400,
			"invalid_date"},
		{"a consumer of an unknown channel", "PUT", "/channel/none/consumer/bad", "type=pull", form, 404,
			"channel_not_found"},
		{"a consumer of an unknown type", "PUT", s.path("/consumer/bad"), "type=stream", form, 400, "invalid_type"},
		{"a type in capitals", "PUT", s.path("/consumer/bad"), "type=PULL", form, 400, "invalid_type"},
		{"a push consumer without a URL", "PUT", s.path("/consumer/bad"), "token=x", form, 400, "callback_required"},
		{"a relative URL", "PUT", s.path("/consumer/bad"), "callbackUrl=/hook", form, 400, "invalid_callback"},
		{"a URL of another scheme", "PUT", s.path("/consumer/bad"), "callbackUrl=file:///etc/passwd", form, 400,
			"invalid_callback"},
		{"a URL with a password", "PUT", s.path("/consumer/bad"), "callbackUrl=http://u:p@h/", form, 400, "invalid_callback"},
		{"a metadata service", "PUT", s.path("/consumer/bad"), "callbackUrl=http://169.254.169.254/latest", form, 400,
			"callback_refused"},

		{"size 0", "GET", "/producers?size=0", "", nil, 400, "invalid_size"},
		{"a size that is no number", "GET", "/channels?size=ten", "", nil, 400, "invalid_size"},
		{"a first that is no ID", "GET", "/producers?first=" + injection, "", nil, 400, "invalid_id"},
		{"a date that is none", "GET", s.path("/messages?statusChangedSince=yesterday"), "", nil, 400, "invalid_date"},
		{"an unknown producer", "GET", "/producer/none", "", nil, 404, ""},
		{"an unknown channel", "GET", "/channel/none", "", nil, 404, "channel_not_found"},
		{"messages of an unknown channel", "GET", "/channel/none/messages", "", nil, 404, "channel_not_found"},
		{"an unknown message", "GET", s.path("/message/none"), "", nil, 404, "message_not_found"},
		{"an unknown consumer", "GET", s.path("/consumer/none"), "", nil, 404, "consumer_not_found"},
		{"a DLQ of an unknown consumer", "GET", s.path("/consumer/none/dlq"), "", nil, 404, "consumer_not_found"},
		{"an unknown job", "GET", k + "/job/none", "", nil, 404, "job_not_found"},

		{"a broadcast to an unknown channel", "POST", "/channel/none/broadcast", "x", as(), 404, "channel_not_found"},
		{"a broadcast without tokens", "POST", broadcast, "x", nil, 403, "channel_token_mismatch"},
		{"a wrong channel token", "POST", broadcast, "x", as("X-Broker-Channel-Token", "C-TOKEN"), 403,
			"channel_token_mismatch"},
		{"no producer", "POST", broadcast, "x", producerTokens[:2], 401, "producer_not_found"},
		{"an unknown producer's broadcast", "POST", broadcast, "x", as("X-Broker-Producer-ID", "none"), 401,
			"producer_not_found"},
		{"a wrong producer token", "POST", broadcast, "x", as("X-Broker-Producer-Token", "wrong"), 403,
			"producer_token_mismatch"},
		{"a repeated message", "POST", broadcast, "good", as("X-Broker-Message-ID", "m"), 409, "duplicate_message_id"},
		{"the ID of another message", "POST", broadcast, "x", as("X-Broker-Message-ID", "m"), 409, "message_id_conflict"},
		{"a schedule that is too far ahead", "POST", broadcast, "x", as("X-Broker-Scheduled-For", "2099-01-01T00:00:00Z"),
			400, ""},
		{"metadata names that are none", "POST", broadcast, "x", as("X-Broker-Metadata-Headers", "a b"), 400,
			"invalid_metadata_headers"},
		{"metadata that is too large", "POST", broadcast, "x", as("X-Broker-Metadata-Headers", "x-large", "X-Large",
			strings.Repeat("x", 9000)), 400, "invalid_metadata_headers"},
		{"a misspelt time", "POST", broadcast, "x", as("X-Broker-Schedule-For", "2030-01-01T00:00:00Z"), 400,
			"unknown_header"},
		{"a misspelt address", "POST", s.path("/batch"), "{}", as("X-Broker-Consumer", "k"), 400, "unknown_header"},
		{"a misspelt priority of an event", "POST", broadcast, "{}", as("Content-Type", "application/cloudevents+json",
			"X-Broker-Priority", "5"), 400, "unknown_header"},
		{"a misspelt time to live of a bulk", "POST", s.path("/bulk"), "{}", as("Content-Type", "application/x-ndjson",
			"X-Broker-TTL", "5s"), 400, "unknown_header"},
		{"a time for a channel", "PUT", s.path(), "name=x", append(form, "X-Broker-Scheduled-For", "2030-01-01T00:00:00Z"),
			400, "unknown_header"},
		{"a parameter that no broadcast has", "POST", broadcast + "?priority=5", "x", as(), 400, "unknown_parameter"},
		{"a parameter in the spelling of the body", "POST", k + "/claim?Limit=5", "", consumerTokens("k"), 400,
			"unknown_parameter"},
		{"a content type that is too long", "POST", broadcast, "x", as("Content-Type", "text/"+long), 400,
			"invalid_content_type"},
		{"a body that is too large", "POST", broadcast, strings.Repeat("x", 4<<20+1), as(), 413, "body_too_large"},
		{"headers that are too large", "POST", broadcast, "x", as("X-Large", strings.Repeat("x", 20_000)), 431,
			"header_too_large"},

		{"a transition that is not allowed", "POST", k + "/job/" + job, to("DELIVERED"), consumerTokens("k"), 400,
			"invalid_transition"},
		{"an unknown state", "POST", k + "/job/" + job, to("DONE"), consumerTokens("k"), 400, "invalid_next_state"},
		{"no JSON", "POST", k + "/job/" + job, "INFLIGHT", consumerTokens("k"), 400, "invalid_body"},
		{"a wrong timeout", "POST", k + "/job/" + job, `{"NextState":"INFLIGHT","IncrementalTimeout":-5}`,
			consumerTokens("k"), 400, "invalid_timeout"},
		{"a wrong consumer token", "POST", k + "/job/" + job, to("INFLIGHT"), append(consumerTokens("k"),
			"X-Broker-Consumer-Token", "wrong"), 403, "consumer_token_mismatch"},
		{"a wrong limit", "GET", k + "/queued-jobs?limit=-1", "", consumerTokens("k"), 400, "invalid_limit"},
		{"a wrong admin token", "POST", s.path("/message/m/re-trigger"), "", []string{"X-Broker-Admin-Token", "wrong-admin"},
			403, "admin_token_mismatch"},
	}
	for _, priority := range []string{"-1", "1024", "1.5", "high", "+1", "- 1", "99999999999999999999", "0x1", "1,2"} {
		all = append(all, badRequest{"priority " + priority, "POST", broadcast, "x", as("X-Broker-Message-Priority",
			priority), 400, "invalid_priority"})
	}
	for _, id := range []string{"a/b", "a b", "é", "'; DROP TABLE messages; --", long, "%", "a,b"} {
		all = append(all, badRequest{fmt.Sprintf("message ID %.20s", id), "POST", broadcast, "x", as("X-Broker-Message-ID",
			id), 400, "invalid_message_id"})
	}
	return all
}

func TestInputThatIsBadIsRefusedAndChangesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		s := p.stage(t, "k")
		s.publish("good", "X-Broker-Message-ID", "m")
		job := s.awaitQueued("k", 1)[0].ID
		look := func() (all []string) {
			for _, path := range []string{"/producers", "/channels", s.path(), s.path("/consumers"), s.path("/consumer/k"),
				s.path("/messages"), s.path("/consumer/k/job/", job)} {
				r := s.do("GET", path, "")
				all = append(all, r.header.Get("Last-Modified")+r.body)
			}
			return all
		}
		before := look()
		for _, bad := range badRequests(s, job) {
			r := s.do(bad.method, bad.path, bad.body, bad.headers...)
			require.Equal(t, bad.status, r.status, "%s: %s", bad.name, r.body)
			problem := r.json(t)
			require.Equal(t, "application/problem+json", r.header.Get("Content-Type"), bad.name)
			if bad.code != "" {
				require.Equal(t, bad.code, problem["code"], bad.name)
			}
			require.NotEmpty(t, r.header.Get("X-Request-Id"), bad.name)
			if bad.status == 405 {
				require.NotEmpty(t, r.header.Get("Allow"), bad.name)
			}
			requireDiscreet(t, bad.name, r.body)
		}
		smuggle(t, s)
		require.Equal(t, before, look())
		requireDiscreet(t, "log", p.log.String())
		s.publish("the broker goes on")
		s.awaitQueued("k", 2)
	})
}

// requireDiscreet checks that a text holds no token and nothing of the store.
func requireDiscreet(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range []string{"c-token", "p-token", "k-token", adminToken, "wrong-admin", "C-TOKEN", "DROP TABLE",
		"SELECT ", "INSERT ", "UPDATE ", "Error 1", "SQLITE", "sqlite3", "goroutine "} {
		require.NotContains(t, text, secret, what)
	}
}

// smuggle sends shapes that two servers in a row may read differently. Each
// hides a good broadcast that must never be taken for a request of its own.
func smuggle(t *testing.T, s *stage) {
	tokens := "X-Broker-Channel-Token: c-token\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: p-token\r\n"
	line := "POST " + s.path("/broadcast") + " HTTP/1.1\r\n"
	hidden := line + "Host: b\r\nX-Broker-Message-ID: smuggled\r\n" + tokens + "Content-Length: 1\r\n\r\nx"
	head := line + "Host: b\r\n" + tokens
	for name, request := range map[string]string{
		"length and chunked":       head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunked and length":       head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":              head + "Content-Length: 1\r\nContent-Length: 9\r\n\r\nx" + hidden,
		"a list of lengths":        head + "Content-Length: 1, 9\r\n\r\nx" + hidden,
		"a negative length":        head + "Content-Length: -1\r\n\r\n" + hidden,
		"a signed length":          head + "Content-Length: +1\r\n\r\nx" + hidden,
		"a length in hexadecimal":  head + "Content-Length: 0x1\r\n\r\nx" + hidden,
		"a blank before the colon": head + "Content-Length : 1\r\n\r\nx" + hidden,
		"a folded header":          head + "X-A: b\r\n Content-Length: 1\r\nContent-Length: 1\r\n\r\nx" + hidden,
		"a bare line feed":         head + "X-A: b\nContent-Length: 1\r\n\r\nx" + hidden,
		"an unknown coding":        head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
		"a wrong chunk size":       head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n" + hidden,
		"no version":               "POST " + s.path("/broadcast") + "\r\n" + hidden,
		"no HTTP":                  "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n" + hidden,
	} {
		answer := rawExchange(t, s.process, request)
		require.Regexp(t, `^(HTTP/1\.[01] [45]\d\d |$)`, answer, name)
		require.NotContains(t, answer, " 201 ", name)
		require.NotContains(t, answer, " 500 ", name)
		require.LessOrEqual(t, strings.Count(answer, "HTTP/1."), 1, "%s: the connection ends with the refusal", name)
		requireDiscreet(t, name, answer)
	}
	require.Equal(t, 404, s.do("GET", s.path("/message/smuggled"), "").status)
}

// Clients that send a byte now and then are cut off, and cost the others nothing.
func TestInputOfSlowClientsIsBounded(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	s := p.stage(t, "k")
	const clients = 200
	var ended sync.WaitGroup
	answers := make(chan string, clients)
	for i := range clients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		request := "POST " + s.path("/broadcast") + " HTTP/1.1\r\nHost: b\r\nX-Broker-Channel-Token: " +
			"c-token\r\nX-Broker-Producer-ID: p\r\nX-Broker-Producer-Token: p-token\r\n"
		if i%2 == 0 {
			request += "Content-Length: 1000000\r\n\r\nsome"
		}
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		ended.Go(func() {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			answer, err := io.ReadAll(conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				answer = []byte("the connection is still open")
			}
			answers <- string(answer)
		})
		go func() { // it goes on sending for as long as it is let
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(conn, "x"); err != nil {
					return
				}
			}
		}()
	}
	for i := range 100 {
		s.publish(fmt.Sprint(i))
	}
	eventually(t, "the others to be served", func() bool { return len(s.queued("k", "limit=100")) == 100 })
	ended.Wait()
	for range clients {
		answer := <-answers
		require.True(t, answer == "" || strings.HasPrefix(answer, "HTTP/1.1 408 "), answer)
	}
	require.Len(t, s.queued("k", "limit=100"), 100, "nothing of theirs was stored")
}
