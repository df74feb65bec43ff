package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A consumer may take ten minutes, and a stop waits for as long as the installation says. The job of the
// request that is cut is sent again soon, by whatever broker there is.
func TestAStopDoesNotWaitForTheTimeoutOfAConsumer(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		w.with("BROKER_DRAIN_TIMEOUT=500ms", "BROKER_RETRY_BACKOFF=50ms", "BROKER_RATIONAL_DELAY=500ms")
		p := w.start()
		var requests atomic.Int32
		over := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if requests.Add(1) == 1 {
				<-over
			}
			rw.WriteHeader(204)
		}))
		t.Cleanup(server.Close)
		t.Cleanup(func() { close(over) })
		s := p.stage(t)
		s.put(s.path("/consumer/k"), "token", "k-token", "callbackUrl", server.URL, "timeout", "10m")
		at := s.publish("slow")
		eventually(t, "the request", func() bool { return requests.Load() == 1 })
		require.Equal(t, 0, p.stop())
		require.Contains(t, p.log.String(), "their requests are cut")
		s.on(w.start()).awaitStatus(at, "DELIVERED")
		require.EqualValues(t, 2, requests.Load())
	})
}

// A stop waits for an answer that comes in time.
func TestAStopWaitsForAnswersInItsTime(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t).with("BROKER_DRAIN_TIMEOUT=1h")
	p := w.start()
	arrived, answer := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			close(arrived)
		}
		<-answer
		rw.WriteHeader(204)
	}))
	t.Cleanup(server.Close)
	free := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(free)
	s := p.stage(t, "k="+server.URL)
	at := s.publish("slow")
	<-arrived
	ended := make(chan int)
	go func() { ended <- p.stop() }()
	eventually(t, "the listener to close", func() bool {
		_, err := p.try("GET", "/livez", "")
		return err != nil
	})
	free()
	require.Equal(t, 0, <-ended)
	s.on(w.start()).awaitStatus(at, "DELIVERED")
	require.EqualValues(t, 1, requests.Load())
}

// A batch that never ends, and is sent all the time, holds a stop no longer than the setting says.
func TestAStopDoesNotWaitForABodyWithoutAnEnd(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).with("BROKER_DRAIN_TIMEOUT=100ms", "BROKER_DELIVERY_TIMEOUT=1h").start()
	p.sample("k")
	conn := p.dial()
	_, err := io.WriteString(conn, batchHead+"Transfer-Encoding: chunked\r\n\r\n")
	require.NoError(t, err)
	go func() {
		for err == nil {
			const line = `{"Payload":"p"}` + "\n"
			_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n", len(line), line)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	line, readErr := bufio.NewReader(readHTTP(t, conn)).ReadString('\n')
	require.NoError(t, readErr)
	require.Contains(t, line, `"Status":201`)
	require.Equal(t, 0, p.stop())
}
