package importer

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/publish"
)

// soon is how long before its time a scheduled message is stored as one that is sent at once.
const soon = 2 * time.Second

// scheduled brings the scheduled messages here that wait for their time. Those whose time has come are sent.
func (im *Importer) scheduled(ctx context.Context, r *Report) error {
	after := ""
	for {
		var m *message
		err := im.again(ctx, func() (err error) {
			if m, err = im.o.Old.nextScheduled(ctx, after); err != nil || m == nil {
				return err
			}
			after = m.row
			return im.schedule(ctx, m, r)
		})
		if err != nil || m == nil {
			return err
		}
	}
}

// schedule brings one scheduled message here.
func (im *Importer) schedule(ctx context.Context, m *message, r *Report) error {
	if im.o.Follow { // the old broker sends it, if its time comes before the switch
		r.Left++
		return nil
	}
	m.status.Int64 = acknowledged // for all consumers of its channel
	p := im.plan(m)
	if p.refused == nil {
		here, err := im.isScheduled(ctx, p)
		if err != nil {
			return err
		}
		if !here {
			err = im.plant(ctx, p)
		}
		var no *refusal
		switch {
		case errors.As(err, &no):
			p.refused = no
		case err != nil:
			return err
		}
	}
	if p.refused != nil {
		im.refused(r, schedules, m.id.String, p.refused)
		r.count(schedules, 1, 0)
		return nil
	}
	r.count(schedules, 1, 1)
	return nil
}

// isScheduled reports whether a scheduled message is here, or was sent here.
func (im *Importer) isScheduled(ctx context.Context, p *plan) (bool, error) {
	_, err := im.o.Store.ScheduledByKey(ctx, p.ch.No, p.key)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, durable.ErrNotFound) {
		return false, err
	}
	found, err := im.o.Store.MessagesByKeys(ctx, p.ch.No, []string{p.key})
	return len(found) > 0, err
}

// plant stores a scheduled message. Its error is a *refusal, or that of the store.
func (im *Importer) plant(ctx context.Context, p *plan) error {
	if p.dueMs < im.o.NowMs()+soon.Milliseconds() {
		p.dueMs = 0
	}
	w, d, err := im.draft(ctx, p)
	if err != nil {
		return err
	}
	defer d.Free()
	if im.o.DryRun {
		return nil
	}
	s := w.Submit(ctx, accept.Terms{Patience: accept.LinePatience, Lines: true}, []*publish.Draft{d})
	s.Wait()
	err = d.Err()
	if errors.Is(err, durable.ErrDuplicate) {
		return nil
	}
	return refusalOf(err)
}
