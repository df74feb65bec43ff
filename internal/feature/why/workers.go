package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// workers adds what is known of the workers of a pull consumer that has due jobs.
func (v *view) workers(ctx context.Context, l *list, c *counts) {
	if c.due == 0 || l.has(ConcurrencyFull) || l.has(RateLimited) {
		return
	}
	if r, ok := v.untaken(ctx, c); ok {
		if l.add(r); r.Jobs >= c.due {
			return
		}
		c.due -= r.Jobs
	}
	l.add(v.working(ctx, c.due, v.oldestDue()))
}

// looked is the number of due jobs of a consumer whose tasks are looked at.
const looked = 100

// untaken is the reason of due jobs whose task no living worker accepts: every one of them says which tasks it
// takes.
func (v *view) untaken(ctx context.Context, c *counts) (r apitype.WhyReason, ok bool) {
	if v.taskless || v.e.o.Contacts == nil || v.storeErr != nil {
		return r, false
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	p, err := v.e.o.Contacts.Of(ctx, v.k.No)
	if err != nil || len(p.Workers) == 0 {
		return r, false
	}
	taken, living := map[string]bool{}, []string{}
	for _, w := range p.Workers {
		if len(w.Tasks) == 0 {
			return r, false
		}
		for _, task := range w.Tasks {
			taken[task] = true
		}
		if len(living) < 3 {
			living = append(living, w.Name+" takes "+strings.Join(w.Tasks[:min(len(w.Tasks), 5)], ", "))
		}
	}
	ids := []ident.ID{v.asked}
	if v.asked.IsZero() {
		found, err := v.e.o.Queue.Peek(ctx, v.k.No, nil, looked)
		if err != nil {
			return r, false
		}
		ids = ids[:0]
		for _, w := range found {
			ids = append(ids, w.ID)
		}
	}
	tasks, err := v.e.o.Store.Tasks(ctx, v.ch.No, ids)
	if err != nil {
		return r, false
	}
	var wanted []string
	for _, id := range ids {
		task := tasks[id]
		if task == "" || taken[task] {
			continue
		}
		if r.Jobs++; !slices.Contains(wanted, task) && len(wanted) < 3 {
			wanted = append(wanted, task)
		}
	}
	if r.Jobs == 0 {
		return r, false
	}
	r.Jobs, r.Approximate = min(r.Jobs, c.due), c.due > looked && v.asked.IsZero()
	all := strings.Join(wanted, ", ")
	r.Code, r.Since, r.By = string(NoWorker), timeAt(v.oldestDue()), "X-Broker-Task: "+all
	r.Detail = fmt.Sprintf("No living worker accepts the task %s: %s.", all, strings.Join(living, "; "))
	r.Action = "start a worker with Accept-Tasks: " + all + ", or without: POST " + v.path + "/claim"
	return r, true
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

// contact returns the last signs of the workers; known is false where they are not recorded. A claim that only
// the store knows is one as well: Redis was wiped, or the broker has started since.
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
	if v.has.ClaimMs > 0 {
		if stored := timeOf(v.has.ClaimMs); stored.After(claim) {
			claim = stored
		}
		if claim.After(contact) {
			contact = claim
		}
	}
	return claim, contact, renewal, workers, true
}
