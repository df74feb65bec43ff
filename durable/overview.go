package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// The key of the table begins with the consumer, so this looks at one row of each.
	selectOldestOpen = `
SELECT
    consumer_no,
    MIN(message_id)
FROM open_jobs
GROUP BY consumer_no`

	countDeadOfAll = `
SELECT
    consumer_no,
    COUNT(*)
FROM dead_jobs
WHERE disposal <> 2
GROUP BY consumer_no`
)

// OldestOpen returns the oldest message of the rows of open_jobs, by consumer: of jobs that failed, were
// given back or redriven.
func (s *Store) OldestOpen(ctx context.Context) (map[uint32]ident.ID, error) {
	out := map[uint32]ident.ID{}
	err := repeat(ctx, "read the oldest open jobs", func(ctx context.Context) error {
		clear(out)
		return each(ctx, s.reads, selectOldestOpen, nil, func(r *sql.Rows) error {
			var no uint32
			var id ident.ID
			err := r.Scan(&no, asID{&id})
			out[no] = id
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeadOfAll counts the dead letters of each consumer that has some.
func (s *Store) DeadOfAll(ctx context.Context) (map[uint32]int, error) {
	out := map[uint32]int{}
	err := repeat(ctx, "count dead letters", func(ctx context.Context) error {
		clear(out)
		return each(ctx, s.reads, countDeadOfAll, nil, func(r *sql.Rows) error {
			var no uint32
			var n int
			err := r.Scan(&no, &n)
			out[no] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
