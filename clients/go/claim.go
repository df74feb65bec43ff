package penstock

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"
)

// claim asks for as many jobs as there are free slots, until the context ends or the broker refuses the
// worker. background lives longer: by it, a claim whose answer has begun is read to its end.
func (w *Worker) claim(ctx, background context.Context) {
	var b backoff
	for {
		free, ok := w.free(ctx)
		if !ok {
			return
		}
		asked := time.Now()
		jobs, hold, err := w.ask(ctx, background, free)
		switch {
		case err == nil && len(jobs) > 0:
			b = backoff{}
			w.take(ctx, jobs)
			continue
		case ctx.Err() != nil:
			return
		case err == nil && hold == 0 && time.Since(asked) >= w.o.Wait/2:
			b = backoff{}
			continue
		case err == nil: // nothing, and not because the wait was over
			b, hold = backoff{}, cmp.Or(hold, time.Second)
		case !temporary(err):
			w.fail(err)
			return
		default:
			hold = retryAfter(err)
			w.log.Warn("penstock: a claim failed", "error", err)
		}
		if !rest(ctx, b.next(hold)) {
			return
		}
	}
}

// free waits until there are free slots and reports go through, and returns how many.
func (w *Worker) free(ctx context.Context) (int, bool) {
	for {
		w.mu.Lock()
		free, failed := w.o.Concurrency-w.running, w.fatal != nil
		w.mu.Unlock()
		if failed || ctx.Err() != nil {
			return 0, false
		}
		if free > 0 && !w.reports.troubled() && w.reports.count() < mostUnreported+2*w.o.Concurrency {
			return free, true
		}
		select {
		case <-w.freed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// take begins claimed jobs. After the end of the context they go back at once, uncounted.
func (w *Worker) take(ctx context.Context, jobs []*Delivery) {
	stopping := ctx.Err() != nil
	for _, d := range jobs {
		if stopping {
			d.cancel = func(error) {}
			w.leases.add(d)
			w.settle(d, GiveBack(0, "the worker stops"))
			continue
		}
		w.run(d)
	}
}

// ask sends one claim. hold is how long the broker has nothing for this worker, where it says so.
func (w *Worker) ask(ctx, background context.Context, free int) (jobs []*Delivery, hold time.Duration, err error) {
	ctx, cancel := untilAnswered(ctx, background)
	defer cancel()
	err = w.c.act(ctx, role{channel: w.channel, consumer: w.consumer}, func(h http.Header) error {
		h["X-Broker-Worker"] = []string{w.name}
		q := call{method: http.MethodPost, header: h, wait: w.o.Wait, path: consumerPath(w.channel, w.consumer) +
			"/claim?limit=" + strconv.Itoa(free) + "&wait=" + w.o.Wait.String() + "&timeout=" +
			strconv.Itoa(int(w.o.Lease/time.Second))}
		a, err := w.c.once(ctx, q)
		if err != nil {
			return err
		}
		var page struct{ Result []claimed }
		if err := q.decode(a, &page); err != nil {
			return err
		}
		if len(page.Result) > free || page.Result == nil {
			return q.failed(fmt.Errorf("the broker answered with %d jobs to a claim of %d", len(page.Result), free))
		}
		for _, e := range page.Result {
			d, err := w.delivery(e)
			if err != nil {
				return q.failed(err)
			}
			jobs = append(jobs, d)
		}
		hold = waitOf(a.header)
		return nil
	})
	return jobs, hold, err
}

// untilAnswered is a context that ends with ctx while no byte of an answer has come. An answer that has
// begun is read: it may have leases in it.
func untilAnswered(ctx, background context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(background)
	var answered atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		if !answered.Load() {
			cancel()
		}
	})
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { // of each request: the tokens may be asked before the claim is sent
			answered.Store(false)
			if ctx.Err() != nil {
				cancel()
			}
		},
		GotFirstResponseByte: func() { answered.Store(true) },
	}
	return httptrace.WithClientTrace(inner, trace), func() { stop(); cancel() }
}
