package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hasty is a broker in this process whose timeouts for clients are short.
func hasty(t *testing.T, read, idle time.Duration) *process {
	w := embeddedWorld(t)
	addr := freeAddr(t)
	cfg, err := readConfig(append(w.env, "BROKER_LISTEN="+addr))
	require.NoError(t, err)
	b, err := openBroker(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	b.server.ReadTimeout, b.server.IdleTimeout, b.server.MaxIdleWorkerDuration = read, idle, read
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		b.close()
	})
	p := &process{t: t, base: "http://" + addr, log: &syncBuffer{}}
	eventually(t, "the broker to be ready", func() bool {
		r, err := p.try("GET", "/readyz", "")
		return err == nil && r.status == http.StatusOK
	})
	return p
}

// Clients that say nothing, or drip their headers or bodies, are ended by the
// timeouts and leave no goroutine and no descriptor behind; everybody else is
// served meanwhile. Not parallel: goroutines are counted in this process.
func TestHostileIdleAndDrippingClientsAreEnded(t *testing.T) {
	const each = 200
	p := hasty(t, time.Second, time.Second)
	s := p.stage(t)
	s.persist("before")
	addr := strings.TrimPrefix(p.base, "http://")
	post := "POST " + s.path("/broadcast") + " HTTP/1.1\r\nHost: b\r\n"
	kinds := map[string]string{
		"silent":               "",
		"kept after an answer": "GET /livez HTTP/1.1\r\nHost: b\r\n\r\n",
		"dripping headers":     post + "X-A: ",
		"dripping a body":      post + rawTokens + "Content-Length: 60000\r\n\r\n",
		"dripping a chunk":     post + rawTokens + "Transfer-Encoding: chunked\r\n\r\n8000\r\n",
		"dripping, no tokens":  post + "Content-Length: 60000\r\n\r\n",
	}
	baseline := p.resources()[:2] // the memory is also the test's
	crowds := map[string]*crowd{}
	for kind, text := range kinds {
		c := newCrowd()
		defer c.close()
		require.NoError(t, c.add(addr, each, text))
		if strings.HasPrefix(kind, "dripping") {
			c.drip(c.conns, 100*time.Millisecond)
		}
		crowds[kind] = c
	}
	var over atomic.Bool
	served := make(chan int, 1)
	go func() {
		n := 0
		for ; !over.Load(); n++ {
			if r, err := p.ask("POST", s.path("/broadcast"), "x", producerTokens...); err != nil || r.status != 201 {
				t.Errorf("a healthy producer: %v %d %s", err, r.status, r.body)
				break
			}
		}
		served <- n
	}()
	for kind, c := range crowds {
		for _, conn := range c.conns {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
			answer, err := io.ReadAll(conn) // to its end: the broker closes, or resets what still drips
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, fmt.Sprintf("%s: %s", kind, answer))
			require.NotContains(t, string(answer), "HTTP/1.1 201", kind)
		}
	}
	over.Store(true)
	require.Positive(t, <-served)
	for _, c := range crowds {
		for _, conn := range c.conns {
			_ = conn.Close()
		}
	}
	client.CloseIdleConnections()
	p.awaitResources(baseline)
}
