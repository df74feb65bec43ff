//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// workerFields are the headers of a pull worker, and more.
func (m *mortal) workerFields(more ...string) []string {
	return append([]string{"X-Broker-Channel-Token", m.plan.Token, "X-Broker-Consumer-Token", m.plan.Token}, more...)
}

// worker returns a pull worker: of the batch routes, or now and then of the single ones.
func (m *mortal) worker() *pullWorker {
	k := m.plan.consumerThat(batched)
	if m.rng.IntN(3) == 0 {
		k = m.plan.consumerThat(single)
	}
	return &pullWorker{puller: m.puller, k: k, path: m.plan.path(k), broker: m.broker}
}

var errNoJob = errors.New("chaos: there is no job to claim")

// claim returns the request with which a worker claims jobs. At the single routes the request names
// a job that is queued now.
func (m *mortal) claim(w *pullWorker, wait time.Duration) (s script, j *pulledJob, err error) {
	if m.plan.Consumers[w.k].Does == batched {
		path := fmt.Sprintf("%s/claim?limit=%d&wait=%v", w.path, 1+m.rng.IntN(8), wait)
		return whole(request(path, "application/json", m.workerFields()...), nil), nil, nil
	}
	var page struct{ Result []pulledJob }
	if status, _ := w.do("GET", w.path+"/queued-jobs?limit=50", nil, &page); status != http.StatusOK ||
		len(page.Result) == 0 {
		return s, nil, errNoJob
	}
	j = &page.Result[m.rng.IntN(len(page.Result))]
	s, err = m.moving(w, j.ID, "INFLIGHT")
	return s, j, err
}

// moving returns the request that moves one job.
func (m *mortal) moving(w *pullWorker, job, state string, fields ...string) (script, error) {
	body, err := json.Marshal(move{state})
	return whole(request(w.path+"/job/"+job, "application/json", m.workerFields(fields...)...), body), err
}

// ask dials and sends a script whole.
func (m *mortal) ask(s script) (*wire, error) {
	w, err := m.dial()
	if err == nil {
		if _, err = w.Write(s.bytes); err != nil {
			w.die(m.rng)
		}
	}
	return w, err
}

// pullerInLongPoll dies while the broker delays the answer to an empty claim.
func (m *mortal) pullerInLongPoll(ctx context.Context) string {
	k := m.plan.consumerThat(batched)
	w := &pullWorker{puller: m.puller, k: k, path: m.plan.path(k), broker: m.broker}
	s, _, err := m.claim(w, 10*time.Second)
	if err != nil {
		return ""
	}
	c, err := m.ask(s)
	if err != nil {
		return ""
	}
	waited := c.silent(ctx, between(m.rng, time.Millisecond, 30*time.Millisecond))
	if how := c.die(m.rng); waited {
		return how
	}
	return "" // it got jobs at once
}

func (m *mortal) pullerBeforeJobs(ctx context.Context) string { return m.unclaimed(ctx, 0) }

func (m *mortal) pullerInJobs(ctx context.Context) string { return m.unclaimed(ctx, 1+m.rng.IntN(300)) }

// unclaimed claims, reads that many bytes of the answer, and dies without knowledge of its jobs.
func (m *mortal) unclaimed(ctx context.Context, read int) string {
	s, _, err := m.claim(m.worker(), 2*time.Second)
	if err != nil {
		return ""
	}
	c, err := m.ask(s)
	if err != nil {
		return ""
	}
	if read > 0 {
		_, err = io.ReadAtLeast(c.answers, make([]byte, read), 1)
	} else {
		pause(ctx, m.upTo(10*time.Millisecond))
	}
	if how := c.die(m.rng); err == nil {
		return how
	}
	return ""
}

// A laden worker has jobs, whose arrivals are in the journal.
type laden struct {
	*pullWorker
	wire     *wire
	jobs     []pulledJob
	arrivals []int64
}

