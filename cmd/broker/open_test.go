package main

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestManagementIsOpenWithoutAnAdminTokenUnderTheBrokersNamesOnly(t *testing.T) {
	parallel(t)
	closed := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=")
	requireProblem(t, closed.do("GET", "/producers", ""), 401, "token_missing")
	require.Equal(t, 200, closed.do("GET", "/producers", "", "X-Broker-Admin-Token", adminToken).status)

	open := embeddedWorld(t).start("BROKER_OPEN_MANAGEMENT=", "BROKER_ADMIN_TOKEN=", "BROKER_ALLOWED_HOSTS=broker.lan")
	require.Equal(t, 200, open.do("GET", "/producers", "").status)
	require.NotContains(t, open.log.String(), "beyond loopback")
	get := func(host string) string {
		return rawExchange(t, open, "GET /producers HTTP/1.1\r\nConnection: close\r\nHost: "+host+"\r\n\r\n")
	}
	require.Contains(t, get("evil.example"), "host_not_allowed")
	require.Contains(t, get("broker.lan:8080"), "Result")
}

func TestABrokerWarnsOfManagementThatIsOpenBeyondLoopback(t *testing.T) {
	parallel(t)
	_, port, err := net.SplitHostPort(freeAddr(t))
	require.NoError(t, err)
	p := embeddedWorld(t).launch("BROKER_LISTEN=0.0.0.0:"+port, "BROKER_OPEN_MANAGEMENT=true")
	p.base = "http://127.0.0.1:" + port
	p.awaitReady()
	require.Equal(t, 1, strings.Count(p.log.String(), "management is open beyond loopback"))
	require.Equal(t, 200, p.do("GET", "/producers", "").status)
}
