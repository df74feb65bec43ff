package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var serviceLinks = []string{
	"BROKER_SERVICE_HOST=10.96.0.11", "BROKER_SERVICE_PORT=8080", "BROKER_SERVICE_PORT_HTTP=8080",
	"BROKER_SERVICE_PORT_FILE=8080",
	"BROKER_PORT=tcp://10.96.0.11:8080", "BROKER_PORT_8080_TCP=tcp://10.96.0.11:8080", "BROKER_PORT_8080_TCP_PROTO=tcp",
	"BROKER_PORT_8080_TCP_PORT=8080", "BROKER_PORT_8080_TCP_ADDR=10.96.0.11",
	"BROKER_MYSQL_SERVICE_HOST=fd00::11", "BROKER_MYSQL_SERVICE_PORT=3306", "BROKER_MYSQL_SERVICE_PORT_MYSQL_ADMIN=33062",
	"BROKER_MYSQL_PORT=tcp://[fd00::11]:3306", "BROKER_MYSQL_PORT_3306_TCP=tcp://[fd00::11]:3306",
	"BROKER_MYSQL_PORT_3306_TCP_PROTO=tcp",
	"BROKER_MYSQL_PORT_3306_TCP_PORT=3306", "BROKER_MYSQL_PORT_3306_TCP_ADDR=fd00::11",
	"BROKER_2_DNS_PORT_53_UDP=udp://10.0.0.1:53", "BROKER_2_DNS_PORT_53_UDP_PROTO=udp",
}

func TestServiceLinksOfKubernetesAreNoSettings(t *testing.T) {
	c, err := readConfig(append([]string{"BROKER_LOG_LEVEL=warn"}, serviceLinks...))
	require.NoError(t, err)
	require.Equal(t, "warn", c.LogLevel)
	var names []string
	for _, line := range serviceLinks {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	require.Equal(t, names, c.serviceLinks)
}

func TestWhatOnlyLooksLikeAServiceLinkIsAMistake(t *testing.T) {
	for _, line := range []string{
		"BROKER_PORT=8080", "BROKER_PORT=", "BROKER_PORT=http://10.0.0.1:80", "BROKER_PORT=tcp://broker:80",
		"BROKER_PORT=tcp://10.0.0.1",
		"BROKER_PORT=tcp://10.0.0.1:80/x", "BROKER_HOST=10.0.0.1", "BROKER_SERVICE=10.0.0.1", "BROKER_SERVICE_HOST=broker",
		"BROKER_SERVICE_HOST=",
		"BROKER_SERVICE_PORT=http", "BROKER_SERVICE_PORT=70000", "BROKER_SERVICE_PORT_http=80",
		"BROKER_PORT_8080=tcp://10.0.0.1:8080",
		"BROKER_PORT_8080_TCP=tcp://10.0.0.1:9090", "BROKER_PORT_8080_TCP=udp://10.0.0.1:8080",
		"BROKER_PORT_8080_TCP_PORT=9090",
		"BROKER_PORT_8080_TCP_PROTO=udp", "BROKER_PORT_8080_TCP_ADDR=x", "BROKER_PORT_8080_TCP_NAME=x", "BROKER_LISTN=:80",
		"BROKERSERVICE_SERVICE_HOSTS=1",
		"BROKER__SERVICE_HOST2=10.0.0.1", "BROKER_LISTEN_PORT=8080", "BROKER_SERVICE_PORT_FILE=/run/secrets/x",
	} {
		_, err := readConfig([]string{line})
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "BROKER_") {
			require.NoError(t, err, line)
			continue
		}
		require.ErrorContains(t, err, name, line)
	}
}

func TestServiceLinksArePassedOverWithOneLine(t *testing.T) {
	p := embeddedWorld(t).start(serviceLinks...)
	require.Equal(t, 1, strings.Count(p.log.String(), "passed over"))
	require.Contains(t, p.log.String(), "BROKER_MYSQL_PORT_3306_TCP_ADDR")
}
