package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// injections are texts that mean something to SQL, LIKE, Lua, Redis, URLs,
// shells, templates, logs or terminals.
var injections = []string{
	"' OR '1'='1", `" OR ""="`, "'; DROP TABLE messages; --", "1; DELETE FROM channels",
	"x' UNION SELECT token FROM producers -- ", `\'; SELECT 1; --`, "%", "_", "%%", "a%25",
	"\xbf' OR 1=1 -- ", "') ON DUPLICATE KEY UPDATE payload='x", "0x27", "NULL", "_binary'x'", "/*!50000 SELECT*/",
	"*1\r\n$8\r\nFLUSHALL\r\n", "\r\nFLUSHALL\r\n", "]] redis.call('FLUSHALL') --[[", "return redis.call('KEYS','*')",
	"{c1}", "}{", "p1:{c1}:r", "a|b|c|d|e",
	"..", ".", "../../etc/passwd", `..\..\x`, "..;/", "a;b", "a/b", "a?b=c", "a#b", "//evil.example/x", "\x00", "a\x00b",
	"a\r\nX-Evil: 1", "a\nb", "\u2028", "\u202egnp", "\ufeffa",
	"${jndi:ldap://x/a}", "{{7*7}}", "$(id)", "`id`", "<script>alert(1)</script>", "\x1b[2J", "\U0001F600", "\xff\xfe",
	"%s%n", "__proto__", "true", "-1", "1e309",
}

// raws are path segments as they are written: encodings of what is no ID.
var raws = []string{
	"..%2f", "..%2F..%2F", "%2e%2e", "%2e", "%2E%2e%2f", "..%5c", "%252e%252e", "%252f", "a%252fb", "%00", "a%00", "%",
	"%zz", "%2", "a;b", "a;x=y", "a%3bb", "a%20b", "a+b", "%0d%0a", "%c0%ae%c0%ae", "%u002e", "a%2fb", "%27", "%25",
	"%C3%A4", "%ff", "a*", "a,b", "a!b", "a$b", "(a)", "a=b", "a&b", "%e2%80%ae",
}

