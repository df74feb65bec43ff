package clients

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killedJobs is how many jobs there are when a worker or a broker is killed.
const killedJobs = 600

// queue makes the queue, so that messages that are published at once have jobs.
func (b *broker) queue(t *testing.T) {
	t.Helper()
	for _, put := range [][2]string{{"/channel/jobs", ""}, {"/channel/jobs/consumer/jobs", "type=pull"}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.url+put[0], strings.NewReader(put[1]))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = res.Body.Close()
		require.Equal(t, http.StatusCreated, res.StatusCode)
	}
}

// jobs returns how many jobs of the queue are not over, and how many died.
func (b *broker) jobs(t *testing.T) (open, dead int) {
	t.Helper()
	res, err := http.Get(b.url + "/channel/jobs/consumer/jobs")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var k struct{ Queued, InFlight, DeadLetters *int }
	require.NoError(t, json.NewDecoder(res.Body).Decode(&k))
	require.NotNil(t, k.Queued)
	return *k.Queued + *k.InFlight, *k.DeadLetters
}

// awaitAll waits until every job is done by one of the drivers and counted by the broker.
func awaitAll(t *testing.T, b *broker, all ...*running) {
	t.Helper()
	last := all[len(all)-1]
	last.await("the end of all jobs", func() bool {
		done := map[string]bool{}
		for _, r := range all {
			for _, id := range r.ids("done") {
				done[id] = true
			}
		}
		return len(done) == killedJobs
	})
	last.await("the broker to count them", func() bool { open, _ := b.jobs(t); return open == 0 })
	_, dead := b.jobs(t)
	require.Zero(t, dead)
}

// A worker that is killed loses no job. What it had done and reported is not done again.
func TestAKilledWorkerOfAnyClientLosesNoJob(t *testing.T) {
	t.Parallel()
	for _, make := range drivers {
		d := make(t)
		t.Run(d.client, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			b.queue(t)
			d.start(t, b.url, "batch", map[string]any{"count": killedJobs}).end(0)
			first := d.start(t, b.url, "worker", map[string]any{"lease": 3, "timeout": 10})
			first.await("some jobs", func() bool { return len(first.ids("done")) >= 20 })
			require.NoError(t, first.cmd.Process.Kill())
			<-first.done
			open, _ := b.jobs(t)
			reported := killedJobs - open
			second := d.start(t, b.url, "worker", map[string]any{"lease": 3, "timeout": 10})
			awaitAll(t, b, first, second)
			again := len(first.ids("done")) + len(second.ids("done")) - killedJobs
			require.LessOrEqual(t, again, len(first.ids("done"))-reported, "only what was not reported is done again")
			second.signal()
			second.end(0)
			t.Logf("%s: %d done before the kill, %d of them reported, %d done again", d.client, len(first.ids("done")), reported,
				again)
		})
	}
}

// A worker outlives its broker, and goes on with the one that starts again at its address.
func TestAWorkerOfAnyClientOutlivesItsBroker(t *testing.T) {
	t.Parallel()
	for _, make := range drivers {
		d := make(t)
		t.Run(d.client, func(t *testing.T) {
			t.Parallel()
			b := startBroker(t)
			b.queue(t)
			d.start(t, b.url, "batch", map[string]any{"count": killedJobs}).end(0)
			w := d.start(t, b.url, "worker", map[string]any{"lease": 3, "timeout": 10})
			w.await("some jobs", func() bool { return len(w.ids("done")) >= 20 })
			require.NoError(t, b.cmd.Process.Signal(syscall.SIGKILL))
			<-b.done
			time.Sleep(500 * time.Millisecond) // the worker meets an address where nobody listens
			awaitAll(t, startBrokerAgain(t, b), w)
			w.signal()
			w.end(0)
		})
	}
}
