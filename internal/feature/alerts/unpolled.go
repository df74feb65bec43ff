package alerts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
)

const (
	// mostContacts is the number of consumers whose contacts one round asks Redis for, and mostAsked that of
	// those whose why it reads. The next round goes on after them.
	mostContacts = 500
	mostAsked    = 50
)

// polling looks for pull consumers with due jobs that no worker asks for. What that means is said in one
// place: it is the reason no_worker of the why of the consumer.
func (w *watch) polling(ctx context.Context, s *sampler.Sample, open map[uint32]int64) error {
	for no, since := range open {
		reason, err := w.polled(ctx, no, since, s)
		if err == nil && reason != "" {
			err = w.close(ctx, durable.ConsumerUnpolled, no, reason)
		}
		if err != nil {
			return err
		}
	}
	contacts, asked := 0, 0
	for _, no := range w.turn(s, w.asked) {
		if _, ok := open[no]; ok {
			continue
		}
		if contacts == mostContacts || asked == mostAsked {
			return nil
		}
		w.asked = no
		contacts++
		_, contact, renewal, _, err := w.Contacts.LastContact(ctx, no)
		if err != nil || !w.quietFor(no, s.At, contact, renewal) {
			continue
		}
		asked++
		if err := w.ask(ctx, no, s); err != nil {
			return err
		}
	}
	return nil
}

// quietFor reports whether no worker was heard of for the time of no_worker. A Redis that was wiped has
// forgotten the contacts, and an embedded broker that was restarted, too: without a contact the time counts from
// the first look.
func (w *watch) quietFor(no uint32, now time.Time, contact, renewal time.Time) bool {
	last := contact
	if renewal.After(last) {
		last = renewal
	}
	if !last.IsZero() {
		delete(w.unheard, no)
		return now.Sub(last) >= w.NoWorkerAfter
	}
	first, ok := w.unheard[no]
	if !ok {
		first = now
		w.unheard[no] = first
	}
	return now.Sub(first) >= w.NoWorkerAfter
}

// turn returns the pull consumers that have due jobs which are old enough, those after a number first.
func (w *watch) turn(s *sampler.Sample, after uint32) (due []uint32) {
	for no, l := range s.Of {
		if l.Known && l.Waiting > l.Delayed && unheld(w.o.Catalogue.ConsumerByNo(no)) {
			due = append(due, no)
		}
	}
	maps.DeleteFunc(w.unheard, func(no uint32, _ time.Time) bool {
		l := s.Of[no]
		return l.Known && l.Waiting == l.Delayed
	})
	slices.SortFunc(due, func(a, b uint32) int { return cmp.Compare(a-after-1, b-after-1) }) // it wraps around
	return due
}

// unheld reports whether workers could have the due jobs of a consumer.
func unheld(k *durable.Consumer) bool {
	return k != nil && k.Type == durable.Pull && k.State == durable.StateActive
}

func (w *watch) ask(ctx context.Context, no uint32, s *sampler.Sample) error {
	k := w.o.Catalogue.ConsumerByNo(no)
	ch := w.o.Catalogue.ChannelByNo(k.ChannelNo)
	if ch == nil {
		return nil
	}
	r, ok := w.NoWorker(ctx, ch, k)
	if !ok {
		return nil
	}
	reason := fmt.Sprintf("%d jobs are due", r.Jobs)
	if r.Jobs == 1 {
		reason = "1 job is due"
	}
	if r.Approximate {
		reason = "about " + reason
	}
	reason += ", and no worker has claimed, listed, moved or renewed a job"
	if r.Since != nil {
		reason += fmt.Sprintf(" for %s, since %s", age(s.At.Sub(r.Since.Time)), r.Since.UTC().Format(time.RFC3339))
	}
	return w.raise(ctx, durable.ConsumerUnpolled, no, reason)
}

// polled says why a consumer is not without workers any more; "": it is, or that is not known.
func (w *watch) polled(ctx context.Context, no uint32, since int64, s *sampler.Sample) (string, error) {
	k := w.o.Catalogue.ConsumerByNo(no)
	switch {
	case k == nil || k.Deleted():
		return "the consumer was deleted", nil
	case k.Type != durable.Pull:
		return "the consumer is a push consumer now", nil
	case k.State != durable.StateActive:
		return "the consumer is " + k.State.String(), nil
	}
	l := s.Of[no]
	if l.Known && !l.AtLeast && l.Waiting == l.Delayed {
		return "no due job waits", nil
	}
	_, contact, renewal, _, err := w.Contacts.LastContact(ctx, no)
	if err != nil { // Redis does not say
		return "", nil
	}
	last := contact
	if renewal.After(last) {
		last = renewal
	}
	if last.UnixMilli() <= since {
		return "", nil
	}
	return "a worker asked for jobs, at " + last.UTC().Format(time.RFC3339), nil
}
