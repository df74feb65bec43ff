//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	singleWorkers = 4
	batchWorkers  = 2
	pullTimeout   = 10 * time.Second
	idlePause     = 100 * time.Millisecond
)

// A puller is every pull worker: some at the single routes, which race for the
// same jobs, and some at the batch routes.
type puller struct {
	plan     *plan
	log      *journal
	http     *http.Client
	arrivals atomic.Int64
}

func newPuller(plan *plan, log *journal) *puller {
	return &puller{plan: plan, log: log, http: &http.Client{Timeout: pullTimeout, CheckRedirect: noRedirect,
		Transport: &http.Transport{MaxIdleConnsPerHost: singleWorkers + batchWorkers}}}
}

func (p *puller) run(ctx context.Context) {
	defer p.http.CloseIdleConnections()
	var wg sync.WaitGroup
	for k, c := range p.plan.Consumers {
		work, workers := p.single, singleWorkers
		switch c.Does {
		case single:
		case batched:
			work, workers = p.batch, batchWorkers
		default:
			continue
		}
		for i := range workers {
			w := &pullWorker{puller: p, k: k, path: p.plan.path(k), broker: i % len(p.plan.Brokers)}
			wg.Go(func() {
				for ctx.Err() == nil {
					if !work(w) {
						w.broker = (w.broker + 1) % len(p.plan.Brokers)
						time.Sleep(idlePause)
					}
				}
			})
		}
	}
	wg.Wait()
}

// A pullWorker stays with a broker until the broker has no more jobs for it.
type pullWorker struct {
	*puller
	k      int
	path   string
	broker int
}

// A pulledJob is a job as either route shows it.
type pulledJob struct {
	ID, Lease string
	Attempt   int // at the batch route: the number of this attempt
	Attempts  int // at the single route: the number of earlier attempts
	Message   struct{ MessageID, Payload, PayloadEncoding string }
}

func (j *pulledJob) body() []byte {
	if j.Message.PayloadEncoding == "base64" {
		b, err := base64.StdEncoding.DecodeString(j.Message.Payload)
		if err != nil {
			return nil
		}
		return b
	}
	return []byte(j.Message.Payload)
}

// do sends a request with the consumer's tokens; status 0 means no answer.
func (w *pullWorker) do(method, path string, in any, out any, fields ...string) (status int, header http.Header) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, nil
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, "http://"+w.plan.Brokers[w.broker]+path, body)
	if err != nil {
		return 0, nil
	}
	req.Header.Set("X-Broker-Channel-Token", w.plan.Token)
	req.Header.Set("X-Broker-Consumer-Token", w.plan.Token)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := w.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	if out != nil && res.StatusCode == http.StatusOK {
		if json.NewDecoder(res.Body).Decode(out) != nil {
			return 0, nil
		}
		return res.StatusCode, res.Header
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // keeps the connection
	return res.StatusCode, res.Header
}

// arrived records that the worker got a job, with the time of its request.
func (w *pullWorker) arrived(j *pulledJob, attempt int, asked time.Time) (arrival, seq int64) {
	body := j.body()
	seq, ok := parseSeq(body)
	if !ok {
		seq = -1
	}
	arrival = w.arrivals.Add(1)
	w.log.Add("D", arrival, w.k, seq, hashOf(body), attempt, j.ID, orDash(j.Message.MessageID), fmt.Sprintf("broker-%d",
		w.broker), asked, time.Now())
	return arrival, seq
}

func (w *pullWorker) said(arrival int64, status int) *flush {
	return w.log.Add("O", arrival, status, time.Now())
}

// single lists jobs and works on some of them, with one request for each step.
func (p *puller) single(w *pullWorker) (found bool) {
	var page struct{ Result []pulledJob }
	if status, _ := w.do("GET", w.path+"/queued-jobs?limit=50", nil, &page); status != http.StatusOK ||
		len(page.Result) == 0 {
		return false
	}
	rand.Shuffle(len(page.Result), func(i, j int) { page.Result[i], page.Result[j] = page.Result[j], page.Result[i] })
	for i := range page.Result[:min(len(page.Result), 10)] {
		w.take(&page.Result[i])
	}
	return true
}

// move is the body of the single route.
type move struct{ NextState string }

// take claims a job and usually finishes it.
func (w *pullWorker) take(j *pulledJob) {
	route := w.path + "/job/" + j.ID
	n := rand.IntN(1000)
	if n < 10 { // no worker has claimed it, as a rule: the answer must not be 202 then
		w.do("POST", route, move{"QUEUED"}, nil)
	}
	asked := time.Now()
	status, header := w.do("POST", route, move{"INFLIGHT"}, nil)
	lease := header.Get("X-Broker-Lease")
	if status != http.StatusAccepted || lease == "" {
		return // another worker has it
	}
	arrival, seq := w.arrived(j, j.Attempts+1, asked)
	switch {
	case poisoned(seq), n < 20: // taken and never finished
		return
	case n < 23: // finished too late
		time.Sleep(pullVisible + 500*time.Millisecond)
	case n < 26:
		w.status(route, move{"DEAD"}, lease)
		return
	}
	if n%2 == 0 {
		lease = "" // the specification knows no lease: every report is believed
	}
	if w.said(arrival, reporting).Wait() == nil {
		w.said(arrival, w.status(route, move{"DELIVERED"}, lease))
	}
}

func (w *pullWorker) status(route string, in any, lease string) int {
	var fields []string
	if lease != "" {
		fields = []string{"X-Broker-Lease", lease}
	}
	status, _ := w.do("POST", route, in, nil, fields...)
	return status
}

// An update is one entry of a batch of moves.
type update struct {
	ID, Lease, NextState string
	Delay                int `json:",omitempty"`
}

// batch claims many jobs at once and reports on them at once.
func (p *puller) batch(w *pullWorker) (found bool) {
	var claimed struct{ Result []pulledJob }
	asked := time.Now()
	if status, _ := w.do("POST", w.path+"/claim?limit=100&wait=2s", nil, &claimed); status != http.StatusOK {
		return false
	}
	if len(claimed.Result) == 0 {
		return true // it has waited already
	}
	var updates []update
	var reported []int64
	var last *flush
	for i := range claimed.Result {
		j := &claimed.Result[i]
		arrival, _ := w.arrived(j, j.Attempt, asked)
		switch n := rand.IntN(1000); {
		case n < 5: // taken and never finished
		case n < 15:
			last = w.said(arrival, givingBack)
			updates = append(updates, update{j.ID, j.Lease, "QUEUED", 1})
			reported = append(reported, 0)
		default:
			last = w.said(arrival, reporting)
			updates = append(updates, update{ID: j.ID, Lease: j.Lease, NextState: "DELIVERED"})
			reported = append(reported, arrival)
		}
	}
	if last != nil && last.Wait() != nil || len(updates) == 0 {
		return true
	}
	var answers struct{ Result []struct{ Status int } }
	status, _ := w.do("POST", w.path+"/jobs", map[string]any{"Updates": updates}, &answers)
	for i, arrival := range reported {
		switch {
		case arrival == 0:
		case status == http.StatusOK && i < len(answers.Result):
			w.said(arrival, answers.Result[i].Status)
		default:
			w.said(arrival, 0)
		}
	}
	return status == http.StatusOK
}
