package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The log of the dashboard has the address that the audit log has, also behind a proxy.
func TestTheLogOfTheDashboardNamesTheClientBehindAProxy(t *testing.T) {
	var lines strings.Builder
	trusted, err := forwarded.Parse([]string{"127.0.0.0/8"})
	require.NoError(t, err)
	w := hiding(t, func(o *ui.Options) {
		o.Log, o.Client = slog.New(slog.NewTextHandler(&lines, nil)), trusted.Client
	})
	const from, own = "X-Forwarded-For: 192.0.2.1", "Origin: http://broker"
	w.press(w.page(onK+"pause", from).is(200).asks(), own, from).is(303)
	w.press(w.page(onM, from).is(200).asks(), own, from).is(200)
	require.Regexp(t, `msg="an action was done by the dashboard" .*address=192\.0\.2\.1 `, lines.String())
	require.Regexp(t, `msg="a payload was revealed" .*address=192\.0\.2\.1 raw=false\n`, lines.String())
	require.NotContains(t, lines.String(), "127.0.0.1")
}

// Each client behind a trusted proxy has a share of its own.
func TestTheShareOfAManagerIsThatOfTheClientBehindAProxy(t *testing.T) {
	w := tokenWorld(t, func(o *Options) { o.Proxies, _ = forwarded.Parse([]string{"127.0.0.0/8"}) })
	token, id := w.token("management:read")
	manager := share.Management(netip.MustParseAddr("192.0.2.1"))
	for name, admit := range map[string]func(rc *fasthttp.RequestCtx) error{
		"admin": w.api.checkAdmin,
		"open": func(rc *fasthttp.RequestCtx) error {
			w.api.o.OpenManagement = true
			defer func() { w.api.o.OpenManagement = false }()
			return w.api.admitReader(t.Context(), rc, AccessManagement)
		},
		"API token": func(rc *fasthttp.RequestCtx) error {
			rc.Request.Header.Set("Authorization", "Bearer "+token)
			rc.Request.Header.Del("X-Broker-Admin-Token")
			rc.SetUserValue(routeKey, routeNamed("GET /channels"))
			return w.api.admitReader(t.Context(), rc, AccessManagement)
		},
	} {
		var req fasthttp.Request
		req.Header.SetMethod("GET")
		req.SetRequestURI("/channels")
		req.Header.SetHost("broker")
		req.Header.Set("X-Broker-Admin-Token", adminToken)
		req.Header.Set("X-Forwarded-For", "192.0.2.1")
		var rc fasthttp.RequestCtx
		rc.Init(&req, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil)
		require.NoError(t, admit(&rc), name)
		want := manager
		if name == "API token" {
			want = share.Token("API token " + id)
		}
		require.Equal(t, want, answer.KeyOf(&rc), name)
		require.Equal(t, manager, w.api.manager(&rc), name)
	}
}

// A body counts as that of whoever was admitted. Nobody takes the part of managers with it, who share an address
// with him: neither without a token, nor with that of a consumer, nor with an API token.
func TestABodyCountsAsThatOfWhoeverWasAdmitted(t *testing.T) {
	w := tokenWorld(t, func(o *Options) { o.Proxies, _ = forwarded.Parse([]string{"127.0.0.0/8"}) })
	token, id := w.token("management:write")
	client := netip.MustParseAddr("192.0.2.1")
	k := w.api.o.Catalogue.Consumer("c", "k")
	for name, c := range map[string]struct {
		access  Access
		headers []string
		want    share.Key
	}{
		"a form":       {AccessForm, nil, share.Address(client)},
		"a login":      {AccessUI, nil, share.Address(client)},
		"the admin":    {AccessManagement, []string{adminHeader}, share.Management(client)},
		"an owner":     {AccessOwn, tokens("k"), share.Consumer(k.No)},
		"a receiver":   {AccessReceiver, tokens("k"), share.Consumer(k.No)},
		"a consumer":   {AccessConsumer, tokens("k"), share.Consumer(k.No)},
		"a re-trigger": {AccessRetrigger, []string{adminHeader}, share.Management(client)},
		"an API token": {AccessManagement, []string{bearer(token)}, share.Token("API token " + id)},
	} {
		var req fasthttp.Request
		req.Header.SetMethod("POST")
		req.SetRequestURI("/channel/c/consumer/k/dlq")
		req.Header.SetHost("broker")
		req.Header.Set("X-Forwarded-For", client.String())
		for _, h := range c.headers {
			of, value, _ := strings.Cut(h, ": ")
			req.Header.Set(of, value)
		}
		var rc fasthttp.RequestCtx
		rc.Init(&req, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil)
		body := strings.Repeat("x", 50_000)
		rc.Request.SetBodyStream(strings.NewReader(body), len(body))
		rc.SetUserValue("channel", "c")
		rc.SetUserValue("consumer", "k")
		served := false
		w.api.handler(Route{Method: post, Path: "/channel/{channel}/consumer/{consumer}/dlq", Access: c.access,
			Body: maxPosted, serve: func(a *API, _ context.Context, rc *fasthttp.RequestCtx) error {
				served = true
				require.Len(t, rc.Request.Body(), len(body), name)
				require.GreaterOrEqual(t, a.o.Bodies.Held(c.want), int64(len(body)), name)
				return nil
			}})(&rc)
		require.True(t, served, "%s: %s", name, rc.Response.Body())
		require.Zero(t, w.api.o.Bodies.Taken(), name)
	}
}

// Failed logins, from however many addresses, close the dashboard to nobody else.
func TestFailedLoginsOfManyAddressesLeaveRoomForOthers(t *testing.T) {
	trusted, err := forwarded.Parse([]string{"127.0.0.0/8"})
	require.NoError(t, err)
	w := hiding(t, func(o *ui.Options) { o.Client = trusted.Client })
	login := func(from, token string) reply {
		return w.do("POST", "/ui/login", "token="+token, formHeader, "X-Forwarded-For: "+from)
	}
	for i := range 40 {
		from := fmt.Sprintf("192.0.2.%d", i)
		for range 10 {
			login(from, "wrong").is(403)
		}
		login(from, adminToken).is(429)
	}
	login("198.51.100.1", adminToken).is(303)
}
