package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A broker that starts while Redis is away does what a running one does: it accepts, says so, and
// delivers when Redis comes.
func TestFaultABrokerStartedWithoutRedisAcceptsReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with(quick...)
	w.redis.Stop()
	p := w.start() // it is ready
	ready := p.do("GET", "/readyz", "")
	require.Equal(t, 200, ready.status)
	require.Equal(t, "unreachable", ready.json(t)["Queue"])
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Broker-Attempt") == "1" { // an answer may come too late, and the attempt is repeated
			got.Add(1)
		}
		rw.WriteHeader(204)
	}))
	t.Cleanup(server.Close)
	s := p.stage(t, "push="+server.URL, "pull")
	var all []string
	for range 20 {
		all = append(all, s.publish("early"))
	}
	require.Zero(t, got.Load())
	w.redis.Restart()
	for _, at := range all {
		eventually(t, "the delivery", func() bool { return strings.Contains(s.do("GET", at, "").body, `"DELIVERED"`) })
	}
	s.awaitQueued("pull", len(all))
	require.Equal(t, 0, p.stop())
	require.Contains(t, p.log.String(), "Redis is there")
	require.EqualValues(t, len(all), got.Load())
}

// A Redis that is there and does not take the broker is a mistake in the settings.
func TestARedisThatRefusesTheBrokerEndsTheStartReal(t *testing.T) {
	parallel(t)
	w := realWorld(t)
	p := w.launch("BROKER_REDIS_URL=" + strings.Replace(w.redis.URL(), "redis://", "redis://nobody:wrong@", 1))
	p.awaitEnd()
	require.Equal(t, exitStore, p.cmd.ProcessState.ExitCode())
}