// Text that means something elsewhere means nothing here: as an ID it is
// refused, as a value it is stored and delivered byte for byte.
func TestHostileTextHasNoEffect(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		sink := newSink(t, nil)
		p := w.start()
		s := p.stage(t, "k", "push="+sink.URL)
		s.publish("first", "X-Broker-Message-ID", "first")
		job := s.awaitQueued("k", 1)[0].ID
		count := func() int { return strings.Count(s.do("GET", s.path("/messages?size=100"), "").body, "/message/") }
		before := p.do("GET", "/producers", "").body + p.do("GET", "/channels", "").body +
			s.do("GET", s.path("/consumers"), "").body

		segments := append([]string{}, raws...)
		for _, text := range injections {
			if text != "true" && text != "NULL" && text != "0x27" && text != "-1" && text != "1e309" && text != "_" &&
				text != "__proto__" {
				segments = append(segments, strings.ReplaceAll(url.PathEscape(text), ".", "%2e"))
			}
		}
		for _, raw := range segments {
			for _, path := range []string{"/producer/" + raw, "/channel/" + raw, "/channel/" + raw + "/consumer/k",
				s.path("/consumer/", raw), s.path("/message/", raw), s.path("/consumer/k/job/", raw), s.path("/consumer/",
					raw, "/dlq")} {
				method, body := "GET", ""
				if strings.HasPrefix(path, "/producer/") || path == "/channel/"+raw {
					method, body = "PUT", "token=x"
				}
				got := rawExchange(t, p, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: b\r\nConnection: close\r\nContent-Type: "+
					"%s\r\nContent-Length: %d\r\n\r\n%s", method, path, formType, len(body), body))
				require.Regexp(t, `^HTTP/1\.1 40[04] `, got, "%s %s", method, path)
				requireDiscreet(t, path, got)
			}
		}
		for _, text := range injections {
			q := url.QueryEscape(text)
			for _, path := range []string{"/producers?first=" + q, s.path("/messages?first=", q),
				s.path("/messages?statusChangedSince=", q), s.path("/consumer/k/dlq?first=", q), "/channels?size=" + q,
				s.path("/consumer/k/queued-jobs?after=", q), s.path("/consumer/k/queued-jobs?limit=", q)} {
				r := s.do("GET", path, "", consumerTokens("k")...)
				// Some are IDs, and what has no such ID is not found or the end of a list.
				require.Contains(t, []int{200, 400, 404}, r.status, path)
				requireDiscreet(t, path, strings.ReplaceAll(r.body, "k-token", ""))
			}
			r := s.do("POST", s.path("/consumer/k/jobs"),
				fmt.Sprintf(`{"Updates":[{"ID":%s,"Lease":%s,"NextState":"DELIVERED"},{"ID":%q,"Lease":%s,"NextState":%s}]}`,
					quoted(text), quoted(text), job, quoted(text), quoted(text)), consumerTokens("k")...)
			require.Equal(t, 200, r.status, r.body)
			require.NotContains(t, r.body, "202")
		}
		require.Equal(t, before, p.do("GET", "/producers", "").body+p.do("GET", "/channels", "").body+
			s.do("GET", s.path("/consumers"), "").body)
		require.Equal(t, 1, count())
		require.Equal(t, "QUEUED", s.job("k", job).Status)
		hostileValues(t, s, sink)
	})
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// hostileValues sends the texts where any text may be: names, payloads,
// content types and metadata.
func hostileValues(t *testing.T, s *stage, sink *sink) {
	carried := 0
	want := map[string]string{}
	for i, text := range injections {
		id := fmt.Sprintf("text-%d", i)
		name := s.do("PUT", "/producer/"+id, "token=t&name="+url.QueryEscape(text), "Content-Type", formType)
		require.Contains(t, []int{201, 400}, name.status, text)
		if name.status == 201 {
			require.Equal(t, text, s.do("GET", "/producer/"+id, "").json(t)["Name"])
		}
		line := fmt.Sprintf(`{"MessageID":%q,"Payload":%s,"ContentType":%s,"Headers":{"X-Text":%s}}`, id, quoted(text),
			quoted(text), quoted(text))
		r := s.do("POST", s.path("/batch"), line, append([]string{"Content-Type", "application/x-ndjson"},
			producerTokens...)...)
		require.Equal(t, 200, r.status)
		require.NoError(t, json.Unmarshal([]byte(quoted(text)), &text)) // JSON has no other text
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			require.Contains(t, r.body, `"Status":400`, text)
			r = s.do("POST", s.path("/batch"), fmt.Sprintf(`{"MessageID":%q,"Payload":"x","Headers":{"X-Text":%s}}`, id,
				quoted(text)), append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
			require.Contains(t, r.body, "invalid_metadata_headers", text)
			r = s.do("POST", s.path("/batch"), fmt.Sprintf(`{"MessageID":%q,"Payload":"x","Headers":{%s:"x"}}`, id,
				quoted(text)), append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
			require.Contains(t, r.body, "invalid_metadata_headers", text)
			continue
		}
		require.Contains(t, r.body, `"Status":201`, text)
		carried++
		want[id] = text
		m := s.message(s.path("/message/", id))
		require.Equal(t, []string{text, text, text}, []string{m.Payload, m.ContentType, m.Headers["X-Text"]})
	}
	eventually(t, "the deliveries", func() bool { return sink.count() == carried+1 })
	for _, got := range sink.all() {
		text, ok := want[got.header.Get("X-Broker-Message-ID")]
		if !ok {
			continue
		}
		require.Equal(t, text, got.body)
		require.Equal(t, []string{strings.Trim(text, " \t")}, got.header.Values("Content-Type"))
		require.Equal(t, []string{strings.Trim(text, " \t")}, got.header.Values("X-Text"))
		require.Equal(t, []string{"push-token"}, got.header.Values("X-Broker-Consumer-Token"))
		require.Empty(t, got.header.Values("X-Evil"))
	}
	// Every byte is a payload.
	for i, text := range injections {
		id := fmt.Sprintf("body-%d", i)
		s.publish(text, "X-Broker-Message-ID", id)
	}
	eventually(t, "the bodies", func() bool { return sink.count() == carried+1+len(injections) })
	for i, text := range injections {
		require.GreaterOrEqual(t, sink.times(text), 1, "%d", i)
	}
}

// A callback URL that reaches inside is refused when it is registered, a name
// that leads there when it is called; what is allowed explicitly works.
func TestHostileCallbacksReachNothingInside(t *testing.T) {
	parallel(t)
	inside := newSink(t, nil)
	port := inside.URL[strings.LastIndex(inside.URL, ":"):]
	p := embeddedWorld(t).with("BROKER_EGRESS=public", "BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=1").start()
	s := p.stage(t)
	own := strings.TrimPrefix(p.base, "http://")
	for _, callback := range []string{
		inside.URL, "http://" + own + s.path("/broadcast"), "http://127.1" + port, "http://2130706433" +
			port, "http://0x7f000001" + port, "http://0177.0.0.1" + port, "http://0x7f.0.0.1" + port, "http://017700000001" +
			port,
		"http://0" + port, "http://0.0.0.0" + port, "http://127.0.0.1." + port, "http://[::1]" + port, "http://[::]" + port,
		"http://[::ffff:127.0.0.1]" + port, "http://[::ffff:7f00:1]" + port, "http://[::127.0.0.1]" + port,
		"http://[64:ff9b::127.0.0.1]" + port, "http://[2002:7f00:1::]" + port, "http://[2001:0:0:0:0:0:80ff:fffe]" + port,
		"http://10.1.2.3/", "http://172.31.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://198.18.0.1/",
		"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://[fe80::1]/", "http://[fd00::1]/",
		"http://metadata.google.internal/", "http://224.0.0.1/", "http://255.255.255.255/",
	} {
		r := s.do("PUT", s.path("/consumer/bad"), "token=t&callbackUrl="+url.QueryEscape(callback), "Content-Type", formType)
		requireProblem(t, r, 400, "callback_refused")
	}
	for _, callback := range []string{"http://127.0.0.1%00.example/", "http://[::1%25lo]/", "http://a@127.0.0.1/",
		"http://example.com#@127.0.0.1/", "http://example.com\\@127.0.0.1/", "http://\uff11\uff12\uff17.0.0.1/",
		"gopher://127.0.0.1:6379/_x", "file:///etc/passwd", "http://127.0.0.1:99999/"} {
		r := s.do("PUT", s.path("/consumer/bad"), "token=t&callbackUrl="+url.QueryEscape(callback), "Content-Type", formType)
		require.Equal(t, 400, r.status, callback)
	}
	require.Equal(t, 404, s.do("GET", s.path("/consumer/bad"), "").status)

	s.join("named=http://localhost" + port + "/")
	at := s.publish("x")
	j := s.awaitStatus(at, "DEAD").Jobs[0]
	require.Contains(t, j.Reason, "not allowed")
	require.Zero(t, j.StatusCode)
	require.Zero(t, inside.count())

	allowed := embeddedWorld(t).with("BROKER_EGRESS=public", "BROKER_EGRESS_ALLOW=127.0.0.1/32,::1/128").start().stage(t,
		"k="+inside.URL, "named=http://localhost"+port+"/")
	allowed.awaitStatus(allowed.publish("x"), "DELIVERED")
	require.Equal(t, 2, inside.count())
}

// A redirect to another consumer, to the broker itself or inside is never
// followed, so no token travels.
func TestHostileRedirectsTakeNoTokenAlong(t *testing.T) {
	parallel(t)
	thief := newSink(t, nil)
	p := embeddedWorld(t).with("BROKER_RETRY_BACKOFF=100ms", "BROKER_MAX_RETRIES=1").start()
	s := p.stage(t)
	for i, location := range []string{thief.URL, "//" + strings.TrimPrefix(thief.URL, "http://") + "/x",
		p.base + "/producers", "/", "http://169.254.169.254/", "file:///etc/passwd", "https://127.0.0.1/",
		"javascript:alert(1)", "http://" + strings.Repeat("a", 4000)} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			s.join(fmt.Sprintf("k%d-%d=%s", i, code, serveHTTP(t, func(w http.ResponseWriter, _ *http.Request,
				_ <-chan struct{}) {
				w.Header().Set("Location", location)
				w.WriteHeader(code)
			})))
		}
	}
	m := s.awaitStatus(s.publish("x")+"?size=1000", "DEAD")
	require.Len(t, m.Jobs, 45)
	for _, j := range m.Jobs {
		require.Contains(t, []int{301, 302, 303, 307, 308}, j.StatusCode)
		require.Equal(t, 2, j.Attempts)
	}
	require.Zero(t, thief.count())
}
