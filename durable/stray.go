package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A stray is an outcome of a message that the store does not have: the store went back to a time
// before the message while a delivery of it was under way.

// strayTables are the tables with one row for each job that is not waiting.
var strayTables = []string{"deliveries", "dead_jobs", "open_jobs"}

func selectStrays(table string) string {
	return `
SELECT t.message_id
FROM ` + table + ` t
LEFT JOIN messages m
    ON m.channel_no = ?
   AND m.id = t.message_id
WHERE t.consumer_no = ?
  AND t.message_id > ?
  AND t.message_id <= ?
  AND m.id IS NULL
ORDER BY t.message_id
LIMIT ?`
}

// RemoveStrays removes up to limit outcomes of a consumer, with after < ID <= through, whose messages
// are not stored, and returns how many. The books that counted them are made again.
func (s *Store) RemoveStrays(ctx context.Context, k Consumer, after, through ident.ID, limit int) (removed int,
	err error) {
	err = s.run(ctx, transaction{name: "remove strays", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		removed = 0
		for _, table := range strayTables {
			strays, err := selectIDs(ctx, tx, selectStrays(table), []any{k.ChannelNo, k.No, after[:], through[:],
				limit - removed})
			if err != nil {
				return err
			}
			for _, part := range chunks(strays, maxInList) {
				if err := s.removeRows(ctx, tx, newJobTable(table), k.No, part); err != nil {
					return err
				}
			}
			if removed += len(strays); removed >= limit {
				return nil
			}
		}
		return nil
	})
	return removed, err
}
