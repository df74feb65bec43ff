package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const selectTasks = `
SELECT
    id,
    headers
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`

// Tasks returns the tasks of the existing messages among ids, "" for those without one.
func (s *Store) Tasks(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]string, error) {
	out := make(map[ident.ID]string, len(ids))
	for _, part := range chunks(ids, maxInList) {
		err := repeat(ctx, "read tasks", func(ctx context.Context) error {
			return each(ctx, s.reads, list(selectTasks, len(part)), inArgs(channelNo, part), func(r *sql.Rows) error {
				var m Message
				err := r.Scan(asID{&m.ID}, &m.Headers)
				out[m.ID] = m.Task()
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
