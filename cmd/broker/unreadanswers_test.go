package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Clients ask for a large message again and again and read nothing: 4 MiB in the store, 24 MiB as
// JSON. The memory of the broker stays within the bound, another producer and another consumer notice
// nothing, and all is as before once they are gone. (60 of them took 1.9 GB.)
func TestMemoryAnswersThatNobodyReadsHarmNobody(t *testing.T) {
	parallel(t)
	const unread, size, most = 120, 4 << 20, 400 // MiB
	w := embeddedWorld(t)
	w.program = plainProgram(t)
	p := w.start()
	p.t = t
	p.sample("k", "other")
	p.put("/producer/q", "token", "q-token")
	p.put("/channel/d", "token", "d-token")
	p.put("/channel/d/consumer/e", "token", "e-token", "type", "pull")
	others := []string{"X-Broker-Channel-Token", "d-token", "X-Broker-Producer-ID", "q", "X-Broker-Producer-Token",
		"q-token"}
	location := p.publish(strings.Repeat("\x01", size))
	before := p.memory("VmHWM")

	var open []net.Conn
	requests := []string{
		"GET " + location + " HTTP/1.1\r\nHost: b\r\n" + rawTokens + "\r\n",
		"GET /channel/c/consumer/k/queued-jobs HTTP/1.1\r\nHost: b\r\nX-Broker-Channel-Token: " +
			"c-token\r\nX-Broker-Consumer-Token: k-token\r\n\r\n",
		"GET /channel/c/consumer/other/queued-jobs HTTP/1.1\r\nHost: b\r\nX-Broker-Channel-Token: " +
			"c-token\r\nX-Broker-Consumer-Token: other-token\r\n\r\n",
	}
	for i := range unread {
		c := p.dial()
		require.NoError(t, c.SetReadBuffer(4<<10))
		_, err := io.WriteString(c, requests[i%len(requests)])
		require.NoError(t, err)
		open = append(open, c)
	}
	const held, refused = `penstock_share_held{bound="answers"}`, `penstock_share_refused_total{bound="answers"}`
	eventually(t, "the bound is reached", func() bool { return p.count(t, refused) > 0 })
	for i := range 50 {
		r := p.do("POST", "/channel/d/broadcast", fmt.Sprint(i), others...)
		require.Equal(t, 201, r.status, r.body)
		var page apitype.ClaimedJobs
		r = p.do("POST", "/channel/d/consumer/e/claim?wait=20s", "", "X-Broker-Channel-Token", "d-token",
			"X-Broker-Consumer-Token", "e-token")
		require.Equal(t, 200, r.status, r.body)
		require.NoError(t, json.Unmarshal([]byte(r.body), &page))
		require.Len(t, page.Result, 1)
		require.Equal(t, fmt.Sprint(i), page.Result[0].Message.Payload)
	}
	require.LessOrEqual(t, p.gauge(t, held), float64(answerBytes+answerBytes/8))
	grown := p.memory("VmHWM") - before
	t.Logf("%d unread answers: %d MiB before, %d MiB more at the peak", unread, before, grown)
	require.Less(t, grown, most, "MiB")

	for _, c := range open {
		require.NoError(t, c.Close())
	}
	eventually(t, "all is given back", func() bool { return p.gauge(t, held) == 0 })
	r := p.do(http.MethodGet, location, "", producerTokens...)
	require.Equal(t, 200, r.status)
	var m apitype.Message
	require.NoError(t, json.Unmarshal([]byte(r.body), &m))
	require.Len(t, m.Payload, size)
}
