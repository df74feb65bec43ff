package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const hastenOpenJobs = `
UPDATE open_jobs
SET next_ms = ?
WHERE consumer_no = ?
  AND message_id IN (?...)
  AND next_ms > ?`

// Hasten makes open jobs due at nowMs that are due later. Other jobs stay as they are. It may be
// repeated.
func (s *Store) Hasten(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error {
	if len(ids) == 0 {
		return nil
	}
	return s.run(ctx, transaction{name: "hasten open jobs", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		for _, part := range chunks(ids, deletedAtOnce) { // each row is found by its key, as those of a DELETE
			args := append([]any{nowMs}, inArgs(consumerNo, part)...)
			if err := exec(ctx, tx, list(hastenOpenJobs, len(part)), append(args, nowMs)...); err != nil {
				return err
			}
		}
		return nil
	})
}
