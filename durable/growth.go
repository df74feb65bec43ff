package durable

import (
	"context"
	"database/sql"
	"errors"
)

// The growth of dead letters is read from dead_jobs, which has the time of each death. The table
// dlq_growth has the consumers whose growth was alerted and has not ended since.

const (
	selectNextDeadConsumer = `
SELECT consumer_no
FROM dead_jobs
WHERE consumer_no > ?
ORDER BY consumer_no
LIMIT 1`

	// The inner query bounds what is read.
	countDeadSince = `
SELECT COUNT(*)
FROM (
    SELECT died_ms
    FROM dead_jobs
    WHERE consumer_no = ?
    ORDER BY message_id DESC
    LIMIT ?
) x
WHERE died_ms > ?`

	selectGrowing = `
SELECT consumer_no
FROM dlq_growth
ORDER BY consumer_no`

	deleteGrowth = `
DELETE FROM dlq_growth
WHERE consumer_no = ?`
)

var selectNewestDead = `
SELECT` + new(DeadJob).columns().names() + `
FROM dead_jobs
WHERE consumer_no = ?
ORDER BY message_id DESC
LIMIT 1`

var insertGrowth = ignoring(`
INSERT INTO dlq_growth (
    consumer_no,
    since_ms
)
VALUES (?, ?)`)

// NextDeadConsumer returns the next consumer that has dead letters, by number; 0: there is none.
func (s *Store) NextDeadConsumer(ctx context.Context, after uint32) (consumerNo uint32, err error) {
	err = repeat(ctx, "look for dead letters", func(ctx context.Context) error {
		err := s.reads.QueryRowContext(ctx, selectNextDeadConsumer, after).Scan(&consumerNo)
		if errors.Is(err, sql.ErrNoRows) {
			consumerNo, err = 0, nil
		}
		return err
	})
	return consumerNo, err
}

// DeadSince counts the dead letters of a consumer that died after sinceMs, among those of its
// limit newest messages.
func (s *Store) DeadSince(ctx context.Context, consumerNo uint32, sinceMs int64, limit int) (n int, err error) {
	err = repeat(ctx, "count new dead letters", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, countDeadSince, consumerNo, limit, sinceMs).Scan(&n)
	})
	return n, err
}

// NewestDead returns the dead letter of the newest message of a consumer, ErrNotFound if it has none.
func (s *Store) NewestDead(ctx context.Context, consumerNo uint32) (DeadJob, error) {
	dead, err := readAll[DeadJob](ctx, s, "read the newest dead letter", selectNewestDead, consumerNo)
	if err == nil && len(dead) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return DeadJob{}, err
	}
	return dead[0], nil
}

// Growing returns the consumers whose dead letters grow.
func (s *Store) Growing(ctx context.Context) (consumers []uint32, err error) {
	err = repeat(ctx, "read growing dead letters", func(ctx context.Context) error {
		consumers = nil
		return each(ctx, s.reads, selectGrowing, nil, func(r *sql.Rows) error {
			var no uint32
			err := r.Scan(&no)
			consumers = append(consumers, no)
			return err
		})
	})
	return consumers, err
}

// BeginGrowth stores that the dead letters of a consumer grow, with the alert of it. begun is true
// for one of several callers until EndGrowth.
func (s *Store) BeginGrowth(ctx context.Context, consumerNo uint32, atMs int64, reason string) (begun bool, err error) {
	err = s.run(ctx, transaction{name: "begin a growth of dead letters", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		begun = false
		res, err := tx.ExecContext(ctx, s.dialect.sql(insertGrowth), consumerNo, atMs)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		begun = true
		return s.raise(ctx, tx, Alert{Event: DLQGrowing, ConsumerNo: consumerNo, AtMs: atMs, Reason: reason})
	})
	return begun, err
}

// EndGrowth stores that the dead letters of a consumer have stopped growing.
func (s *Store) EndGrowth(ctx context.Context, consumerNo uint32) error {
	return repeat(ctx, "end a growth of dead letters", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteGrowth, consumerNo)
	})
}
