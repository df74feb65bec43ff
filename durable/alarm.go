package durable

import (
	"context"
	"database/sql"
)

// An Alarm is a state that was alerted and whose end was not: a row of open_alarms. The row and the alert
// are written in one transaction, and so are the removal of the row and the alert of the end. So each
// opening is one alert and each end is one, however many brokers look, and whatever crashes.
type Alarm struct {
	Event   Event
	No      uint32 // consumer; of ChannelSilent the channel
	SinceMs int64  // AtMs of the alert
}

func (a *Alarm) columns() columns {
	return columns{
		{"event", &a.Event},
		{"subject_no", &a.No},
		{"since_ms", &a.SinceMs},
	}
}

var (
	selectAlarms = `
SELECT` + new(Alarm).columns().names() + `
FROM open_alarms
ORDER BY event, subject_no`

	insertAlarm = ignoring(`
INSERT INTO open_alarms (` + new(Alarm).columns().names() + `
)
VALUES (?, ?, ?)`)
)

const deleteAlarm = `
DELETE FROM open_alarms
WHERE event = ?
  AND subject_no = ?`

// Alarms returns the alarms that are open.
func (s *Store) Alarms(ctx context.Context) ([]Alarm, error) {
	return readAll[Alarm](ctx, s, "read open alarms", selectAlarms)
}

// OpenAlarm stores that a state began, with the alert of it: event, consumer (or channel), time and reason of
// a. opened is true for one of several callers until CloseAlarm. ErrNotFound: there is no such consumer.
func (s *Store) OpenAlarm(ctx context.Context, a Alert) (opened bool, err error) {
	return s.alarm(ctx, "open an alarm", a, func(ctx context.Context, tx *sql.Tx) (sql.Result, error) {
		row := Alarm{Event: a.Event, No: a.ConsumerNo, SinceMs: a.AtMs}
		return tx.ExecContext(ctx, s.dialect.sql(insertAlarm), row.columns().fields()...)
	})
}

// CloseAlarm stores that a state ended, with the alert of its end. closed is true for one of several callers
// after OpenAlarm. The consumer may be deleted.
func (s *Store) CloseAlarm(ctx context.Context, a Alert) (closed bool, err error) {
	event := a.Event
	a.Event = event.Over()
	return s.alarm(ctx, "close an alarm", a, func(ctx context.Context, tx *sql.Tx) (sql.Result, error) {
		return tx.ExecContext(ctx, deleteAlarm, event, a.ConsumerNo)
	})
}

// alarm raises an alert where a statement changes a row.
func (s *Store) alarm(ctx context.Context, name string, a Alert,
	change func(context.Context, *sql.Tx) (sql.Result, error)) (changed bool, err error) {
	err = s.run(ctx, transaction{name: name, harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		changed = false
		res, err := change(ctx, tx)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		changed = true
		return s.raise(ctx, tx, a)
	})
	return changed && err == nil, err
}
