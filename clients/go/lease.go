package penstock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// leases are the leases that the worker has, by job. They are renewed at a third of their length from a
// goroutine that handlers cannot block, until the broker has answered the report of the job.
type leases struct {
	w       *Worker
	mu      sync.Mutex
	held    map[string]*Delivery
	changed chan struct{} // has a token when a lease was added
}

// add begins to renew a lease. Its length counts from now: the clock of the broker may differ.
func (l *leases) add(d *Delivery) {
	l.mu.Lock()
	now := time.Now()
	d.renewAt, d.until = now.Add(l.w.o.Lease/3), now.Add(l.w.o.Lease)
	if before := l.held[d.ID]; before != nil {
		l.lose(before, "the broker gave the job out again")
	}
	l.held[d.ID] = d
	l.mu.Unlock()
	wake(l.changed)
}

// remove ends the renewal of a lease whose report is answered.
func (l *leases) remove(d *Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[d.ID] == d {
		delete(l.held, d.ID)
	}
	d.cancel(nil)
}

// state reports whether the lease of a job is lost.
func (l *leases) state(d *Delivery) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.lost
}

func (l *leases) all() []*Delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*Delivery, 0, len(l.held))
	for _, d := range l.held {
		out = append(out, d)
	}
	return out
}

// cancelAll tells the handlers why they should end.
func (l *leases) cancelAll(cause error) {
	for _, d := range l.all() {
		d.cancel(cause)
	}
}

// giveBackAll sends back the jobs of handlers that have not ended.
func (l *leases) giveBackAll() {
	for _, d := range l.all() {
		l.w.settle(d, GiveBack(0, "the worker stops"))
	}
}

// renew renews what is due, until the context ends.
func (l *leases) renew(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	var b backoff
	for {
		due, next, end := l.due(time.Now())
		if len(due) == 0 {
			t.Reset(next)
			select {
			case <-ctx.Done():
				return
			case <-l.changed:
			case <-t.C:
			}
			continue
		}
		err := l.extend(ctx, due, end)
		if err == nil {
			b = backoff{}
		} else if ctx.Err() == nil {
			l.w.log.Warn("penstock: leases could not be renewed", "jobs", len(due), "error", err)
			l.postpone(due, b.next(retryAfter(err)))
		} else {
			return
		}
	}
}

// due returns up to 500 leases to renew now, else the time until the next one. Leases that nobody renewed in
// time are lost. end is when the first of the others ends.
func (l *leases) due(now time.Time) (due []*Delivery, next time.Duration, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, end = time.Hour, now.Add(time.Hour)
	soon := now.Add(l.w.o.Lease / 30) // together with those that are nearly due
	for _, d := range l.held {
		switch {
		case d.lost:
		case !now.Before(d.until):
			l.lose(d, "it was not renewed before its end")
		default:
			next = min(next, d.renewAt.Sub(now), d.until.Sub(now))
			if d.until.Before(end) {
				end = d.until
			}
			if d.renewAt.Before(soon) && len(due) < mostUpdates {
				due = append(due, d)
			}
		}
	}
	if next > 0 {
		return nil, max(next, time.Millisecond), end
	}
	return due, 0, end
}

// lose tells the handler of a job that its lease is lost. l.mu is held.
func (l *leases) lose(d *Delivery, why string) {
	if d.lost || d.reported {
		return
	}
	d.lost = true
	l.w.log.Warn("penstock: a lease is lost", "job", d.ID, "message", d.MessageID, "task", d.Task, "why", why)
	d.cancel(fmt.Errorf("%w: %s", ErrLeaseLost, why))
}

// postpone tries leases again after a wait, at the latest in the middle of what is left of them.
func (l *leases) postpone(due []*Delivery, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, d := range due {
		half := max(d.until.Sub(now)/2, 100*time.Millisecond)
		d.renewAt = now.Add(min(wait, half))
	}
}

// extend sends one renewal, and takes what it is answered until the first lease ends.
func (l *leases) extend(ctx context.Context, due []*Delivery, end time.Time) error {
	length := l.w.o.Lease
	ctx, cancel := context.WithTimeout(ctx, min(length/3, max(time.Until(end), 10*time.Millisecond)))
	defer cancel()
	updates := make([]update, len(due))
	for i, d := range due {
		updates[i] = update{ID: d.ID, Lease: d.token, NextState: "INFLIGHT", Timeout: int64(length / time.Second)}
	}
	sent := time.Now()
	results, err := l.w.move(ctx, updates)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, d := range due {
		switch status := results[i].Status; {
		case status == 202:
			d.renewAt, d.until = sent.Add(length/3), sent.Add(length)
		case status == 408 || status == 429 || status >= 500:
			d.renewAt = sent.Add(length / 6)
		default: // 409 lease_lost, 404 job_not_found
			d.renewAt = sent.Add(length / 3) // of one whose report is under way
			l.lose(d, "the broker says "+results[i].Code)
		}
	}
	return nil
}
