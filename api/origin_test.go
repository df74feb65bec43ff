package api

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestHostnamesAreReadStrictly(t *testing.T) {
	for host, want := range map[string]string{
		"localhost": "localhost", "LocalHost:8080": "localhost", "localhost.": "localhost", "localhost.:1": "localhost",
		"a.b:":      "a.b",
		"127.0.0.1": "127.0.0.1", "[::1]": "::1", "[::1]:80": "::1", "[FE80::1]": "fe80::1",
	} {
		got, ok := hostname(host)
		require.True(t, ok, host)
		require.Equal(t, want, got)
	}
	for _, host := range []string{"", ":80", "::1", "[::1", "[::1]x", "[::1]:x", "[localhost]", "[]", "localhost:80:90",
		"localhost:8o", "localhost:-1", ".", "a]b:c", "[::1]]"} {
		_, ok := hostname(host)
		require.False(t, ok, host)
	}
}

// requireStatus sends one request through a real listener.
func requireStatus(t *testing.T, addr, request string, status int, code string) {
	t.Helper()
	answers := raw(t, addr, request)
	require.Len(t, answers, 1, request)
	body, err := io.ReadAll(answers[0].Body)
	require.NoError(t, err)
	require.Equal(t, status, answers[0].StatusCode, "%s%s", request, body)
	require.Contains(t, string(body), code, request)
}

func TestOpenManagementIsOpenUnderItsOwnNamesOnly(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AllowedHosts = []string{"Broker.internal", "192.0.2.7"} })
	addr := startServer(t, w.api.Handler, nil)
	get := func(target string, headers ...string) string {
		return "GET " + target + " HTTP/1.1\r\n" + strings.Join(append(headers, "Connection: close"), "\r\n") + "\r\n\r\n"
	}
	for _, host := range []string{"localhost", "localhost:8080", "LOCALHOST.", "127.0.0.1", "127.255.0.9:1", "[::1]",
		"[::1]:8080", "[::ffff:127.0.0.1]",
		"broker.INTERNAL:443", "broker.internal.", "192.0.2.7", "192.0.2.7.", addr} {
		requireStatus(t, addr, get("/producers", "Host: "+host), 200, "Result")
		requireStatus(t, addr, get("/producers", "Host: "+host, "Origin: http://"+host, "Sec-Fetch-Site: same-origin"),
			200, "Result")
		requireStatus(t, addr, get("http://"+host+"/producers", "Host: "+host), 200, "Result")
	}
	for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
		"evil.localhost", "0.0.0.0", "[::]", "10.0.0.1", "2130706433",
		"127.1", "0x7f.0.0.1", "0177.0.0.1", "xn--lcalhost-9za", "192.0.2.8", "internal", "x.broker.internal",
		"broker.internal.evil.example", "*"} {
		requireStatus(t, addr, get("/producers", "Host: "+host), 403, "host_not_allowed")
		requireStatus(t, addr, get("/producers", "Host: "+host, "X-Forwarded-Host: localhost", "Forwarded: host=localhost"),
			403, "host_not_allowed")
	}
	for _, request := range []string{
		get("http://evil.example/producers", "Host: localhost"),
		get("HTTP://evil.example/producers", "Host: localhost"),
		get("http://localhost/producers", "Host: evil.example"),
		get("http://evil.example:80/producers", "Host: localhost"),
		get("http://localhost@evil.example/producers", "Host: localhost"),
		get("http://evil.example@localhost/producers", "Host: localhost"),
		get("x://evil.example/producers", "Host: localhost"),
		get("///producers", "Host: evil.example"),
		"GET /producers HTTP/1.0\r\n\r\n",
		"GET /producers HTTP/1.0\r\nHost:\r\n\r\n",
	} {
		answers := raw(t, addr, request)
		require.Len(t, answers, 1, request)
		require.Contains(t, []int{400, 403, 404}, answers[0].StatusCode, request)
	}
	requireStatus(t, addr, "GET /producers HTTP/1.1\r\n\r\n", 400, "bad_request")
	requireStatus(t, addr, "GET /producers HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400, "bad_request")
	requireStatus(t, addr, "GET /producers HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n", 400, "bad_request")
	requireStatus(t, addr, get("/producers", "Host: localhost", "X-Forwarded-Host: evil.example"), 200, "Result")
}

func TestOpenManagementRefusesPagesOfOtherSites(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.AllowedHosts = []string{"broker.internal"} })
	addr := startServer(t, w.api.Handler, nil)
	put := func(headers ...string) string {
		return fmt.Sprintf("PUT /producer/p HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\nContent-Length: "+
			"0\r\n%s\r\n\r\n", formHeader, strings.Join(headers, "\r\n"))
	}
	for _, origin := range []string{"http://evil.example", "null", "", "http://evil.example:8080",
		"https://localhost.evil.example", "http://localhost@evil.example", "http://evil.example@localhost",
		"file://localhost", "chrome-extension://localhost", "localhost", "http:localhost", "http://",
		"http://localhost http://evil.example", "http://local%68ost%00", "http://0.0.0.0:8080", "http://[::1"} {
		requireStatus(t, addr, put("Origin: "+origin), 403, "origin_not_allowed")
	}
	requireStatus(t, addr, put("Origin: http://localhost", "Origin: http://evil.example"), 403, "origin_not_allowed")
	requireStatus(t, addr, put("Sec-Fetch-Site: cross-site"), 403, "origin_not_allowed")
	requireStatus(t, addr, put("Origin: http://localhost", "Sec-Fetch-Site: cross-site"), 403, "origin_not_allowed")
	require.Nil(t, w.cat.Producer("p"), "nothing was stored")
	requireStatus(t, addr, put("Origin: https://broker.internal:8443", "Sec-Fetch-Site: same-origin"), 201, "Token")
	requireStatus(t, addr, put("Origin: http://LOCALHOST:3000", "Sec-Fetch-Site: same-site"), 200, "Token")
	requireStatus(t, addr, put("Sec-Fetch-Site: none"), 200, "Token")
}

// The check guards what is granted without a token, on every such route, and
// nothing else.
func TestTokensCountWhereverARequestComesFrom(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "pull")
	m := w.insert(durable.Message{Key: "m"})
	w.plan(durable.Scheduled{Message: durable.Message{Key: "s"}})
	const evil = "Origin: http://evil.example"
	for _, r := range Routes() {
		if r.Method == del {
			continue // TestDeletionNeedsWhatAPutNeeds
		}
		path := strings.Replace(example(r.Path), "/job/j", "/job/"+m.ID.Job(k.Position).String(), 1)
		body := formFor(path)
		if r.Body == 0 {
			body = ""
		}
		with := func(headers ...string) reply {
			w.t.Helper()
			return w.do(r.Method, path, body, append(headers, evil, formHeader)...)
		}
		switch r.Access {
		case AccessManagement, AccessOwn, AccessPublished, AccessJob:
			with().problem(403, "origin_not_allowed")
			with("X-Broker-Admin-Token: x").problem(403, "admin_token_mismatch")
			with(adminHeader).admitted(r.Path)
			if r.Access.forConsumers() {
				with(tokens("x")...).problem(403, "consumer_token_mismatch")
				with(tokens("k")...).admitted(r.Path)
			}
			if r.Access.forProducers() {
				with(append(producerTokens("p")[:2], "X-Broker-Producer-Token: x")...).problem(403, "producer_token_mismatch")
				with(producerTokens("p")...).admitted(r.Path)
			}
		case AccessOps:
			with().is(200)
		case AccessData:
			with().is(202)
		}
	}
}