// hold claims jobs and reads the answer.
func (m *mortal) take() (*laden, error) {
	h := &laden{pullWorker: m.worker()}
	s, j, err := m.claim(h.pullWorker, 2*time.Second)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	if h.wire, err = m.ask(s); err != nil {
		return nil, err
	}
	if err := h.read(j); err != nil {
		h.wire.die(m.rng)
		return nil, err
	}
	for i := range h.jobs {
		arrival, _ := h.arrived(&h.jobs[i], h.jobs[i].Attempt, asked)
		h.arrivals = append(h.arrivals, arrival)
	}
	return h, nil
}

// read reads the answer to a claim of j, or of many jobs.
func (h *laden) read(j *pulledJob) error {
	res, err := http.ReadResponse(h.wire.answers, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if j != nil {
		j.Attempt, j.Lease = j.Attempts+1, res.Header.Get("X-Broker-Lease")
		if res.StatusCode != http.StatusAccepted || j.Lease == "" {
			return errNoJob // another worker has it
		}
		h.jobs = []pulledJob{*j}
		return nil
	}
	var claimed struct{ Result []pulledJob }
	if err := json.Unmarshal(text, &claimed); err != nil {
		return err
	}
	if h.jobs = claimed.Result; len(h.jobs) == 0 {
		return errNoJob
	}
	return nil
}

// pullerWithJobs dies with leases in its hands.
func (m *mortal) pullerWithJobs(ctx context.Context) string {
	h, err := m.take()
	if err != nil {
		return ""
	}
	pause(ctx, m.upTo(time.Second))
	return h.wire.die(m.rng)
}

// report returns the request that ends the jobs of a laden worker. said has the reported status of each.
func (m *mortal) report(h *laden) (s script, said []int, err error) {
	if m.plan.Consumers[h.k].Does == single {
		var fields []string
		if m.rng.IntN(2) == 0 {
			fields = []string{"X-Broker-Lease", h.jobs[0].Lease}
		}
		s, err = m.moving(h.pullWorker, h.jobs[0].ID, "DELIVERED", fields...)
		return s, []int{reporting}, err
	}
	var updates []update
	for _, j := range h.jobs {
		u := update{ID: j.ID, Lease: j.Lease, NextState: "DELIVERED"}
		say := reporting
		if m.rng.IntN(5) == 0 {
			u.NextState, u.Delay, say = "QUEUED", 1, givingBack
		}
		updates, said = append(updates, u), append(said, say)
	}
	body, err := json.Marshal(map[string]any{"Updates": updates})
	return whole(request(h.path+"/jobs", "application/json", m.workerFields()...), body), said, err
}

// pullerInReport dies at a byte of its report, which must have no effect.
func (m *mortal) pullerInReport(ctx context.Context) (how string) {
	h, err := m.take()
	if err != nil {
		return ""
	}
	s, _, err := m.report(h)
	if err == nil {
		_, err = h.wire.Write(s.bytes[:m.rng.IntN(len(s.bytes))])
	}
	pause(ctx, m.upTo(10*time.Millisecond))
	if died := h.wire.die(m.rng); err == nil {
		how = died
	}
	return how
}

// pullerBeforeAnswer reports, reads a part of the answer or nothing, and dies. The report may or
// may not have an effect.
func (m *mortal) pullerBeforeAnswer(ctx context.Context) (how string) {
	h, err := m.take()
	if err != nil {
		return ""
	}
	s, said, err := m.report(h)
	if err == nil {
		var last *flush
		for i, say := range said {
			last = h.said(h.arrivals[i], say)
		}
		err = last.Wait()
	}
	if err == nil {
		_, err = h.wire.Write(s.bytes)
	}
	if n := m.rng.IntN(30); err == nil && n%2 == 0 {
		_, err = io.ReadAtLeast(h.wire.answers, make([]byte, n+1), 1)
	} else {
		pause(ctx, m.upTo(10*time.Millisecond))
	}
	if died := h.wire.die(m.rng); err == nil {
		how = died
	}
	return how
}
