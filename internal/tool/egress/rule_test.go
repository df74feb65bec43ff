package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ask sends a GET under a rule.
func ask(t testing.TB, c *Client, rule Rule, url string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := c.Web(rule).Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return resp, err
}

func TestThisProcessIsDialledForCallbacksOnly(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0"} {
		t.Run(listen, func(t *testing.T) {
			l, err := net.Listen("tcp", listen)
			if err != nil {
				require.True(t, strings.HasPrefix(listen, "[::1]"), "%v", err)
				return // a machine without IPv6
			}
			var conns atomic.Int32
			srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler(),
				ConnState: func(_ net.Conn, s http.ConnState) {
					if s == http.StateNew {
						conns.Add(1)
					}
				}}}
			srv.Start()
			t.Cleanup(srv.Close)
			everywhere := policy(t, "private", "0.0.0.0/0", "::/0")
			c := client(t, func(o *Options) { o.Policy, o.Fetch = everywhere, everywhere }, always("127.0.0.1", "::1"))
			c.Listens(l.Addr())
			p := port(t, l)
			for _, host := range []string{"127.0.0.1", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::]", "[::1]",
				"[::ffff:127.0.0.1]", "own.example", "OWN.example."} {
				for _, rule := range []Rule{Configured, ByUsers} {
					_, err := ask(t, c, rule, "http://"+host+":"+p+"/")
					require.Error(t, err, "%s under rule %d", host, rule)
				}
				for _, protocol := range []string{"", "h2"} {
					target, err := c.Target(Configured, "http://"+host+":"+p+"/", protocol)
					require.NoError(t, err)
					require.Error(t, postTo(target, "x", 10*time.Second).Err, "%s %s", host, protocol)
				}
			}
			require.Zero(t, conns.Load())
			host := map[bool]string{true: "[::1]", false: "127.0.0.1"}[listen == "[::1]:0"]
			require.Equal(t, 404, post(t, c, "http://"+host+":"+p+"/", "", "x", 10*time.Second).Status,
				"a callback may lead to a channel of this broker")
			other := saying(t, says("200 OK", "ok"))
			require.True(t, post(t, c, other.url(), "", "x", 10*time.Second).OK())
			_, err = ask(t, c, ByUsers, other.url())
			require.NoError(t, err, "another port of the same machine is another program")
		})
	}
}

// The check of a connection is not enough where connections are kept: the second request is made
// without a dial.
func TestRulesShareNoConnections(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	c := client(t, func(o *Options) { o.Fetch = policy(t, "public") })
	_, err := ask(t, c, Configured, srv.URL)
	require.NoError(t, err)
	_, err = ask(t, c, ByUsers, srv.URL)
	require.ErrorIs(t, err, ErrForbidden)
	c.Listens(srv.Listener.Addr())
	require.Equal(t, 404, post(t, c, srv.URL, "", "x", 10*time.Second).Status)
	target, err := c.Target(Configured, srv.URL, "")
	require.NoError(t, err)
	require.ErrorIs(t, postTo(target, "x", 10*time.Second).Err, ErrForbidden)
}

func TestAnAddressThatContainsAnAddressOfThisProcessIsOne(t *testing.T) {
	c := client(t)
	c.Listens(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 81}, &net.TCPAddr{Port: 82})
	for at, want := range map[string]bool{
		"127.0.0.1:81": true, "127.0.0.2:81": false, "127.0.0.1:80": false, "0.0.0.0:81": true, "[::]:81": true,
		"[::ffff:127.0.0.1]:81": true, "[64:ff9b::7f00:1]:81": true, "[2002:7f00:1::]:81": true, "[::127.0.0.1]:81": true,
		"127.0.0.2:82": true, "[::1]:82": true, "192.0.2.1:82": false, "[64:ff9b::7f00:2]:82": true,
	} {
		require.Equal(t, want, c.dialer.own.has(netip.MustParseAddrPort(at)), at)
	}
}

func TestRequestsSayThatABrokerMadeThem(t *testing.T) {
	heads := make(chan http.Header, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h := r.Header.Clone()
		h.Set("Host", r.Host)
		heads <- h
	}))
	t.Cleanup(srv.Close)
	c := client(t, always("127.0.0.1"))
	host := "Some.Example.:" + port(t, srv.Listener)
	_, err := ask(t, c, ByUsers, "http://"+host+"/x")
	require.NoError(t, err, "capitals and a final dot name the same host")
	h := <-heads
	require.Equal(t, "Penstock/test", h.Get("User-Agent"))
	require.NotEmpty(t, h.Get(MadeByBroker))
	require.Equal(t, host, h.Get("Host"), "it is sent as it was written")
}

func TestOriginsAreComparedInOneSpelling(t *testing.T) {
	for _, same := range [][2]string{
		{"http://Example.com./a", "http://example.com:80/b?c"}, {"https://example.com", "HTTPS://EXAMPLE.COM:443/"},
		{"http://127.1/", "http://[::ffff:127.0.0.1]/"}, {"http://[2001:DB8:0::1]:080/", "http://[2001:db8::1]/"},
	} {
		require.NotEmpty(t, Origin(same[0]))
		require.Equal(t, Origin(same[0]), Origin(same[1]))
	}
	for _, differ := range [][2]string{
		{"http://example.com", "https://example.com"}, {"http://example.com", "http://example.com:81"}, {"http://example.com",
			"http://www.example.com"},
		{"http://example.com", "http://example.com.evil.example"}, {"http://[::1]", "http://127.0.0.1"},
	} {
		require.NotEqual(t, Origin(differ[0]), Origin(differ[1]))
	}
	for _, none := range []string{"", "/x", "ftp://h/", "http://h@evil.example/", "http://", "http://a..b/"} {
		require.Empty(t, Origin(none), none)
	}
}

func TestTheSpellingsOfOneURLAreOne(t *testing.T) {
	for plain, others := range map[string][]string{
		"https://idp.example/token": {"HTTPS://idp.example/token", "https://IDP.Example/token",
			"https://idp.example./token", "https://idp.example:443/token", "https://IDP.EXAMPLE.:0443/token"},
		"http://idp.example/":          {"http://idp.example", "http://idp.example:80", "http://Idp.Example.:80/"},
		"http://idp.example/?a=B":      {"http://idp.example?a=B"},
		"https://idp.example:80/t":     {"https://IDP.example:080/t"},
		"http://[2001:db8::1]/t":       {"http://[2001:DB8:0::1]:80/t"},
		"http://[2001:db8::80]:8080/t": {"http://[2001:DB8:0::80]:8080/t"},
		"http://127.0.0.1/t":           {"http://127.1:80/t", "http://[::ffff:127.0.0.1]/t"},
		"http://h/A%2fb":               {"http://H/A%2fb"},
	} {
		require.Equal(t, plain, Plain(plain))
		for _, other := range others {
			require.Equal(t, plain, Plain(other))
		}
	}
	for _, differ := range [][2]string{
		{"http://h/a", "http://h/A"}, {"http://h/a", "http://h/a/"}, {"http://h/a", "https://h/a"},
		{"http://h/a", "http://h/a?"}, {"http://h:443/", "https://h:443/"}, {"http://h/%61", "http://h/a"},
	} {
		require.NotEqual(t, Plain(differ[0]), Plain(differ[1]))
	}
	require.Equal(t, "no URL", Plain("no URL"))
}
