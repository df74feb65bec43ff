package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// publishers publish to the channel c until stop is closed, and keep what was acknowledged.
type publishers struct {
	mu    sync.Mutex
	acked []string
	done  sync.WaitGroup
	stop  chan struct{}
}

func startPublishers(p *process, n int) *publishers {
	load := &publishers{stop: make(chan struct{})}
	for i := range n {
		load.done.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-load.stop:
					return
				default:
				}
				id := fmt.Sprintf("m-%d-%d", i, j)
				if r := p.broadcast(id, "X-Broker-Message-ID", id); r.status == 201 {
					load.mu.Lock()
					load.acked = append(load.acked, id)
					load.mu.Unlock()
				}
			}
		})
	}
	return load
}

// soFar returns what was acknowledged.
func (l *publishers) soFar() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.acked)
}

func (l *publishers) end() {
	close(l.stop)
	l.done.Wait()
}

// A backup that is taken in the middle of a load has all that was acknowledged before it: some of it is
// delivered then, the rest waits. The restored broker has all of it, and delivers what waits, alone.
func TestABackupUnderLoadIsRestoredWithAllThatWasAcknowledgedBefore(t *testing.T) {
	parallel(t)
	w := emptyWorld(t)
	dir, file := w.setting("BROKER_DATA_DIR"), filepath.Join(t.TempDir(), "copy.db")
	sink := newSink(t, nil)
	p := w.start()
	p.sample("k=" + sink.URL)
	for i := range 20 {
		require.Equal(t, 201, p.broadcast(fmt.Sprintf("early-%d", i)).status)
	}
	eventually(t, "the first deliveries", func() bool { return sink.distinct() == 20 })
	eventually(t, "their outcomes", func() bool { return p.unfinished(t) == 0 })
	require.Equal(t, 200, p.do("POST", "/channel/c/consumer/k/pause", "").status)
	load := startPublishers(p, 4)
	eventually(t, "a load", func() bool { return len(load.soFar()) > 200 })
	before := load.soFar()
	code, said := w.backup(file)
	require.Zero(t, code, said)
	after := len(load.soFar())
	eventually(t, "more load", func() bool { return len(load.soFar()) > after+50 })
	code, _, stderr := w.command("restore", "--force", file)
	require.Equal(t, exitStore, code)
	require.Contains(t, stderr, "stop it first")
	load.end()
	late := p.broadcast("late", "X-Broker-Message-ID", "late")
	require.Equal(t, 201, late.status)
	p.kill()

	code, _, stderr = w.command("restore", file)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--force")
	damaged := filepath.Join(t.TempDir(), "damaged")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(damaged, text[:len(text)/2], 0o600))
	code, _, stderr = w.command("restore", "--force", damaged)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "nothing was changed")
	p = w.start()
	require.Equal(t, 200, p.do("GET", "/channel/c/message/late", "").status, "a refused restore changes nothing")
	p.kill()

	code, stdout, stderr := w.command("restore", "--force", file)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "the store that was there is "+filepath.Join(dir, "penstock.db.replaced-"))
	p = w.start()
	require.NotContains(t, p.do("GET", "/readyz", "").body, "Warning", "who restores a copy knows that it is older")
	require.Equal(t, 404, p.do("GET", "/channel/c/message/late", "").status)
	require.Equal(t, 200, p.do("POST", "/channel/c/consumer/k/resume", "").status)
	for _, id := range before {
		require.Equal(t, 200, p.do("GET", "/channel/c/message/"+id, "").status, id)
	}
	eventually(t, "all of it to be delivered", func() bool { return sink.hasAll(before) })
	for i := range 20 {
		require.Equal(t, 1, sink.times(fmt.Sprintf("early-%d", i)), "what was delivered before the copy is over")
	}
	require.Zero(t, p.stop())
}

// unfinished is how many jobs of the consumer k wait or are under way.
func (p *process) unfinished(t *testing.T) int {
	t.Helper()
	r := p.do("GET", "/channel/c/consumer/k/jobs", "")
	require.Equal(t, 200, r.status, r.body)
	return len(r.json(t)["Result"].([]any))
}
