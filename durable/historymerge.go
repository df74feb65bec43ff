package durable

import (
	"context"
	"database/sql"
	"strconv"
)

// After an hour a slot of the history gets no rows any more: a broker that could not write them has given
// them up. Then one row takes the place of those of several writers, with the writer 0, so the history is
// as large as that of one broker. The rows of a slot change in one transaction. A setting has the last slot
// that was looked at; where a crash comes before its change, the slot is looked at again, and has nothing to
// merge.

const (
	selectNextSlot = `
SELECT COALESCE(MIN(at_ms), ?)
FROM history
WHERE step = ?
  AND at_ms > ?`

	// The index of the slots has all that it needs.
	selectShared = `
SELECT COALESCE(MAX(writers), 0)
FROM (
    SELECT COUNT(*) AS writers
    FROM history
    WHERE step = ?
      AND at_ms = ?
    GROUP BY
        scope,
        no
) w`

	deleteMerged = `
DELETE FROM history
WHERE step = ?
  AND at_ms = ?
  AND writer <> 0`
)

var takeSlot = locking(`
SELECT`+new(HistoryRow).columns().names()+`
FROM history
WHERE step = ?
  AND at_ms = ?
ORDER BY
    scope,
    no,
    writer`, updateLock)

// MergeHistory makes one row of those of several writers, in up to limit slots of a step that begin before a
// time, the oldest ones that no call has looked at. add adds a row to another one of the same resource. It
// may be repeated, and called by several brokers at once.
func (s *Store) MergeHistory(ctx context.Context, step int, beforeMs int64, limit int,
	add func(to, from *HistoryRow)) error {
	name := "history.merged." + strconv.Itoa(step)
	at, err := s.Setting(ctx, name)
	for range limit {
		if err == nil {
			err = repeat(ctx, "find a slot of history", func(ctx context.Context) error {
				return s.reads.QueryRowContext(ctx, selectNextSlot, beforeMs, step, at).Scan(&at)
			})
		}
		if err != nil || at >= beforeMs {
			return err
		}
		if err = s.mergeSlot(ctx, step, at, add); err == nil {
			err = s.SetSetting(ctx, name, at)
		}
	}
	return err
}

func (s *Store) mergeSlot(ctx context.Context, step int, atMs int64, add func(to, from *HistoryRow)) error {
	most := 0
	err := repeat(ctx, "count the writers of a slot", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectShared, step, atMs).Scan(&most)
	})
	if err != nil || most < 2 {
		return err
	}
	t := transaction{name: "merge a slot of history", harmless: true}
	return s.run(ctx, t, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := selectAll[HistoryRow](ctx, tx, s.dialect.sql(takeSlot), step, atMs)
		if err != nil {
			return err
		}
		var merged []HistoryRow
		for i := range rows {
			if n := len(merged); n > 0 && merged[n-1].Scope == rows[i].Scope && merged[n-1].No == rows[i].No {
				add(&merged[n-1], &rows[i])
				continue
			}
			rows[i].Writer = 0
			merged = append(merged, rows[i])
		}
		for _, part := range chunks(merged, MaxHistoryRows) {
			if err := s.putHistory(ctx, tx, part); err != nil {
				return err
			}
		}
		return exec(ctx, tx, deleteMerged, step, atMs)
	})
}
