// Package schedule sends scheduled messages when they are due.
//
// The store keeps a schedule from the moment of its 201. A Mover finds those that are due and
// publishes their messages like any others; the insert of such a message moves the schedule on in
// the same transaction, if the schedule waits for just this message. So two brokers, or one that
// repeats after a crash or a lost answer, send it once.
//
// Every broker has a Mover. One of them owns the work; the others look whether a message is late
// and then do it, so the end of the owner delays no message by more than its poll. A Mover sleeps
// until the next message is due, and reads one index entry at each poll otherwise.
//
// What is due at once goes in the order of time as long as one page holds it. What is more goes in
// turns: of producers, so that one with many messages delays nobody else's in whichever channel, and
// of the channels of a producer, so that one of them delays no other and a paused one costs nothing.
package schedule

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

const (
	// poll is the interval in which the store is asked for schedules of other brokers.
	poll = 400 * time.Millisecond
	// late is the delay from which a broker sends messages that another one should have sent.
	late = 300 * time.Millisecond
	// page and pageBytes bound the messages that are read and published at once.
	page      = 512
	pageBytes = 4 << 20
	// sweepTick is the interval at which schedules past their retention are removed; sweepPage is the
	// number that one transaction removes.
	sweepTick = time.Minute
	sweepPage = 500
	// lookTick is the interval of the look for deleted channels and producers, whose schedules end.
	// emptyAgain is that at which they are removed again: a broker with an old copy of the catalogue
	// may have stored one.
	lookTick   = 500 * time.Millisecond
	emptyAgain = time.Hour
	// sweepPause is the pause after a page, in times that the page took.
	sweepPause = 4
)

// A Store is the part of durable.Store that a Mover uses.
type Store interface {
	NextDue(ctx context.Context, afterMs int64) (int64, error)
	DueSchedules(ctx context.Context, nowMs int64, limit int) ([]durable.Due, error)
	DueLines(ctx context.Context, nowMs int64) ([]durable.DueLine, error)
	DueOfLines(ctx context.Context, nowMs int64, turns []durable.DueTurn) ([]durable.Due, error)
	ScheduledRows(ctx context.Context, ids []ident.ID) ([]*durable.Scheduled, error)
	PostponeScheduled(ctx context.Context, ids []ident.ID, nowMs, untilMs int64) error
	DropScheduled(ctx context.Context, id ident.ID) error
	RemoveScheduled(ctx context.Context, channelNo uint32, limit int) (int, error)
	EndScheduled(ctx context.Context, producerNo uint32, limit int) (int, error)
	ForgetScheduled(ctx context.Context, beforeMs int64, limit int) (int, error)
}

// A Cluster tells whether this broker owns the schedules, and the store's time.
type Cluster interface {
	Owns(consumer uint32) bool
	PastMs() int64 // the store's clock shows at least that
}

// Options of New.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Cluster   Cluster
	// Publish stores messages like those of producers, and returns one result each.
	Publish   func(ctx context.Context, msgs []*durable.Message) []error
	Quota     *quota.Quota  // what producers may store; nil: any amount
	Retention time.Duration // of schedules that are over, 0: for ever
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// A Mover is the part of one broker in sending scheduled messages.
type Mover struct {
	Options
	nearer chan struct{} // capacity 1: a schedule may be due before the end of the sleep
	sent   prometheus.Counter
	delay  prometheus.Histogram

	postponed prometheus.Counter
	told      map[uint32]time.Time // producers whose messages wait: when that was logged; only the send loop uses it

	emptied map[owner]time.Time // deleted ones: when their schedules were removed; only the sweep uses it

	passFor time.Duration // a constant, but for tests, in which the machine may be late
}

// New returns a mover. Nothing runs before Run.
func New(o Options) *Mover {
	m := &Mover{Options: o, nearer: make(chan struct{}, 1), emptied: map[owner]time.Time{}, told: map[uint32]time.Time{},
		passFor: passFor}
	m.sent = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_scheduled_sent_total",
		Help: "Messages of schedules that this broker sent."})
	m.postponed = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_scheduled_postponed_total",
		Help: "Messages of recurrences that wait ten seconds more, because their producer stores as much as it may."})
	m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "penstock_scheduled_delay_seconds",
		Help:    "Time from when a scheduled message was due until it was stored as a message.",
		Buckets: prometheus.ExponentialBuckets(.002, 2, 16)})
	if o.Registry != nil {
		o.Registry.MustRegister(m.sent, m.delay, m.postponed)
	}
	return m
}

// Accepted says that this broker stored a schedule. It never blocks.
func (m *Mover) Accepted(dueMs int64) {
	if dueMs > m.Cluster.PastMs()+poll.Milliseconds() {
		return
	}
	select {
	case m.nearer <- struct{}{}:
	default:
	}
}

// Run sends messages until ctx ends.
func (m *Mover) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { guard.Loop(ctx, "schedules", m.sendLoop) })
	wg.Go(func() { guard.Loop(ctx, "removal of schedules", m.sweepLoop) })
	wg.Wait()
}

