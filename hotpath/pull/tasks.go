package pull

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A claim may name the tasks that its worker takes. Jobs of messages with another task stay in their
// places for others. Redis knows no tasks: such a claim looks through the first jobs of the window and
// leases those that fit by their IDs. A claim that names none takes the usual way.

// TasksHeader is the request header with the tasks that a claim takes, with commas between them. A job
// of a message without a task is for every claim.
const TasksHeader = "Accept-Tasks"

const (
	// searched bounds the jobs that one claim looks at, searchedAtOnce those of one look.
	searched, searchedAtOnce = 2000, 500
	// maxTasks bounds the tasks that a claim names.
	maxTasks = 64
	// knownTasks bounds the messages whose tasks a process remembers. One takes less than 100 bytes.
	knownTasks = 50_000
)

// acceptedTasks reads the header. nil: the claim takes every task. What is behind the bound is passed over.
func acceptedTasks(h *fasthttp.RequestHeader) (tasks []string) {
	text := h.Peek(TasksHeader)
	if len(text) == 0 {
		return nil
	}
	for task := range strings.SplitSeq(string(text), ",") {
		if task = strings.TrimSpace(task); task != "" && !slices.Contains(tasks, task) && len(tasks) < maxTasks {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// tasksOf remembers the tasks of messages, which never change.
type tasksOf struct {
	mu   sync.Mutex
	byID map[ident.ID]string
}

// accepted returns which of the jobs a claim takes, in their order.
func (p *Puller) accepted(ctx context.Context, k *durable.Consumer, found []redisq.Waiting,
	tasks []string) ([]redisq.Waiting, error) {
	all := make(map[ident.ID]string, len(found))
	var unknown []ident.ID
	p.tasks.mu.Lock()
	for _, w := range found {
		if task, ok := p.tasks.byID[w.ID]; ok {
			all[w.ID] = task
		} else if m, _ := p.verifier.Cache.Get(w.ID); m != nil {
			all[w.ID] = m.Task()
		} else {
			unknown = append(unknown, w.ID)
		}
	}
	p.tasks.mu.Unlock()
	if len(unknown) > 0 {
		read, err := p.store.Tasks(ctx, k.ChannelNo, unknown)
		if err != nil {
			return nil, err
		}
		p.tasks.mu.Lock()
		if p.tasks.byID == nil || len(p.tasks.byID)+len(unknown) > knownTasks {
			p.tasks.byID = map[ident.ID]string{}
		}
		for id, task := range read {
			p.tasks.byID[id], all[id] = task, task
		}
		p.tasks.mu.Unlock()
	}
	var out []redisq.Waiting
	for _, w := range found {
		// A message that is not stored any more is for every claim: one that leases its job ends it.
		if task := all[w.ID]; task == "" || slices.Contains(tasks, task) {
			out = append(out, w)
		}
	}
	return out, nil
}

// lease leases up to n jobs of a consumer. A claim that names tasks costs a few calls.
func (p *Puller) lease(ctx context.Context, k *durable.Consumer, q claimRequest, n int) (redisq.Claim, error) {
	limits := p.limits(k)
	limits.Worker = q.worker
	if q.tasks == nil {
		return p.queue.Claim(ctx, k.No, n, q.timeout, limits)
	}
	c, err := p.queue.Claim(ctx, k.No, 0, q.timeout, redisq.Limits{})
	if err != nil || c.Ready == 0 {
		return c, err
	}
	if err = p.search(ctx, k, q, n, limits, &c); err != nil && len(c.Leases) > 0 {
		p.giveBack(k.No, c.Leases)
		c.Leases = nil
	}
	c.Ready = max(c.Ready-len(c.Leases), 0)
	return c, err
}

// search looks through the first jobs of a consumer, and adds up to n leases of those that fit to c.
func (p *Puller) search(ctx context.Context, k *durable.Consumer, q claimRequest, n int, limits redisq.Limits,
	c *redisq.Claim) error {
	var after *redisq.Cursor
	for seen := 0; seen < searched && len(c.Leases) < n && c.Limited == redisq.NoLimit; {
		found, err := p.queue.Peek(ctx, k.No, after, searchedAtOnce)
		if err != nil || len(found) == 0 {
			return err
		}
		seen += len(found)
		last := found[len(found)-1]
		after = &redisq.Cursor{Score: last.Score, ID: last.ID}
		fit, err := p.accepted(ctx, k, found, q.tasks)
		if err != nil {
			return err
		}
		if err := p.leaseEach(ctx, k, q, fit[:min(len(fit), n-len(c.Leases))], limits, c); err != nil {
			return err
		}
		if len(found) < searchedAtOnce {
			return nil
		}
	}
	return nil
}

// leaseEach leases jobs by their IDs, as far as the limits allow it. Those that others have leased
// meanwhile are left out.
func (p *Puller) leaseEach(ctx context.Context, k *durable.Consumer, q claimRequest, jobs []redisq.Waiting,
	limits redisq.Limits, c *redisq.Claim) error {
	if len(jobs) == 0 {
		return nil
	}
	wishes := make([]redisq.Wish, len(jobs))
	for i, w := range jobs {
		wishes[i] = redisq.Wish{Job: redisq.Job{ID: w.ID}, Lease: q.timeout, Limits: limits, Worker: q.worker}
	}
	grants, err := p.queue.ClaimEach(ctx, k.No, wishes)
	if err != nil {
		return err
	}
	for _, g := range grants {
		switch {
		case g.Lease.Token != "":
			c.Leases = append(c.Leases, g.Lease)
		case g.Limited && len(c.Leases) == 0:
			c.Limited, c.NextDue = redisq.ConcurrencyLimit, g.Wait
			if g.Wait > 0 {
				c.Limited = redisq.RateLimit
			}
		case g.Limited:
			return nil
		}
	}
	return nil
}

// pass hands a wake-up on that the ticket had no use for: the next one in the line may take other tasks.
// It never goes back to the begin of the line, so it ends.
func (t *ticket) pass() {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	for e := t.element.Next(); e != nil; e = e.Next() {
		select {
		case e.Value.(*ticket).wake <- struct{}{}:
			return
		default:
		}
	}
}
