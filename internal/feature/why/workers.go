package why

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// workers adds what is known of the workers of a pull consumer that has due jobs.
func (v *view) workers(ctx context.Context, l *list, c *counts) {
	if c.due == 0 || l.has(ConcurrencyFull) || l.has(RateLimited) {
		return
	}
	l.add(v.working(ctx, c.due, v.oldestDue()))
}

// working says why due jobs are not claimed, the oldest of which is due since a time.
func (v *view) working(ctx context.Context, jobs int, oldest time.Time) apitype.WhyReason {
	_, contact, renewal, workers, known := v.contact(ctx)
	since := oldest
	for _, t := range []time.Time{contact, renewal} {
		if t.After(since) {
			since = t
		}
	}
	busy := v.queue.Leased > 0 && (renewal.After(contact) || !known || v.now.Sub(since) < v.e.o.NoWorkerAfter)
	switch {
	case v.now.Sub(since) >= v.e.o.NoWorkerAfter && (known || v.queue.Leased == 0):
		return apitype.WhyReason{Code: string(NoWorker), Since: timeAt(since), Jobs: jobs,
			Detail: fmt.Sprintf("Since then no worker has claimed, listed, moved or renewed a job: %s is longer than "+
				"BROKER_NO_WORKER_AFTER=%s.", v.now.Sub(since).Truncate(time.Second), v.e.o.NoWorkerAfter),
			Action: "start a worker: POST " + v.path + "/claim"}
	case busy, v.now.Sub(oldest) >= v.e.o.NoWorkerAfter:
		r := apitype.WhyReason{Code: string(WorkersBusy), Since: timeAt(oldest), Jobs: jobs,
			Detail: fmt.Sprintf("The workers have %s, and take no others at present.", jobsAre(v.queue.Leased)),
			Action: "start more workers: POST " + v.path + "/claim"}
		if workers > 0 {
			r.By = fmt.Sprintf("%d workers", workers)
		}
		return r
	}
	return v.due(jobs, oldest, "The next claim of a worker gets them.")
}

// NoWorker returns the reason no_worker of a pull consumer, where it has it: due jobs wait, and no worker asks
// for them.
func (e *Explainer) NoWorker(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer) (apitype.WhyReason,
	bool) {
	for _, r := range e.Consumer(ctx, ch, k).Reasons {
		if r.Code == string(NoWorker) {
			return r, true
		}
	}
	return apitype.WhyReason{}, false
}

// contact returns the last signs of the workers; known is false where they are not recorded.
func (v *view) contact(ctx context.Context) (claim, contact, renewal time.Time, workers int, known bool) {
	if v.e.o.Contacts == nil {
		return claim, contact, renewal, 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	claim, contact, renewal, workers, err := v.e.o.Contacts.LastContact(ctx, v.k.No)
	if err != nil {
		return time.Time{}, time.Time{}, time.Time{}, 0, false
	}
	return claim, contact, renewal, workers, true
}
