package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
)

// memory returns a line of the process's status in the kernel, MiB: VmRSS is what
// it has, VmHWM the most it ever had.
func (p *process) memory(line string) int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	_, rest, found := strings.Cut(string(text), "\n"+line+":")
	require.True(p.t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(p.t, err)
	return kib / 1024
}

// Clients without a token send the largest body to every route at once. None
// of it gets memory: at no time does the broker hold more than the buffers of
// its connections. (300 of these took 1.2 GB when bodies were read first.) The broker
// runs without the race detector, whose shadow memory varies with the schedule.
func TestMemoryHostileBodiesWithoutATokenTakeNone(t *testing.T) {
	parallel(t)
	const each, size = 8, 4 << 20
	w := embeddedWorld(t).with("BROKER_OPEN_MANAGEMENT=false", "BROKER_ALLOW_DELETE=true")
	w.program = plainProgram(t)
	p := w.start()
	p.t = t
	for _, path := range []string{"/producer/p", "/channel/c"} {
		r := p.do("PUT", path, "token=x", "Content-Type", formType, "X-Broker-Admin-Token", adminToken)
		require.Equal(t, 201, r.status, r.body)
	}
	r := p.do("PUT", "/channel/c/consumer/k", "token=x&type=pull", "Content-Type", formType, "X-Broker-Admin-Token",
		adminToken)
	require.Equal(t, 201, r.status, r.body)
	before := p.memory("VmHWM")

	body := make([]byte, size)
	names := strings.NewReplacer("{producer}", "p", "{group}", "g", "{channel}", "c", "{consumer}", "k", "{message}", "m",
		"{scheduled}", "m", "{bulk}", "06gvk862do0000000010", "{job}", "06gvk862do0000000010", "{link}", "no-link",
		"{replay}", "7", "{redrive}", "7", "{receipt}", "r", "{key}", "K", "{token}", "T", "{action}", "pause")
	var clients sync.WaitGroup
	connections := 0
	for _, r := range api.Routes() {
		for i := range each {
			connections++
			head := r.Method + " " + names.Replace(r.Path) + " HTTP/1.1\r\nHost: b\r\nContent-Type: " + formType + "\r\n"
			clients.Go(func() {
				answer, err := sendAll(strings.TrimPrefix(p.base, "http://"), head, body, i%2 == 0)
				for try := 0; err == nil && answer.busy() && try < busyRepeats; try++ {
					time.Sleep(time.Second)
					answer, err = sendAll(strings.TrimPrefix(p.base, "http://"), head, body, i%2 == 0)
				}
				status := answer.status
				refused := status == 401 || status == 403 || status == 413 || status == 410 &&
					strings.HasSuffix(r.Path, "{link}") || status == 404 && strings.HasSuffix(r.Path, "{receipt}")
				if err != nil || !refused {
					t.Errorf("%s %s: %d, %v", r.Method, r.Path, status, err)
				}
			})
		}
	}
	clients.Wait()
	require.Greater(t, connections, 200)
	grown := p.memory("VmHWM") - before
	t.Logf("%d connections with %d MiB each: %d MiB before, %d MiB more at the peak", connections, size>>20, before, grown)
	require.Less(t, grown, 96, "MiB")
}

// sendAll sends a request with its whole body, in one piece or in chunks, and
// returns the answer.
func sendAll(addr, head string, body []byte, chunked bool) (reply, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return reply{}, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() { // what is refused may be cut off
		defer close(sent)
		if !chunked {
			_, _ = io.WriteString(c, head+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n")
			_, _ = c.Write(body)
			return
		}
		_, _ = fmt.Fprintf(c, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n", head, len(body))
		_, _ = c.Write(body)
		_, _ = io.WriteString(c, "\r\n0\r\n\r\n")
	}()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	var text []byte
	if err == nil {
		text, _ = io.ReadAll(io.LimitReader(answer.Body, 64<<10)) // cut off where our body was: the status counts
	}
	_ = c.Close()
	<-sent
	if err != nil {
		return reply{}, err
	}
	return reply{answer.StatusCode, answer.Header, string(text)}, nil
}

// A run of the largest messages through every route that shows payloads: pushed to
// a consumer, claimed and listed by several workers at once, and read one by one.
// Memory is bounded by what the broker holds at once, not by what it has stored, and
// goes back. The peaks are about twice of what is in use: half is garbage. The broker
// runs without the race detector, which would keep memory of its own; without the
// bounds a list alone takes 4 GiB.
func TestMemoryOfLargeMessagesIsBounded(t *testing.T) {
	parallel(t)
	plain := plainProgram(t)
	t.Run("text", func(t *testing.T) { largeMessages(t, plain, "x", 1, 700) })
	t.Run("text that JSON makes six times as long", func(t *testing.T) { largeMessages(t, plain, "\x01", 6, 1400) })
}

// largeMessages is a run with payloads that repeat a byte, which is that long in
// JSON; limit is the peak that is allowed, MiB.
func largeMessages(t *testing.T, program, with string, long, limit int) {
	const messages, size, workers = 60, 4 << 20, 4
	sink := newSink(t, func(int, received) int { return 200 })
	w := embeddedWorld(t)
	w.program = program
	p := w.start()
	s := p.stage(t, "pull", "push="+sink.URL)
	body := strings.Repeat(with, size)
	phase := func(name string, f func()) {
		t.Helper()
		// VmHWM begins anew
		require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0))
		f()
		t.Logf("%s: %d MiB at the peak", name, p.memory("VmHWM"))
		require.Less(t, p.memory("VmHWM"), limit, name+", MiB")
	}
	phase("idle", func() {})
	paths := make([]string, messages)
	phase("publish and push", func() {
		for i := range paths {
			paths[i] = s.publish(body)
		}
		eventually(t, "all to be pushed", func() bool { return sink.count() >= messages })
	})
	each := func(f func(n int)) {
		var all sync.WaitGroup
		for n := range workers {
			all.Go(func() { f(n) })
		}
		all.Wait()
	}
	phase("list", func() {
		each(func(int) {
			r, err := p.try("GET", s.path("/consumer/pull/queued-jobs?limit=100"), "", consumerTokens("pull")...)
			if err != nil || r.status != 200 || len(r.body) > max(8<<20, long*size)+1<<20 {
				t.Errorf("list: %d, %d bytes, %v", r.status, len(r.body), err)
			}
		})
	})
	phase("message", func() {
		each(func(n int) {
			for i := n; i < messages; i += workers {
				r, err := p.try("GET", paths[i], "", "X-Broker-Admin-Token", adminToken)
				if err != nil || r.status != 200 || len(r.body) < long*size {
					t.Errorf("message: %d, %d bytes, %v", r.status, len(r.body), err)
				}
			}
		})
	})
	var claimed atomic.Int64
	phase("claim", func() {
		each(func(int) {
			for claimed.Load() < messages {
				r, err := p.try("POST", s.path("/consumer/pull/claim?limit=500&timeout=600"), "", consumerTokens("pull")...)
				if err != nil || r.status != 200 || len(r.body) > max(8<<20, long*size)+1<<20 {
					t.Errorf("claim: %d, %d bytes, %v", r.status, len(r.body), err)
					return
				}
				claimed.Add(int64(strings.Count(r.body, `"Lease":`)))
			}
		})
	})
	require.EqualValues(t, messages, claimed.Load(), "each once")
	eventually(t, "memory to go back", func() bool { return p.memory("VmRSS") < 450 })
	t.Logf("after it: %d MiB", p.memory("VmRSS"))
}
