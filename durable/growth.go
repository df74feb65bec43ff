package durable

import (
	"context"
	"database/sql"
	"errors"
)

// The growth of dead letters is read from dead_jobs, which has the time of each death. A growth that was
// alerted is an Alarm until it has ended.

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
)

var selectNewestDead = `
SELECT` + new(DeadJob).columns().names() + `
FROM dead_jobs
WHERE consumer_no = ?
ORDER BY message_id DESC
LIMIT 1`

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
