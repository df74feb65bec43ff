package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/valyala/fastjson"

	"github.com/penstock-broker/penstock/bench/rawhttp"
)

// Waits of a pull worker that finds no job: doubled each time, up to the longest.
const (
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 100 * time.Millisecond
)

// maxQueuedJobs is the largest limit of queued-jobs.
const maxQueuedJobs = 100

// A pullWorker works through the single routes: it claims one job and finishes it. The workers of a
// consumer share the listed jobs, like a pool of workers with one reader of the queue.
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
	jobs []pulledJob
}

// next returns a listed job, and lists the queue again if no listed job is left. ok is false if the
// queue is empty or cannot be read.
func (f *pullFeed) next(p *pullWorker, list []byte) (j pulledJob, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.jobs) == 0 {
		// The feed has a separate parser, since other workers still read results of the last list.
		var ok bool
		if f.jobs, ok = p.w.pulled("queued-jobs", p.conn, list, &fastjson.Parser{}); !ok {
			return j, false
		}
	}
	if len(f.jobs) == 0 {
		return j, false
	}
	j, f.jobs = f.jobs[0], f.jobs[1:]
	return j, true
}

// arrived records a job that this worker has claimed.
func (w *window) arrived(consumer, worker int, m *pulledMessage) {
	w.received(consumer, worker, arrival{identity: m.identity, body: m.body, details: m.details})
}

// Run works until ctx ends.
func (p *pullWorker) Run(ctx context.Context) error {
	defer p.conn.Close()
	k := p.w.subject.consumers[p.consumer]
	list := rawhttp.AppendEnd(rawhttp.NewTemplate("GET", k.path()+fmt.Sprintf("/queued-jobs?limit=%d", maxQueuedJobs),
		p.w.addr, k.fields()...).AppendHead(nil))
	wait := shortestPoll
	for ctx.Err() == nil {
		job, ok := p.feed.next(p, list)
		if ok {
			p.work(k, job.id, &job.message)
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

// work claims a job and finishes it, unless another worker has claimed it. Every claim is answered
// 202, but only the first gets a lease.
func (p *pullWorker) work(k subscriber, job string, m *pulledMessage) {
	path := k.path() + "/job/" + job
	res, err := p.conn.Do(p.request(path, k, "", claimBody))
	if err != nil || res.Status != 202 {
		// 400: another worker has finished it after the list was read.
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
	parser   fastjson.Parser
	body     []byte
	buf      []byte
}

// claimWait is how long the broker may delay the answer to a claim that finds no job. The end of a
// run waits for it.
const claimWait = "1s"

// Run works until ctx ends.
func (p *batchPullWorker) Run(ctx context.Context) error {
	defer p.conn.Close()
	k := p.w.subject.consumers[p.consumer]
	claim := rawhttp.AppendLength(k.template("POST", fmt.Sprintf("/claim?limit=%d&wait=%s", p.w.config.PullBatch,
		claimWait), p.w.addr).AppendHead(nil), 0)
	finish := k.template("POST", "/jobs", p.w.addr)
	for ctx.Err() == nil {
		jobs, ok := p.w.pulled("batch claim", p.conn, claim, &p.parser)
		if !ok {
			pause(ctx, longestPoll)
			continue
		}
		if len(jobs) == 0 {
			pause(ctx, shortestPoll) // protects a broker that answers an empty claim at once
			continue
		}
		for i := range jobs {
			p.w.arrived(p.consumer, p.no, &jobs[i].message)
		}
		p.finish(finish, jobs)
	}
	return nil
}

// finish reports the jobs as delivered. IDs and leases of a broker need no escapes.
func (p *batchPullWorker) finish(template *rawhttp.Template, jobs []pulledJob) {
	b := append(p.body[:0], `{"Updates":[`...)
	for i, j := range jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"ID":"`...), j.id...)
		b = append(append(b, `","Lease":"`...), j.lease...)
		b = append(b, `","NextState":"DELIVERED"}`...)
	}
	p.body = append(b, `]}`...)
	p.buf = append(rawhttp.AppendLength(template.AppendHead(p.buf[:0]), len(p.body)), p.body...)
	res, err := p.conn.Do(p.buf)
	var statuses []int
	if err == nil && res.Status == 200 {
		statuses, err = parseStatuses(&p.parser, res.Body)
	}
	if err != nil || res.Status != 200 {
		p.w.pullFailed("batch finish", res, err)
		return
	}
	for _, status := range statuses {
		if status != 202 {
			p.w.failed(fmt.Sprint("pull: batch finish line ", status), nil)
		}
	}
}

// pulled sends a request for jobs. ok is false without a readable answer.
func (w *window) pulled(what string, conn *rawhttp.Conn, request []byte, parser *fastjson.Parser) (jobs []pulledJob,
	ok bool) {
	res, err := conn.Do(request)
	if err == nil && res.Status == 200 {
		jobs, err = parseJobs(parser, res.Body)
	}
	if err != nil || res.Status != 200 {
		w.pullFailed(what, res, err)
		return nil, false
	}
	return jobs, true
}

// pullFailed records an unexpected answer to a pull worker.
func (w *window) pullFailed(what string, res *rawhttp.Response, err error) {
	switch {
	case errors.Is(err, errAnswer):
		w.failed("pull: "+what+": unreadable answer", res.Body)
	case err != nil:
		w.failed("pull: "+what+": connection lost", []byte(err.Error()))
	default:
		w.failed(fmt.Sprintf("pull: %s: status %d", what, res.Status), res.Body)
	}
}
