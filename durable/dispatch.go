package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	selectNextDue = `
SELECT COALESCE(
    (
        SELECT due_ms
        FROM scheduled
        WHERE status = 0
          AND due_ms > ?
        ORDER BY due_ms
        LIMIT 1
    ),
    0
)`

	// The time of a schedule that another broker has moved on since is not due.
	postponeScheduled = `
UPDATE scheduled
SET due_ms = ?
WHERE status = 0
  AND due_ms <= ?
  AND id IN (?...)`

	deleteReserved = `
DELETE FROM message_keys
WHERE channel_no = ?
  AND msg_key IN (?...)`

	moveOn = `
UPDATE scheduled
SET
    due_ms = ?,
    occurrence = ?,
    message_id = ?
WHERE id = ?`
)

// stand are the columns that say which message a schedule waits for.
func (m *Scheduled) stand() columns {
	return m.columns().only("id", "status", "occurrence", "message_id", "changed_ms")
}

var (
	selectDue = `
SELECT` + new(Due).columns().names() + `
FROM scheduled
WHERE status = 0
  AND due_ms <= ?
ORDER BY due_ms, id
LIMIT ?`

	// A row that another transaction holds is left out: that transaction moves it, or deletes it.
	lockStanding = locking(`
SELECT`+new(Scheduled).stand().names()+`
FROM scheduled
WHERE id IN (?...)`, updateLock+" SKIP LOCKED")
)

// NextDue returns the time after afterMs at which the next scheduled message is due; 0: none.
func (s *Store) NextDue(ctx context.Context, afterMs int64) (ms int64, err error) {
	err = repeat(ctx, "find the next scheduled message", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectNextDue, afterMs).Scan(&ms)
	})
	return ms, err
}

// DueSchedules returns up to limit schedules that are due at nowMs, in the order of time and ID.
func (s *Store) DueSchedules(ctx context.Context, nowMs int64, limit int) ([]Due, error) {
	return s.due(ctx, selectDue, nowMs, limit)
}

// PostponeScheduled gives schedules that are due at nowMs a later time.
func (s *Store) PostponeScheduled(ctx context.Context, ids []ident.ID, nowMs, untilMs int64) error {
	return repeat(ctx, "postpone scheduled messages", func(ctx context.Context) error {
		return exec(ctx, s.db, list(postponeScheduled, len(ids)), append([]any{untilMs, nowMs}, idArgs(ids)...)...)
	})
}

// ScheduledRows returns schedules by their IDs, in any order; those that are gone are left out.
func (s *Store) ScheduledRows(ctx context.Context, ids []ident.ID) ([]*Scheduled, error) {
	return s.scheduledRows(ctx, s.reads, list(selectScheduledByID, len(ids)), idArgs(ids))
}

// splitScheduled returns the entries that are no occurrences, and those that are.
func splitScheduled(all []entry) (plain, scheduled []entry) {
	of := func(e entry) bool { return e.Occurrence != nil }
	if !slices.ContainsFunc(all, of) {
		return all, nil
	}
	for _, e := range all {
		if of(e) {
			scheduled = append(scheduled, e)
		} else {
			plain = append(plain, e)
		}
	}
	return plain, scheduled
}

// insertOccurrences stores a part of messages of schedules in one transaction, and sets a result
// for every entry. Besides those of Insert there is ErrMoved. A part with a message that cannot be
// stored is halved until that message is alone.
func (s *Store) insertOccurrences(ctx context.Context, node NodeLease, part []entry, errs []error) {
	if len(part) == 0 {
		return
	}
	// A repeat after a lost answer finds the messages of the first run in their schedules.
	err := s.run(ctx, transaction{name: "dispatch", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		todo, err := s.standing(ctx, tx, part, errs)
		if err != nil || len(todo) == 0 {
			return err
		}
		slices.SortFunc(todo, byKey)
		if err := s.freeReserved(ctx, tx, todo); err != nil {
			return err
		}
		if s.dialect == sqliteDialect {
			todo, err = s.storeOccurrencesSQLite(ctx, tx, node, todo, errs)
		} else {
			w := newBuilder()
			defer w.release()
			_, err = s.sendRows(ctx, tx, w, node, todo)
		}
		if err != nil || len(todo) == 0 {
			return err
		}
		spread(todo, errs, nil)
		return s.moveOn(ctx, tx, todo)
	})
	switch {
	case err == nil:
	case s.dialect != sqliteDialect && classify(err) == stale || errors.Is(err, ErrStale):
		spread(part, errs, ErrStale)
	case !s.refusesRow(err):
		spread(part, errs, err)
	case len(part) > 1:
		s.insertOccurrences(ctx, node, part[:len(part)/2], errs)
		s.insertOccurrences(ctx, node, part[len(part)/2:], errs)
	case s.dialect != sqliteDialect && classify(err) == bad:
		spread(part, errs, fmt.Errorf("%w: %w", ErrRejected, withoutValues(err)))
	default:
		spread(part, errs, ErrConflict)
	}
}

