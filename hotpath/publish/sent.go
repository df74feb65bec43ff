package publish

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/request"
)

// A Sent is drafts on their way into the store.
type Sent struct {
	p      *Publisher
	ch     uint32
	in     policy.Intake // of the channel when they were submitted
	since  time.Time     // when they were complete
	drafts []*Draft
	sub    *accept.Submission // of their messages; nil: they have none, or the standby has them
	kept   Kept               // of their messages, where the journal may take them
	later  *scheduling        // of their schedules; nil: they have none
}

// Submit hands complete drafts of the sender over: their messages to the store, or to the journal where
// the channel allows it, their schedules to the store. It is the whole way in, over HTTP or not: a way
// in reads drafts, and writes what Wait has made of them. Drafts with an error are left alone. The slice
// is the submission's until Wait has returned.
func (w *Drafter) Submit(ctx context.Context, t accept.Terms, all []*Draft) Sent {
	s := Sent{p: w.p, ch: w.ch.No, in: w.ch.Intake, since: t.Since, drafts: all}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	w.rate(ctx, all)
	replicated := s.in.Ack == policy.AckReplicated
	var space [1]*durable.Message
	msgs := space[:0]
	if len(all) > 1 {
		msgs = make([]*durable.Message, 0, len(all))
	}
	var later []*durable.Scheduled
	for _, d := range all {
		if w.p.traces != nil && d.err == nil {
			d.span = w.p.traces.Send(d.message(), d.event.Traceparent, t.Since)
		}
		switch {
		case d.err != nil:
		case d.later != nil:
			d.later.Replicated = replicated
			later = append(later, d.later)
		default:
			if d.taken, d.err = w.p.quota.Take(w.producer.No, d.msg.Kept(), 0, 0); d.err == nil {
				d.msg.Replicated = replicated
				msgs = append(msgs, d.msg)
			}
		}
	}
	switch {
	case len(msgs) == 0:
	case s.in.Ack == policy.AckJournal && w.p.standby != nil:
		now := t
		now.Counted = 0 // the memory of a message that goes to the journal may outlive its request
		s.kept = w.p.standby.Submit(ctx, now, s.in.Budget.Duration(), slices.Clone(msgs))
		t.Counted = 0
	default:
		s.sub = w.p.Submitter.Submit(ctx, t, msgs...)
		t.Counted = 0
	}
	if len(later) > 0 {
		s.later = w.p.schedule(request.Keep(ctx), t, later) // a driver of a store may have it for longer
	}
	return s
}

// Wait waits until each draft has its outcome: an error, a receipt of the journal, or neither where it is
// stored. It gives their room back, tells the quota what became of them, and counts.
func (s *Sent) Wait() {
	switch {
	case s.sub != nil:
		defer s.sub.Release()
		s.sub.Wait()
	case s.kept != nil:
		defer s.kept.Release()
		s.kept.Wait()
	}
	if s.later != nil {
		<-s.later.done
	}
	messages, schedules, acked, trace := 0, 0, 0, ""
	for _, d := range s.drafts {
		switch {
		case d.err != nil: // before it was submitted
			s.traced(d, 0)
			continue
		case d.later != nil:
			d.err = s.later.results[schedules]
			schedules++
		default:
			s.outcome(messages, d)
			messages++
			tookIn(d.taken, d.msg, d.journalled, d.err)
			s.p.metrics.Answer(s.in.Ack, d.journalled, d.err)
		}
		if errors.Is(d.err, durable.ErrDuplicate) {
			if _, status := repeated(d.message(), s.in, d.err); status > 0 {
				s.p.metrics.Repeats.Inc()
			}
		}
		if d.err == nil {
			acked++
		}
		if d.span != nil {
			trace = d.span.Trace()
			s.traced(d, messages-1)
		}
	}
	if acked > 0 {
		took := time.Since(s.since)
		s.p.metrics.Book.Acked(s.ch, took, acked)
		metrics.Observe(s.p.metrics.AckSeconds, took.Seconds(), trace)
	}
}

// traced ends the span of a draft; i is the index of its message among those submitted.
func (s *Sent) traced(d *Draft, i int) {
	if d.span == nil {
		return
	}
	kind := ""
	switch _, status := repeated(d.message(), s.in, d.err); {
	case d.journalled:
		d.span.Journalled()
	case d.err == nil && d.later == nil && s.sub != nil:
		d.span.Committed(d.message(), s.sub.Together(i))
	case d.err == nil:
		d.span.Committed(d.message(), 0)
	case status == 0: // otherwise it repeats one that is stored
		kind = problem.From(d.err).Code
	}
	d.span.End(kind)
	d.span = nil
}

// outcome gives a draft the outcome of its message.
func (s *Sent) outcome(i int, d *Draft) {
	if s.sub != nil {
		d.err = s.sub.Outcome(i)
		return
	}
	d.err = s.kept.Outcome(i)
	d.receipt, d.journalled = s.kept.Receipt(i)
}

// tookIn tells the quota what became of a message.
func tookIn(taken quota.Taken, msg *durable.Message, journalled bool, err error) {
	switch {
	case journalled:
		taken.Messages(msg.ChannelNo, ident.ID{}, msg.Kept())
	case err == nil:
		taken.Messages(msg.ChannelNo, msg.ID, msg.Kept())
	default:
		taken.Messages(msg.ChannelNo, msg.ID, 0)
	}
}

// A scheduling is schedules on their way into the store.
type scheduling struct {
	results []error
	done    chan struct{} // closed with the last result
}

// schedule stores schedules in the background.
func (p *Publisher) schedule(ctx context.Context, t accept.Terms, batch []*durable.Scheduled) *scheduling {
	s := &scheduling{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := guard.Do("schedules", func() error {
			s.results = p.Schedule(ctx, t, batch)
			for i, err := range s.results {
				if errors.Is(err, durable.ErrPast) {
					s.results[i] = p.planner.tooSoon()
				}
			}
			return nil
		})
		if err != nil {
			s.results = slices.Repeat([]error{durable.ErrOutcomeUnknown}, len(batch))
		}
	}()
	return s
}
