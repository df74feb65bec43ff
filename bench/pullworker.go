package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/bench/rawhttp"
)

// Waits of a pull worker that finds nothing to do: doubled up to the longest.
const (
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 100 * time.Millisecond
)

// maxQueuedJobs is the largest limit of queued-jobs.
const maxQueuedJobs = 100

// A pullWorker takes jobs through the single doors: claim one, finish it. The
// workers of a consumer share what is listed, as a real one would: a pool of
// workers behind one look at the queue.
type pullWorker struct {
	w        *window
	consumer int
	no       int
	feed     *pullFeed
	conn     *rawhttp.Conn
	buf      []byte
}

// A pullFeed is the listed jobs of a consumer that no worker has taken yet.
type pullFeed struct {
	mu   sync.Mutex
	jobs []listedJob
}

type listedJob struct {
	ID      string
	Message pulledMessage
}

// next returns a listed job, and looks at the queue when there is none. ok is
// false when the queue is empty or cannot be seen.
func (f *pullFeed) next(p *pullWorker, list []byte) (j listedJob, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.jobs) == 0 {
		res, err := p.conn.Do(list)
		var page struct{ Result []listedJob }
		if err != nil || res.Status != 200 || json.Unmarshal(res.Body, &page) != nil {
			p.w.pullFailed("queued-jobs", res, err)
			return j, false
		}
		f.jobs = page.Result
	}
	if len(f.jobs) == 0 {
		return j, false
	}
	j, f.jobs = f.jobs[0], f.jobs[1:]
	return j, true
}

// A pulledMessage is a message as the pull doors show it.
type pulledMessage struct {
	MessageID       string
	Payload         string
	PayloadEncoding string
	Headers         map[string]string
}

func (m *pulledMessage) body() ([]byte, error) {
	if m.PayloadEncoding == "base64" {
		return base64.StdEncoding.DecodeString(m.Payload)
	}
	return []byte(m.Payload), nil
}

// arrived notes a job that this worker holds.
func (w *window) arrived(consumer, worker int, m *pulledMessage) {
	body, err := m.body()
	if err != nil {
		body = nil // counted as corrupted: nothing of it can be read
	}
	w.received(consumer, worker, []byte(m.Headers[identityHeader]), body, func() string { return m.MessageID })
}

// Run works until ctx ends.
func (p *pullWorker) Run(ctx context.Context) error {
	defer p.conn.Close()
	k := p.w.subject.consumers[p.consumer]
	list := rawhttp.AppendEnd(rawhttp.NewTemplate("GET", k.path()+fmt.Sprintf("/queued-jobs?limit=%d", maxQueuedJobs), p.w.addr, k.fields()...).AppendHead(nil))
	wait := shortestPoll
	for ctx.Err() == nil {
		job, ok := p.feed.next(p, list)
		if ok {
			p.work(k, job.ID, &job.Message)
			wait = shortestPoll
			continue
		}
		pause(ctx, wait)
		wait = min(2*wait, longestPoll)
	}
	return nil
}

var (
	claimBody  = []byte(`{"NextState":"INFLIGHT"}`)
	finishBody = []byte(`{"NextState":"DELIVERED"}`)
)

// work claims a job and finishes it, unless another worker has it: everybody
// who asks is answered 202, only the one who claimed gets a lease.
func (p *pullWorker) work(k subscriber, job string, m *pulledMessage) {
	path := k.path() + "/job/" + job
	res, err := p.conn.Do(p.request(path, k, "", claimBody))
	if err != nil || res.Status != 202 {
		// 400: somebody else has finished it between the list and now.
		if err != nil || res.Status != 400 {
			p.w.pullFailed("claim", res, err)
		}
		return
	}
	lease := string(res.Header("x-broker-lease"))
	if lease == "" {
		return
	}
	p.w.arrived(p.consumer, p.no, m)
	if res, err = p.conn.Do(p.request(path, k, lease, finishBody)); err != nil || res.Status != 202 {
		p.w.pullFailed("finish", res, err)
	}
}

func (p *pullWorker) request(path string, k subscriber, lease string, body []byte) []byte {
	b := rawhttp.NewTemplate("POST", path, p.w.addr, k.fields()...).AppendHead(p.buf[:0])
	if lease != "" {
		b = rawhttp.AppendField(b, "X-Broker-Lease", []byte(lease))
	}
	p.buf = append(rawhttp.AppendLength(b, len(body)), body...)
	return p.buf
}

// A batchPullWorker claims and finishes many jobs at once.
type batchPullWorker struct {
	w        *window
	consumer int
	no       int
	conn     *rawhttp.Conn
}

// claimWait is how long the broker may hold a claim that finds nothing; the end
// of a run waits for it.
const claimWait = "1s"

type update struct{ ID, Lease, NextState string }

// Run works until ctx ends.
func (p *batchPullWorker) Run(ctx context.Context) error {
	defer p.conn.Close()
	k := p.w.subject.consumers[p.consumer]
	claim := rawhttp.AppendLength(k.template("POST", fmt.Sprintf("/claim?limit=%d&wait=%s", p.w.config.PullBatch, claimWait), p.w.addr).AppendHead(nil), 0)
	finish := k.template("POST", "/jobs", p.w.addr)
	for ctx.Err() == nil {
		res, err := p.conn.Do(claim)
		var page struct {
			Result []struct {
				ID, Lease string
				Message   pulledMessage
			}
		}
		if err != nil || res.Status != 200 || json.Unmarshal(res.Body, &page) != nil {
			p.w.pullFailed("batch claim", res, err)
			pause(ctx, longestPoll)
			continue
		}
		if len(page.Result) == 0 {
			pause(ctx, shortestPoll) // a broker that does not wait must not be asked without pause
			continue
		}
		var updates struct{ Updates []update }
		for i := range page.Result {
			j := &page.Result[i]
			p.w.arrived(p.consumer, p.no, &j.Message)
			updates.Updates = append(updates.Updates, update{j.ID, j.Lease, "DELIVERED"})
		}
		body, err := json.Marshal(updates)
		if err != nil {
			return fmt.Errorf("encode updates: %w", err)
		}
		p.finish(append(rawhttp.AppendLength(finish.AppendHead(nil), len(body)), body...))
	}
	return nil
}

func (p *batchPullWorker) finish(request []byte) {
	res, err := p.conn.Do(request)
	var page struct{ Result []struct{ Status int } }
	if err != nil || res.Status != 200 || json.Unmarshal(res.Body, &page) != nil {
		p.w.pullFailed("batch finish", res, err)
		return
	}
	for _, r := range page.Result {
		if r.Status != 202 {
			p.w.failed(fmt.Sprint("pull: batch finish line ", r.Status), nil)
		}
	}
}

// pullFailed notes an answer that a pull worker did not expect.
func (w *window) pullFailed(what string, res *rawhttp.Response, err error) {
	switch {
	case err != nil:
		w.failed("pull: "+what+": connection lost", []byte(err.Error()))
	case res.Status/100 == 2:
		w.failed("pull: "+what+": answer cannot be read", res.Body)
	default:
		w.failed(fmt.Sprintf("pull: %s: status %d", what, res.Status), res.Body)
	}
}
