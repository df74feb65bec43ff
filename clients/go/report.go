package penstock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	mostUpdates     = 500       // of one report
	mostReportBytes = 200 << 10 // of one report: the broker takes 1 MiB
	// mostUnreported bounds, with twice the slots, the jobs that are done and not reported: a worker that is killed
	// has others do them again.
	mostUnreported = 50
	gather         = 5 * time.Millisecond
	mostReason     = 255 // bytes, as the broker keeps them
	mostDetail     = 1 << 10
)

// An update moves one job, see POST .../jobs.
type update struct {
	ID, Lease, NextState string
	Timeout              int64  `json:",omitempty"`
	Delay                int64  `json:",omitempty"`
	Failed               bool   `json:",omitempty"`
	Reason               string `json:",omitempty"`
	Detail               string `json:",omitempty"`
	*response
}

// An updated is the answer to an update.
type updated struct {
	ID     string
	Status int
	Code   string
}

// move sends updates, and returns an answer for each.
func (w *Worker) move(ctx context.Context, updates []update) (results []updated, err error) {
	body, err := plainJSON(map[string]any{"Updates": updates})
	if err != nil {
		return nil, err
	}
	err = w.c.act(ctx, role{channel: w.channel, consumer: w.consumer}, func(h http.Header) error {
		h["X-Broker-Worker"], h["Content-Type"] = []string{w.name}, []string{"application/json"}
		q := call{method: http.MethodPost, path: consumerPath(w.channel, w.consumer) + "/jobs", header: h, body: body}
		a, err := w.c.once(ctx, q)
		if err != nil {
			return err
		}
		var page struct{ Result []updated }
		if err := q.decode(a, &page); err != nil {
			return err
		}
		if len(page.Result) != len(updates) {
			return q.failed(fmt.Errorf("the broker answered %d of %d updates", len(page.Result), len(updates)))
		}
		for i, r := range page.Result {
			if r.ID != updates[i].ID || r.Status == 0 {
				return q.failed(errors.New("the broker answered other updates than those that were sent"))
			}
		}
		results = page.Result
		return nil
	})
	return results, err
}

// A report is an outcome that the broker does not have yet.
type report struct {
	d *Delivery
	u update
}

// A reporter sends reports together: at once up to 500, or those of 5 ms.
type reporter struct {
	w       *Worker
	mu      sync.Mutex
	open    []report
	failing bool
	come    chan struct{} // has a token when a report was added
	closed  chan struct{} // closed: no report will be added
}

func (r *reporter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// troubled reports whether the broker takes no reports now: the worker claims nothing until it does.
func (r *reporter) troubled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failing
}

// settle reports what a handler has returned for its job, once.
func (w *Worker) settle(d *Delivery, err error) {
	d.once.Do(func() {
		u := update{ID: d.ID, Lease: d.token, NextState: "DELIVERED"}
		var v *verdict
		switch {
		case err == nil:
		case w.leases.state(d): // somebody else has it, or will have it when the lease ends
			w.leases.remove(d)
			return
		case errors.As(err, &v):
			u.NextState, u.Failed, u.Delay = v.state, v.failed, int64((v.delay+time.Second-1)/time.Second)
			u.Reason = cut(v.reason, mostReason)
		case errors.Is(err, ErrStopped) || w.stopped(err):
			u.NextState, u.Reason = "QUEUED", "the worker stops"
		default:
			w.log.Warn("penstock: a job failed", "task", d.Task, "message", d.MessageID, "attempt", d.Attempt, "error", err)
			u.NextState, u.Failed = "QUEUED", true
			u.Reason = cut(err.Error(), mostReason)
			if len(err.Error()) > len(u.Reason) {
				u.Detail = cut(err.Error(), mostDetail)
			}
		}
		w.leases.mu.Lock()
		d.reported = true
		if u.NextState == "DELIVERED" {
			u.response = d.response
		}
		w.leases.mu.Unlock()
		if u.NextState == "DELIVERED" {
			w.known.add(d)
		}
		w.reports.add(report{d, u})
	})
}