func (m *Mover) sendLoop(ctx context.Context) {
	failing := false
	for {
		var wait time.Duration
		err := guard.Do("schedules", func() (err error) {
			wait, err = m.round(ctx)
			return err
		})
		if err != nil {
			wait = poll
			if !failing && ctx.Err() == nil {
				m.Log.Warn("scheduled messages are late; the broker tries again", "error", err)
			}
		}
		failing = err != nil
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-m.nearer:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// round sends what is due, and returns how long nothing else will be.
func (m *Mover) round(ctx context.Context) (time.Duration, error) {
	next, err := m.Store.NextDue(ctx, 0)
	if err != nil {
		return 0, err
	}
	until := m.until()
	if next == 0 || next > until {
		return sleep(next, until), nil
	}
	sent, err := m.pass(ctx, until)
	if err != nil || sent > 0 {
		return 0, err
	}
	// What is due now waits for its channel, or another broker sends it.
	if next, err = m.Store.NextDue(ctx, until); err != nil {
		return 0, err
	}
	return sleep(next, m.until()), nil
}

// until is the time up to which this broker sends what is due.
func (m *Mover) until() int64 {
	now := m.Cluster.PastMs()
	if !m.Cluster.Owns(0) {
		now -= late.Milliseconds()
	}
	return now
}

// sleep is the pause until a time, at most a poll.
func sleep(nextMs, nowMs int64) time.Duration {
	if nextMs == 0 {
		return poll
	}
	return min(max(time.Duration(nextMs-nowMs)*time.Millisecond, 0), poll)
}

// pass sends one message of each schedule that is due at untilMs, and returns how many it sent.
// Schedules of paused channels wait, and delay no others. What one page does not hold goes in turns.
func (m *Mover) pass(ctx context.Context, untilMs int64) (int, error) {
	due, err := m.Store.DueSchedules(ctx, untilMs, page)
	if err != nil {
		return 0, err
	}
	bytes := 0
	for _, d := range due {
		bytes += d.Bytes
	}
	if len(due) == page || bytes > pageBytes {
		return m.passInTurns(ctx)
	}
	var ids []ident.ID
	for _, d := range due {
		if !m.paused(d.ChannelNo) {
			ids = append(ids, d.ID)
		}
	}
	return m.sendPage(ctx, ids)
}

func (m *Mover) paused(channelNo uint32) bool {
	ch := m.Catalogue.ChannelByNo(channelNo)
	return ch != nil && ch.Closed()
}

// reads reports whether this broker can read a recurrence. One whose time zone its machine does not know
// waits for a broker that does.
func (m *Mover) reads(s *durable.Scheduled) bool {
	if s.Recurrence == "" {
		return true
	}
	_, err := Parse(s.Recurrence)
	if err != nil && m.tells(s.ProducerNo) {
		m.Log.Warn("this broker cannot read a recurrence, and leaves its messages to others", "schedule", s.ID, "recurrence",
			s.Recurrence, "error", err)
	}
	return err == nil
}

// sendPage sends the messages of some schedules that are due, and returns how many it sent.
func (m *Mover) sendPage(ctx context.Context, ids []ident.ID) (sent int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	found, err := m.Store.ScheduledRows(ctx, ids)
	if err != nil {
		return 0, err
	}
	now := m.Cluster.PastMs()
	found = slices.DeleteFunc(found, func(s *durable.Scheduled) bool {
		return s.Status != durable.ScheduleWaiting || s.DueMs > now || !m.reads(s)
	})
	slices.SortFunc(found, func(a, b *durable.Scheduled) int {
		if a.DueMs != b.DueMs {
			return int(min(max(a.DueMs-b.DueMs, -1), 1))
		}
		return a.ID.Compare(b.ID)
	})
	if len(found) == 0 {
		return 0, nil
	}
	found, taken, err := m.takeRoom(ctx, found, now)
	if len(found) == 0 {
		return 0, err
	}
	msgs := make([]*durable.Message, len(found))
	for i, s := range found {
		msgs[i] = message(s, now)
	}
	failpoint.At(failpoint.BeforeDispatch)
	errs := m.publish(ctx, msgs)
	tookIn(taken, msgs, errs)
	for i, e := range errs {
		switch {
		case e == nil:
			sent++
			m.sent.Inc()
			m.delay.Observe(max(0, time.Duration(msgs[i].ID.Millis()-found[i].DueMs)*time.Millisecond).Seconds())
		case errors.Is(e, catalogue.ErrUnknownProducer):
			err = errors.Join(err, m.Store.DropScheduled(ctx, found[i].ID))
		case errors.Is(e, durable.ErrMoved), problem.Paused(e),
			errors.Is(e, catalogue.ErrUnknownChannel):
		default:
			err = e
		}
	}
	failpoint.At(failpoint.AfterDispatch)
	return sent, err
}
