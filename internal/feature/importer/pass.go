package importer

import (
	"context"
	"errors"
	"time"
)

const (
	// mostTries is how often a page is tried again whose broker or database is away, by a run that does not follow.
	mostTries = 8
	// firstWait is the wait before the second try. Each doubles it up to lastWait.
	firstWait, lastWait = 250 * time.Millisecond, 15 * time.Second
)

// pass goes through the messages from a place on.
func (im *Importer) pass(ctx context.Context, p place) (*Report, error) {
	r := newReport()
	if err := im.again(ctx, func() error { *r = *newReport(); return im.resources(ctx, r) }); err != nil {
		return r, err
	}
	read, told := int64(0), time.Now()
	for {
		var last *message
		err := im.again(ctx, func() error {
			page, err := im.o.Old.page(ctx, p)
			if err != nil || len(page) == 0 {
				return err
			}
			if err := im.page(ctx, page, r); err != nil {
				return err
			}
			last = page[len(page)-1]
			read += int64(len(page))
			return nil
		})
		if err != nil {
			return r, err
		}
		if last == nil {
			return r, nil
		}
		p = place{row: last.row, after: true}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			im.o.Log.Info("messages are compared", "read", read, "imported", r.Imported)
		}
	}
}

const (
	// tellEvery is the time between two lines about a pass that takes long.
	tellEvery = 10 * time.Second
	// lookAgain is the least time between two looks at producers, channels and consumers.
	lookAgain = 2 * time.Second
)

// again calls f until it succeeds. What f has done before an error is done again without effect.
func (im *Importer) again(ctx context.Context, f func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := f()
		if err == nil || ctx.Err() != nil || try == mostTries || errors.Is(err, ErrNoOld) {
			return err
		}
		im.o.Log.Warn("the import waits, and tries again", "error", err, "wait", wait.String())
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
			wait = min(2*wait, lastWait)
		}
	}
}

// page brings the messages of a page here, with their jobs, and counts them.
func (im *Importer) page(ctx context.Context, page []*message, r *Report) error {
	plans, left, skipped, err := im.plans(ctx, page)
	if err != nil {
		return err
	}
	if err := im.find(ctx, plans); err != nil {
		return err
	}
	for part := range parts(plans) {
		if err := im.o.Old.contents(ctx, messagesOf(part)); err != nil {
			return err
		}
		err := im.store(ctx, part)
		for _, p := range part {
			p.payload, p.headers = nil, nil
		}
		if err != nil {
			return err
		}
	}
	ended := *r
	if err := im.end(ctx, plans, &ended); err != nil {
		return err
	}
	r.Ended, r.Left, r.Skipped = ended.Ended, r.Left+left, r.Skipped+skipped
	for _, p := range plans {
		im.tally(p, r)
	}
	return nil
}

// plans decides what becomes of the messages of a page. left are those that wait for the last run, skipped those
// that were not asked for.
func (im *Importer) plans(ctx context.Context, page []*message) (out []*plan, left, skipped int64, err error) {
	for _, m := range page {
		if m.status.Int64 == acknowledged && len(m.jobs) == 0 && im.o.Follow {
			left++
			continue
		}
		if im.o.OpenOnly && m.status.Int64 == dispatched && !m.busy() {
			skipped++
			continue
		}
		p := im.plan(m)
		if p.refused != nil && time.Since(im.looked) > lookAgain { // its consumer may be younger than the last look
			if err := im.resources(ctx, newReport()); err != nil {
				return nil, 0, 0, err
			}
			p = im.plan(m)
		}
		out = append(out, p)
	}
	return out, left, skipped, nil
}

// busy reports whether the message has a job that is not delivered.
func (m *message) busy() bool {
	for _, j := range m.jobs {
		if j.status != delivered {
			return true
		}
	}
	return false
}

// find finds out which messages are here.
func (im *Importer) find(ctx context.Context, plans []*plan) error {
	keys := map[uint32][]string{}
	for _, p := range plans {
		if p.refused == nil {
			keys[p.ch.No] = append(keys[p.ch.No], p.key)
		}
	}
	for no, of := range keys {
		found, err := im.o.Store.MessagesByKeys(ctx, no, of)
		if err != nil {
			return err
		}
		for _, p := range plans {
			if p.refused == nil && p.ch.No == no {
				p.stored = found[p.key]
			}
		}
	}
	return nil
}

// parts yields the messages that are not here, in parts whose payloads fit into memory together.
func parts(plans []*plan) func(yield func([]*plan) bool) {
	return func(yield func([]*plan) bool) {
		var part []*plan
		bytes := int64(0)
		for _, p := range plans {
			if p.refused != nil || !p.stored.IsZero() {
				continue
			}
			if len(part) > 0 && bytes+p.size.Int64 > pageBytes {
				if !yield(part) {
					return
				}
				part, bytes = nil, 0
			}
			part, bytes = append(part, p), bytes+p.size.Int64
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

func messagesOf(plans []*plan) []*message {
	out := make([]*message, len(plans))
	for i, p := range plans {
		out[i] = p.message
	}
	return out
}

// tally counts a message and its jobs.
func (im *Importer) tally(p *plan, r *Report) {
	if p.gone {
		return
	}
	here := int64(1)
	if p.refused != nil {
		here = 0
		im.refused(r, messages, p.id.String, p.refused)
	}
	if p.fresh {
		r.Imported++
	}
	r.count(messages, 1, here)
	for _, j := range p.jobs {
		switch {
		case j.status == delivered:
			r.count(jobsDelivered, 1, here)
		case j.status == dead:
			r.count(jobsDead, 1, here)
		default:
			r.count(jobsOpen, 1, here)
		}
	}
}

// refused counts a row that cannot be imported, and says why.
func (im *Importer) refused(r *Report, kind, id string, err error) {
	r.Refused++
	im.tell.tell("cannot be imported: %s %s: %s", kind[:len(kind)-1], quoted(id), err)
}