// stopped reports whether a handler has ended because the worker ends now.
func (w *Worker) stopped(err error) bool {
	select {
	case <-w.abort:
		return errors.Is(err, context.Canceled)
	default:
		return false
	}
}

// cut returns s as at most n bytes of UTF-8.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func (r *reporter) add(x report) {
	r.mu.Lock()
	r.open = append(r.open, x)
	r.mu.Unlock()
	wake(r.come)
}

// send sends reports until the reporter is closed and all are answered, or the context ends.
func (r *reporter) send(ctx context.Context) {
	var b backoff
	for {
		select {
		case <-r.come:
		case <-ctx.Done():
			return
		case <-r.closed:
			if r.count() == 0 {
				return
			}
		}
		if r.count() < mostUpdates && !r.isClosed() && !rest(ctx, gather) {
			return
		}
		for r.count() > 0 {
			if err := r.sendSome(ctx); err == nil {
				b = backoff{}
			} else if ctx.Err() != nil || !r.pause(ctx, b.next(retryAfter(err))) {
				return
			}
		}
	}
}

// pause waits, but not for long when the worker ends.
func (r *reporter) pause(ctx context.Context, d time.Duration) bool {
	if r.isClosed() {
		return rest(ctx, min(d, time.Second))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.closed:
	case <-ctx.Done():
		return false
	}
	return true
}

func (r *reporter) isClosed() bool {
	select {
	case <-r.closed:
		return true
	default:
		return false
	}
}

// sendSome sends one request. Reports that are answered are over; the others stay.
func (r *reporter) sendSome(ctx context.Context) error {
	r.mu.Lock()
	var updates []update
	jobs := map[string]bool{} // a job that came again may have two reports: one request has one of them
	for size := 0; len(updates) < min(len(r.open), mostUpdates); {
		u := r.open[len(updates)].u
		size += 200 + len(u.ID) + len(u.Lease) + 2*len(u.Reason) + 2*len(u.Detail) + u.response.bytes()
		if size > mostReportBytes && len(updates) > 0 || jobs[u.ID] {
			break
		}
		updates, jobs[u.ID] = append(updates, u), true
	}
	sent := r.open[:len(updates):len(updates)]
	r.mu.Unlock()
	results, err := r.w.move(ctx, updates)
	var later []report
	switch {
	case err == nil:
		for i, x := range sent {
			if s := results[i].Status; s == 408 || s == 429 || s >= 500 {
				later = append(later, x)
				err = fmt.Errorf("penstock: the broker answered %d %s to a report", s, results[i].Code)
				continue
			}
			if x.u.response != nil && results[i].Code == "invalid_response" { // the job is done all the same
				r.w.log.Error("penstock: the response of a job is refused: its consumer must have responses on",
					"job", x.d.ID, "message", x.d.MessageID, "task", x.d.Task)
				x.u.response = nil
				later = append(later, x)
				continue
			}
			r.answered(x, results[i])
		}
	case temporary(err) || ctx.Err() != nil:
		later = sent
		if ctx.Err() == nil {
			r.w.log.Warn("penstock: reports are not taken; no jobs are claimed until they are", "reports", len(sent),
				"error", err)
		}
	default:
		r.w.fail(err)
		for _, x := range sent {
			r.w.leases.remove(x.d)
		}
		err = nil
	}
	r.mu.Lock()
	r.open = append(append([]report{}, later...), r.open[len(updates):]...)
	r.failing = err != nil
	r.mu.Unlock()
	wake(r.w.freed)
	return err
}

// answered ends a report.
func (r *reporter) answered(x report, got updated) {
	r.w.leases.remove(x.d)
	if x.u.NextState == "DELIVERED" {
		r.w.known.reported(x.d, got.Status == 202)
	}
	if got.Status != 202 && x.u.NextState == "DELIVERED" {
		r.w.log.Error("penstock: a job was done, and its report is refused: it may be done twice", "job", x.d.ID,
			"message", x.d.MessageID, "task", x.d.Task, "status", got.Status, "code", got.Code)
	}
}
