package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// SweepBulks ends bulks of deleted producers and channels, removes the bodies of bulks that are over,
// bulks whose client went away before their body was whole and, if beforeMs is not 0, bulks that are
// over since before that time. It does a small part, and reports whether there may be more. The row of
// a bulk goes last, so that a crash leaves nothing that no sweep finds.
func (s *Store) SweepBulks(ctx context.Context, nowMs, beforeMs int64) (more bool, err error) {
	if more, err := s.endOrphanedBulk(ctx, nowMs); err != nil || more {
		return more, err
	}
	over, err := s.bulkIDs(ctx, selectOverBulks, nowMs+1, 0, 1)
	if err == nil && len(over) == 0 && beforeMs > 0 {
		over, err = s.bulkIDs(ctx, selectOverBulks, beforeMs, 1, 1)
		if err == nil && len(over) > 0 {
			return true, s.removeBulk(ctx, over[0], nowMs)
		}
	}
	if err != nil {
		return false, err
	}
	if len(over) > 0 {
		return true, s.removeBody(ctx, over[0])
	}
	lost, err := s.bulkIDs(ctx, selectLostBulks, nowMs, 1)
	if err != nil || len(lost) == 0 {
		return false, err
	}
	return true, s.removeBulk(ctx, lost[0], nowMs)
}

func (s *Store) bulkIDs(ctx context.Context, query string, args ...any) (ids []ident.ID, err error) {
	err = repeat(ctx, "find bulks to remove", func(ctx context.Context) error {
		ids, err = selectIDs(ctx, s.reads, query, args)
		return err
	})
	return ids, err
}

// removeBody removes a part of the body of a bulk that is over.
func (s *Store) removeBody(ctx context.Context, id ident.ID) error {
	return s.run(ctx, transaction{name: "remove the body of a bulk", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		n, err := s.removeChunks(ctx, tx, id)
		if err == nil && n == 0 {
			err = exec(ctx, tx, forgetBulkBody, id[:])
		}
		return err
	})
}

const (
	deleteBulkSteps = `
DELETE FROM bulk_steps
WHERE bulk_id = ?
  AND first_id <= ?`

	deleteBulkErrors = `
DELETE FROM bulk_errors
WHERE bulk_id = ?
  AND row_no <= ?`

	selectOldSteps = `
SELECT first_id
FROM bulk_steps
WHERE bulk_id = ?
ORDER BY first_id
LIMIT ?`
)

// removeBulk removes a part of what belongs to a bulk, and at last its row.
func (s *Store) removeBulk(ctx context.Context, id ident.ID, nowMs int64) error {
	const limit = 500
	return s.run(ctx, transaction{name: "remove a bulk", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		// The lock excludes the owner of a body that comes after all.
		b, err := selectBulk(ctx, tx, s.dialect.sql(lockBulk), id[:])
		if err != nil || !b.State.Over() && (b.State != BulkReceiving || b.LeaseMs >= nowMs) {
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return err
		}
		if n, err := s.removeChunks(ctx, tx, id); err != nil || n > 0 {
			return err
		}
		steps, err := selectIDs(ctx, tx, selectOldSteps, []any{id[:], limit})
		if err != nil {
			return err
		}
		if len(steps) > 0 {
			return exec(ctx, tx, deleteBulkSteps, id[:], steps[len(steps)-1][:])
		}
		last := int64(0)
		err = each(ctx, tx, selectBadRows, []any{id[:], -1, limit}, func(r *sql.Rows) error {
			var reason []byte
			return r.Scan(&last, &reason)
		})
		if err != nil {
			return err
		}
		statement, args := deleteBulk, []any{id[:]}
		if last > 0 {
			statement, args = deleteBulkErrors, []any{id[:], last}
		}
		return exec(ctx, tx, statement, args...)
	})
}

// Those that were stored by a broker which did not know of the deletion yet.
const selectOrphanedBulk = `
SELECT b.id
FROM bulks b
JOIN producers p
  ON p.no = b.producer_no
JOIN channels c
  ON c.no = b.channel_no
WHERE b.state IN (1, 2)
  AND (p.deleted_no <> 0 OR c.deleted_no <> 0)
LIMIT 1`

// endOrphanedBulk ends a bulk whose channel or producer is deleted, and reports whether there was one.
func (s *Store) endOrphanedBulk(ctx context.Context, nowMs int64) (bool, error) {
	found, err := s.bulkIDs(ctx, selectOrphanedBulk)
	if err != nil || len(found) == 0 {
		return false, err
	}
	return true, repeat(ctx, "end a bulk of a deleted producer", func(ctx context.Context) error {
		return exec(ctx, s.db, endBulkOf, BulkFailed, noOwner, nowMs, []byte("the producer or the channel was deleted"),
			found[0][:])
	})
}