// standing locks the schedules of a part and returns the entries that they wait for. It sets the
// results of the others: nil where an earlier commit stored this very message.
func (s *Store) standing(ctx context.Context, tx *sql.Tx, part []entry, errs []error) (todo []entry, err error) {
	ids := make([]ident.ID, len(part))
	for i, e := range part {
		ids[i] = e.Occurrence.Of
	}
	slices.SortFunc(ids, ident.ID.Compare)
	found := map[ident.ID]Scheduled{}
	err = eachOf(ctx, tx, (*Scheduled).stand, list(s.dialect.sql(lockStanding), len(ids)), idArgs(ids),
		func(m *Scheduled) { found[m.ID] = *m })
	for _, e := range part {
		m, ok := found[e.Occurrence.Of]
		switch {
		case ok && m.MessageID == e.ID:
			errs[e.i] = nil
		case !ok || m.Status != ScheduleWaiting || m.No != e.Occurrence.No || m.ChangedMs != e.Occurrence.ChangedMs:
			errs[e.i] = ErrMoved
		default:
			todo = append(todo, e)
		}
	}
	return todo, err
}

// freeReserved removes the reservations of Keys, which the messages have from now on.
func (s *Store) freeReserved(ctx context.Context, tx *sql.Tx, todo []entry) error {
	reserved := map[uint32][]any{}
	for _, e := range todo {
		if e.Occurrence.Reserved && e.Key != "" {
			reserved[e.ChannelNo] = append(reserved[e.ChannelNo], []byte(e.Key))
		}
	}
	channels := make([]uint32, 0, len(reserved))
	for no := range reserved {
		channels = append(channels, no)
	}
	slices.Sort(channels)
	for _, no := range channels {
		if err := exec(ctx, tx, list(deleteReserved, len(reserved[no])), append([]any{no}, reserved[no]...)...); err != nil {
			return err
		}
	}
	return nil
}

// storeOccurrencesSQLite stores messages and returns those that are stored.
func (s *Store) storeOccurrencesSQLite(ctx context.Context, tx *sql.Tx, node NodeLease, todo []entry,
	errs []error) ([]entry, error) {
	b := &sqliteBatch{store: s, ctx: ctx, tx: tx, node: node}
	fresh, err := b.fresh(todo)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return nil, ErrStale
	}
	stmt, err := tx.PrepareContext(ctx, sqliteInsertMessage)
	if err != nil {
		return nil, err
	}
	for _, e := range todo {
		if err := b.write(stmt, e, errs); err != nil {
			return nil, errors.Join(err, stmt.Close())
		}
	}
	return slices.DeleteFunc(todo, func(e entry) bool { return errs[e.i] != nil }), stmt.Close()
}

// moveOn records the messages in their schedules. Most schedules end with one message, and are
// changed by one statement.
func (s *Store) moveOn(ctx context.Context, tx *sql.Tx, todo []entry) error {
	var last []entry
	for _, e := range todo {
		o := e.Occurrence
		if o.NextMs == 0 {
			last = append(last, e)
			continue
		}
		if err := exec(ctx, tx, moveOn, o.NextMs, o.NextNo, e.ID[:], o.Of[:]); err != nil {
			return err
		}
	}
	slices.SortFunc(last, func(a, b entry) int { return a.Occurrence.Of.Compare(b.Occurrence.Of) })
	for _, part := range chunks(last, maxInList) {
		query := "\nUPDATE scheduled\nSET\n    status = 1,\n    message_id = CASE id"
		var when, in []any
		for _, e := range part {
			query += "\n        WHEN ? THEN ?"
			when = append(when, e.Occurrence.Of[:], e.ID[:])
			in = append(in, e.Occurrence.Of[:])
		}
		query += list("\n    END\nWHERE id IN (?...)", len(part))
		if err := exec(ctx, tx, query, append(when, in...)...); err != nil {
			return err
		}
	}
	return nil
}
