package durable

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/internal/ident"
)

const selectMarks = `
SELECT
    consumer_no,
    message_id
FROM marks`

var upsertMarks = statement{
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

// Marks returns how far each consumer is settled, by consumer number.
func (s *Store) Marks(ctx context.Context) (map[uint32]ident.ID, error) {
	out := map[uint32]ident.ID{}
	err := repeat(ctx, "read marks", func(ctx context.Context) error {
		clear(out)
		return each(ctx, s.reads, selectMarks, nil, func(r *sql.Rows) error {
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

// SaveMarks stores how far consumers are settled. A mark only moves forward: a
// slow broker cannot take back what another has saved.
func (s *Store) SaveMarks(ctx context.Context, marks map[uint32]ident.ID) error {
	for _, part := range chunks(slices.Sorted(maps.Keys(marks)), maxInList) {
		args := make([]any, 0, 2*len(part))
		for _, no := range part {
			args = append(args, no, bytesOf(marks[no]))
		}
		err := repeat(ctx, "save marks", func(ctx context.Context) error {
			_, err := s.db.ExecContext(ctx, rows(s.dialect.sql(upsertMarks), len(part), 2), args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
