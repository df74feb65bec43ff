package main

import (
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client opens more connections than a broker may have, and sends one byte on each. Others connect
// and are served, and so are probes and management from the address of the crowd itself.
func TestHostileConnectionsOfOneAddressLockNobodyOut(t *testing.T) {
	parallel(t)
	const files = 512 // 256 connections
	p := embeddedWorld(t).with(envFiles+"="+strconv.Itoa(files), "BROKER_PUSH_CONCURRENCY=32").start()
	p.sample("k")
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", p.base[len("http://"):])
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	crowd := func() {
		for range 300 {
			if _, err := io.WriteString(dial("127.0.0.77"), "G"); err != nil {
				t.Log("one of the crowd was ended:", err)
			}
		}
	}
	crowd()
	const probe, publish = "GET /livez HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n",
		"POST /channel/c/broadcast HTTP/1.1\r\nHost: b\r\nConnection: close\r\nContent-Length: 1\r\n" + rawTokens + "\r\nx"
	for range 10 {
		for _, from := range []string{"127.0.0.1", "127.0.0.77"} {
			c := dial(from)
			_, err := io.WriteString(c, probe)
			require.NoError(t, err)
			require.Contains(t, readRaw(c), "200 OK", from)
		}
		c := dial("127.0.0.2")
		_, err := io.WriteString(c, publish)
		require.NoError(t, err)
		require.Contains(t, readRaw(c), "201 Created")
	}
	require.LessOrEqual(t, p.gauge(t, `penstock_share_largest{bound="connections"}`),
		p.gauge(t, `penstock_share_most{bound="connections"}`)/2)
	require.Positive(t, p.gauge(t, `penstock_share_ended_total{bound="connections"}`))
}
