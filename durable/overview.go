package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// The key of open_jobs begins with the consumer, so this looks at one row of each.
	selectOldestOpen = `
SELECT
    o.no,
    o.id
FROM (
    SELECT
        c.no,
        (
            SELECT MIN(j.message_id)
            FROM open_jobs j
            WHERE j.consumer_no = c.no
        ) AS id
    FROM consumers c
) o
WHERE o.id IS NOT NULL`

	countDeadOfAll = `
SELECT
    consumer_no,
    SUM(jobs)
FROM dead_groups
GROUP BY consumer_no`
)

// OldestOpen returns the oldest message of the rows of open_jobs, by consumer: of jobs that failed, were
// given back or redriven. Those of replays are left out.
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

// DeadOfAll counts the dead letters of each consumer that has some, by the counters of their groups.
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
