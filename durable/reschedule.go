package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A ScheduleChange is what becomes another of a schedule that waits.
type ScheduleChange struct {
	ID      ident.ID
	Times   *Scheduled // DueMs, DelayMs and Recurrence; nil: they stay
	Content *Message   // all but the identity; nil: it stays

	// If is the schedule as it was seen, where it must not have changed since. UnmodifiedSince is as in
	// Put. A schedule that is another one by now is ErrPrecondition.
	If              *Scheduled
	UnmodifiedSince time.Time

	Replicated bool // as in Message
}

// ChangedAt is when the schedule was stored or changed, or had its last message.
func (m *Scheduled) ChangedAt() time.Time {
	at := m.ID.Time()
	for _, other := range []time.Time{m.MessageID.Time(), time.UnixMilli(m.ChangedMs)} {
		if other.After(at) {
			at = other
		}
	}
	return at
}

// times and content are the columns that a change sets.
func (m *Scheduled) times() columns {
	return m.columns().only("due_ms", "occurrence", "recurrence", "delay_ms", "changed_ms", "sent_before")
}

func (m *Scheduled) content() columns {
	return m.columns().only("priority", "ttl_ms", "content_type", "headers", "payload", "addressed")
}

var (
	updateScheduledTimes = `
UPDATE scheduled
SET` + new(Scheduled).times().sets() + `
WHERE id = ?`

	updateScheduledContent = `
UPDATE scheduled
SET` + new(Scheduled).content().sets() + `
WHERE id = ?`
)

const selectHasChange = `
SELECT COUNT(*)
FROM scheduled
WHERE id = ?
  AND changed_ms >= ?`

// ChangeScheduled changes a schedule and returns it. ErrDispatched and ErrNotFound are as of
// CancelScheduled.
//
// One transaction compares and changes, under the lock that the insert of a message takes. A broker
// that has read the schedule before the change, and comes to the insert after it, is told ErrMoved,
// because its Occurrence names another ChangedMs: it stores nothing of what was. A crash leaves the
// schedule as it was or as it is to be. A broker that slept until the former time finds an earlier one
// with its next poll.
func (s *Store) ChangeScheduled(ctx context.Context, c ScheduleChange) (now *Scheduled, err error) {
	if c.Content != nil {
		if err := storable(c.Content); err != nil {
			return nil, err
		}
	}
	if c.Replicated {
		if err := s.Replicates(ctx); err != nil {
			return nil, err
		}
	}
	err = s.run(ctx, transaction{name: "change a scheduled message"}, func(ctx context.Context, tx *sql.Tx) error {
		now, err = s.changeScheduled(ctx, tx, c)
		return err
	})
	switch {
	case err != nil && s.refusesRow(err):
		return nil, fmt.Errorf("%w: %w", ErrRejected, withoutValues(err))
	case err != nil:
		return nil, err
	case !c.Replicated:
		return now, nil
	}
	return now, s.confirm(ctx, func(ctx context.Context, conn *sql.Conn) error {
		var n int
		err := conn.QueryRowContext(ctx, selectHasChange, c.ID[:], now.ChangedMs).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("the schedule is not as it was changed any more")
		}
		return err
	})
}

func (s *Store) changeScheduled(ctx context.Context, tx *sql.Tx, c ScheduleChange) (*Scheduled, error) {
	row, err := selectOne[Scheduled](ctx, tx, list(s.dialect.sql(lockScheduled), 1), c.ID[:])
	if err != nil {
		return nil, orNotFound(err)
	}
	nowMs, err := s.now(ctx, tx)
	if err != nil {
		return nil, err
	}
	m := &row
	if m.Status != ScheduleWaiting || m.Recurrence == "" && m.DueMs <= nowMs {
		return nil, ErrDispatched
	}
	if c.If != nil && (m.ChangedMs != c.If.ChangedMs || m.No != c.If.No || m.DueMs != c.If.DueMs) {
		return nil, ErrPrecondition
	}
	was := row
	changed, put := m.ChangedAt(), Put{UnmodifiedSince: c.UnmodifiedSince}
	if err := put.check(true, changed); err != nil {
		return nil, err
	}
	m.ChangedMs = change{nowMs: nowMs}.stamp(put, true, changed)
	if t := c.Times; t != nil {
		// The numbers begin anew, and the IDs of messages go on: none is that of a message before.
		m.SentBefore, m.No = m.SentBefore+m.No, 0
		m.DueMs, m.DelayMs, m.Recurrence = t.DueMs, t.DelayMs, t.Recurrence
	}
	auditlog.Note(ctx, was, row)
	err = exec(ctx, tx, updateScheduledTimes, append(m.times().fields(), m.ID[:])...)
	if err != nil || c.Content == nil {
		return m, err
	}
	n := c.Content
	m.Priority, m.TTLMs, m.ContentType, m.Headers, m.Payload, m.Addressed = n.Priority, n.TTLMs, n.ContentType, n.Headers,
		n.Payload, n.Addressed
	return m, exec(ctx, tx, updateScheduledContent, append(m.content().fields(), m.ID[:])...)
}
