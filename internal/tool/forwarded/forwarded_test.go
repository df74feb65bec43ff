package forwarded_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/forwarded"
)

func client(t *testing.T, trusted []string, peer string, lines ...string) string {
	t.Helper()
	networks, err := forwarded.Parse(trusted)
	require.NoError(t, err)
	var rq fasthttp.Request
	for _, line := range lines {
		rq.Header.Add("X-Forwarded-For", line)
	}
	var rc fasthttp.RequestCtx
	rc.Init(&rq, &net.TCPAddr{IP: net.ParseIP(peer)}, nil)
	return networks.Client(&rc).String()
}

func TestTheHeaderCountsOnlyFromTrustedProxies(t *testing.T) {
	lan := []string{"10.0.0.0/8", "2001:db8::1"}
	for _, c := range []struct {
		trusted []string
		peer    string
		lines   []string
		want    string
	}{
		{nil, "10.0.0.1", []string{"192.0.2.1"}, "10.0.0.1"},
		{lan, "192.0.2.9", []string{"192.0.2.1"}, "192.0.2.9"},
		{lan, "10.0.0.1", nil, "10.0.0.1"},
		{lan, "10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{lan, "10.0.0.1", []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"}, // the left one is what the client says
		{lan, "10.0.0.1", []string{"198.51.100.7, 192.0.2.1, 10.3.3.3"}, "192.0.2.1"},
		{lan, "10.0.0.1", []string{"198.51.100.7", "192.0.2.1", "10.3.3.3"}, "192.0.2.1"},
		{lan, "10.0.0.1", []string{"10.1.1.1, 10.2.2.2"}, "10.1.1.1"},
		{lan, "10.0.0.1", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{lan, "2001:db8::1", []string{"[2001:db8::9]:80"}, "2001:db8::9"},
		{lan, "2001:db8::1", []string{"[2001:db8::9]"}, "2001:db8::9"},
		{lan, "2001:db8::2", []string{"192.0.2.1"}, "2001:db8::2"},
		{lan, "::ffff:10.0.0.1", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{lan, "10.0.0.1", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{lan, "10.0.0.1", []string{"192.0.2.1, unknown, 10.4.4.4"}, "10.4.4.4"},
		{lan, "10.0.0.1", []string{""}, "10.0.0.1"},
		{lan, "10.0.0.1", []string{strings.Repeat("x", 1<<16)}, "10.0.0.1"},
		{lan, "10.0.0.1", []string{"192.0.2.1," + strings.Repeat("10.0.0.9,", 1000) + "10.0.0.9"}, "10.0.0.9"},
	} {
		require.Equal(t, c.want, client(t, c.trusted, c.peer, c.lines...), "%s %q", c.peer, c.lines)
	}
}

func TestANetworkIsWrittenAsOne(t *testing.T) {
	_, err := forwarded.Parse([]string{"10.0.0.0/8", " 192.0.2.1 ", "2001:db8::/32"})
	require.NoError(t, err)
	for _, wrong := range []string{"", "10.0.0.0/33", "proxy.example", "10.0.0", "fe80::1%eth0", "::ffff:10.0.0.1"} {
		_, err := forwarded.Parse([]string{wrong})
		require.Error(t, err, wrong)
	}
}
