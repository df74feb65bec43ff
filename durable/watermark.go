package durable

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/internal/ident"
)

// The settled watermark of a consumer is the ID up to which each of its jobs has an
// outcome or a row in open_jobs. The table of the watermarks is called marks.

const selectWatermarks = `
SELECT
    consumer_no,
    message_id
FROM marks`

var upsertWatermarks = statement{
	mysql: `
INSERT INTO marks (
    consumer_no,
    message_id
)
VALUES (?, ...)
ON DUPLICATE KEY UPDATE message_id = GREATEST(message_id, VALUES(message_id))`,
	sqlite: `
INSERT INTO marks (
    consumer_no,
    message_id
)
VALUES (?, ...)
ON CONFLICT DO UPDATE SET message_id = MAX(message_id, excluded.message_id)`,
}

// Watermarks returns the settled watermark of each consumer, by consumer number.
func (s *Store) Watermarks(ctx context.Context) (map[uint32]ident.ID, error) {
	out := map[uint32]ident.ID{}
	err := repeat(ctx, "read watermarks", func(ctx context.Context) error {
		clear(out)
		return each(ctx, s.reads, selectWatermarks, nil, func(r *sql.Rows) error {
			var no uint32
			var id ident.ID
			err := r.Scan(&no, scanID{&id})
			out[no] = id
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SaveWatermarks stores the settled watermark of each consumer. A stored watermark only
// moves forward: a slow broker cannot undo the save of a faster one.
func (s *Store) SaveWatermarks(ctx context.Context, watermarks map[uint32]ident.ID) error {
	for _, part := range chunks(slices.Sorted(maps.Keys(watermarks)), maxInList) {
		args := make([]any, 0, 2*len(part))
		for _, no := range part {
			args = append(args, no, bytesOf(watermarks[no]))
		}
		err := repeat(ctx, "save watermarks", func(ctx context.Context) error {
			_, err := s.db.ExecContext(ctx, rows(s.dialect.sql(upsertWatermarks), len(part), 2), args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
