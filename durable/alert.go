package durable

import (
	"context"
	"database/sql"
	"errors"
)

// An Event is what an alert is about.
type Event uint8

// The events. Their numbers are stored.
const (
	ConsumerDead Event = iota + 1
	ConsumerRevived
	ConsumerGone
	ConsumerSlow
	DLQGrowing
	BooksDiffer
	ConsumerLate
	ConsumerUnpolled
	ChannelSilent
	ArchiveFailing
)

// over is the bit of the event that ends an Alarm.
const over Event = 1 << 7

// Over returns the event that tells of the end of what an event told of.
func (e Event) Over() Event { return e | over }

// ofChannel reports whether the event is about a channel, not about a consumer.
func (e Event) ofChannel() bool { return e&^over == ChannelSilent || e&^over == ArchiveFailing }

// String returns the name of the event as clients see it.
func (e Event) String() string {
	name := [...]string{"", "consumer.dead", "consumer.revived", "consumer.gone", "consumer.slow", "dlq.growing",
		"books.differ", "consumer.late", "consumer.unpolled", "channel.silent",
		"archive.failing"}[min(e&^over, ArchiveFailing)]
	if e&over != 0 {
		name += ".over"
	}
	return name
}

// A Sink is a place that alerts go to.
type Sink uint8

// The sinks, whose numbers are stored. Every alert goes to the channel. Rows of the other two are of releases that
// handed alerts on themselves.
const (
	AlertChannel Sink = iota
	AlertMail
	AlertWebhook
)

// An Alert is on its way to one sink. Sink, AtMs, ConsumerNo and Event identify it.
type Alert struct {
	Sink       Sink
	Event      Event
	ConsumerNo uint32 // of an alert about a channel, the channel
	ChannelID  string
	ConsumerID string // "": the alert is about the channel
	AtMs       int64  // Unix ms of what happened; of a transition, StateMs of the consumer
	Reason     string
	Tries      int // claims so far
}

const (
	selectChannelID = `
SELECT id
FROM channels
WHERE no = ?`

	selectNextAlert = `
SELECT COALESCE(MIN(next_ms), 0)
FROM alerts
WHERE sink = ?
  AND next_ms > ?`

	claimAlert = `
UPDATE alerts
SET
    tries = tries + 1,
    next_ms = ?
WHERE sink = ?
  AND at_ms = ?
  AND consumer_no = ?
  AND event = ?
  AND tries = ?`

	deleteAlert = `
DELETE FROM alerts
WHERE sink = ?
  AND at_ms = ?
  AND consumer_no = ?
  AND event = ?`

	deleteOldAlerts = `
DELETE FROM alerts
WHERE sink > 0
  AND at_ms < ?`
)

func (a *Alert) columns() columns {
	return columns{
		{"sink", &a.Sink},
		{"event", &a.Event},
		{"consumer_no", &a.ConsumerNo},
		{"channel_id", asBytes{&a.ChannelID}},
		{"consumer_id", asBytes{&a.ConsumerID}},
		{"at_ms", &a.AtMs},
		{"reason", asBytes{&a.Reason}},
		{"tries", &a.Tries},
	}
}

// made are the columns of a new row, which is due at once.
func (a *Alert) made() columns {
	return a.columns().only("sink", "at_ms", "consumer_no", "event", "channel_id", "consumer_id", "reason")
}

var (
	selectDueAlerts = `
SELECT` + new(Alert).columns().names() + `
FROM alerts
WHERE sink = ?
  AND next_ms <= ?
ORDER BY at_ms, consumer_no, event
LIMIT ?`

	insertAlert = ignoring(`
INSERT INTO alerts (` + new(Alert).made().names() + `,
    tries,
    next_ms
)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)`)
)

// eventOf returns the event of a transition, with the reason of an active consumer. 0: there is
// no alert, because a pause and its end are requests, and a probe decides nothing yet.
func eventOf(from, to ConsumerState) (event Event, reason string) {
	switch {
	case to == StateDead:
		return ConsumerDead, ""
	case to == StateGone:
		return ConsumerGone, ""
	case to == StateActive && from == StateProbing:
		return ConsumerRevived, "the probe after the revival was answered"
	case to == StateActive && (from == StateDead || from == StateGone):
		return ConsumerRevived, "revived by a request"
	}
	return 0, ""
}

// alertOf stores event, time and reason of an alert about a consumer, on its way to the channel.
func (s *Store) alertOf(ctx context.Context, tx *sql.Tx, k *Consumer, a Alert) error {
	if err := tx.QueryRowContext(ctx, selectChannelID, k.ChannelNo).Scan(&a.ChannelID); err != nil {
		return err
	}
	a.Sink, a.ConsumerNo, a.ConsumerID, a.Reason = AlertChannel, k.No, k.ID, cutReason(a.Reason)
	return exec(ctx, tx, s.dialect.sql(insertAlert), a.made().fields()...)
}

// RaiseAlert stores consumer, event, time and reason of an alert, unless the alert is on its way
// already. ErrNotFound: there is no such consumer or channel.
func (s *Store) RaiseAlert(ctx context.Context, a Alert) error {
	return s.run(ctx, transaction{name: "raise an alert", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		return s.raise(ctx, tx, a)
	})
}

func (s *Store) raise(ctx context.Context, tx *sql.Tx, a Alert) error {
	if a.Event.ofChannel() {
		return orNotFound(s.alertOf(ctx, tx, &Consumer{No: a.ConsumerNo, ChannelNo: a.ConsumerNo}, a))
	}
	k, err := selectOne[Consumer](ctx, tx, selectConsumerByNo, a.ConsumerNo)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	return s.alertOf(ctx, tx, &k, a)
}

// DueAlerts returns up to limit alerts that a sink may be given now, the oldest first, and the
// time from which the sink may be given another one; 0: none waits.
func (s *Store) DueAlerts(ctx context.Context, sink Sink, nowMs int64, limit int) (due []Alert, nextMs int64,
	err error) {
	err = repeat(ctx, "read alerts", func(ctx context.Context) error {
		if due, err = selectAll[Alert](ctx, s.reads, selectDueAlerts, sink, nowMs, limit); err != nil {
			return err
		}
		return s.reads.QueryRowContext(ctx, selectNextAlert, sink, nowMs).Scan(&nextMs)
	})
	return due, nextMs, err
}

// ClaimAlert gives one caller the right to hand on an alert until untilMs, and counts the try.
func (s *Store) ClaimAlert(ctx context.Context, a Alert, untilMs int64) (claimed bool, err error) {
	err = repeat(ctx, "claim an alert", func(ctx context.Context) error {
		res, err := s.db.ExecContext(ctx, claimAlert, untilMs, a.Sink, a.AtMs, a.ConsumerNo, a.Event, a.Tries)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		claimed = n == 1
		return err
	})
	return claimed, err
}

// FinishAlert ends the way of an alert to its sink. A second call changes nothing.
func (s *Store) FinishAlert(ctx context.Context, a Alert) error {
	return repeat(ctx, "finish an alert", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteAlert, a.Sink, a.AtMs, a.ConsumerNo, a.Event)
	})
}

// ForgetAlerts removes alerts from before a time that an older release stored for a mail server or webhook.
func (s *Store) ForgetAlerts(ctx context.Context, beforeMs int64) error {
	return repeat(ctx, "forget alerts", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteOldAlerts, beforeMs)
	})
}
