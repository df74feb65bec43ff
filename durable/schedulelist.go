package durable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

var selectSchedules = `
SELECT` + new(Scheduled).outline().names() + `
FROM scheduled
WHERE channel_no = ?
  AND status = ?
  AND due_ms >= ?
  AND (due_ms > ? OR id >= ?)
ORDER BY due_ms, id
LIMIT ?`

const (
	countScheduled = `
SELECT COUNT(*)
FROM (
    SELECT 1
    FROM scheduled
    WHERE channel_no = ?
      AND status = ?
    LIMIT ?
) counted`

	countMessages = `
SELECT COUNT(*)
FROM (
    SELECT 1
    FROM messages
    WHERE channel_no = ?
    LIMIT ?
) counted`

	selectNextOfChannel = `
SELECT COALESCE(
    (
        SELECT due_ms
        FROM scheduled
        WHERE channel_no = ?
          AND status = 0
        ORDER BY due_ms
        LIMIT 1
    ),
    0
)`

	selectOldScheduled = `
SELECT id
FROM scheduled
WHERE status = 1
  AND due_ms < ?
ORDER BY due_ms
LIMIT ?`

	selectScheduledOf = `
SELECT id
FROM scheduled
WHERE channel_no = ?
LIMIT ?`

	selectScheduledBy = `
SELECT id
FROM scheduled
WHERE producer_no = ?
  AND status = 0
LIMIT ?`
)

// outline are the columns of a list.
func (m *Scheduled) outline() columns {
	return m.columns().only("id", "channel_no", "producer_no", "status", "due_ms", "msg_key")
}

// Schedules returns up to limit schedules of a channel with one of the statuses, without their
// content, in the order of their times. from, if not nil, is the first one.
func (s *Store) Schedules(ctx context.Context, channelNo uint32, statuses []ScheduleStatus, from *Scheduled,
	limit int) (found []*Scheduled, err error) {
	start := Scheduled{}
	if from != nil {
		start = *from
	}
	err = repeat(ctx, "list scheduled messages", func(ctx context.Context) error {
		found = nil
		for _, status := range statuses {
			rows, err := selectOf(ctx, s.reads, (*Scheduled).outline, selectSchedules, channelNo, status, start.DueMs,
				start.DueMs, start.ID[:], limit)
			if err != nil {
				return err
			}
			found = append(found, pointersTo(rows)...)
		}
		return nil
	})
	slices.SortFunc(found, func(a, b *Scheduled) int { return cmp.Or(cmp.Compare(a.DueMs, b.DueMs), a.ID.Compare(b.ID)) })
	return found[:min(len(found), limit)], err
}

// Counts are the numbers of messages and schedules of a channel, each up to a limit.
type Counts struct {
	Messages, Waiting, Over int
	NextMs                  int64 // when the next scheduled message is due, 0: none waits
}

// Count counts the messages and schedules of a channel. It reads at most limit index entries of
// each kind.
func (s *Store) Count(ctx context.Context, channelNo uint32, limit int) (c Counts, err error) {
	err = repeat(ctx, "count messages", func(ctx context.Context) error {
		return errors.Join(
			s.reads.QueryRowContext(ctx, countMessages, channelNo, limit).Scan(&c.Messages),
			s.reads.QueryRowContext(ctx, countScheduled, channelNo, ScheduleWaiting, limit).Scan(&c.Waiting),
			s.reads.QueryRowContext(ctx, countScheduled, channelNo, ScheduleOver, limit).Scan(&c.Over),
			s.reads.QueryRowContext(ctx, selectNextOfChannel, channelNo).Scan(&c.NextMs),
		)
	})
	return c, err
}

// ForgetScheduled removes up to limit schedules that are over and whose last message was due
// before a time, and returns their number.
func (s *Store) ForgetScheduled(ctx context.Context, beforeMs int64, limit int) (int, error) {
	return s.removeScheduled(ctx, selectOldScheduled, beforeMs, limit)
}

// RemoveScheduled removes up to limit schedules of a channel, and returns their number.
func (s *Store) RemoveScheduled(ctx context.Context, channelNo uint32, limit int) (int, error) {
	return s.removeScheduled(ctx, selectScheduledOf, channelNo, limit)
}

// EndScheduled removes up to limit schedules of a producer that wait, and returns their number.
func (s *Store) EndScheduled(ctx context.Context, producerNo uint32, limit int) (int, error) {
	return s.removeScheduled(ctx, selectScheduledBy, producerNo, limit)
}

// DropScheduled removes a schedule, whatever its status.
func (s *Store) DropScheduled(ctx context.Context, id ident.ID) error {
	return s.run(ctx, transaction{name: "remove a scheduled message", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		return s.dropAll(ctx, tx, []ident.ID{id})
	})
}

func (s *Store) removeScheduled(ctx context.Context, query string, of any, limit int) (removed int, err error) {
	err = s.run(ctx, transaction{name: "remove scheduled messages", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		ids, err := selectIDs(ctx, tx, query, []any{of, limit})
		if removed = len(ids); err != nil || removed == 0 {
			return err
		}
		return s.dropAll(ctx, tx, ids)
	})
	return removed, err
}

func (s *Store) dropAll(ctx context.Context, tx *sql.Tx, ids []ident.ID) error {
	slices.SortFunc(ids, ident.ID.Compare)
	found, err := selectAll[Scheduled](ctx, tx, list(s.dialect.sql(lockScheduled), len(ids)), idArgs(ids)...)
	if err != nil {
		return err
	}
	for _, m := range found {
		if err := s.dropScheduled(ctx, tx, &m); err != nil {
			return err
		}
	}
	return nil
}
