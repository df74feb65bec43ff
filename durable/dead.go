package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	selectDeadJobs = `
SELECT
    d.message_id,
    d.priority,
    d.attempts,
    d.died_ms,
    d.status_code,
    d.reason,
    d.answer
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id >= ?
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id
LIMIT ?`

	selectDelivered = `
SELECT message_id
FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...)`
)

// On MySQL the row lock ensures that one of several racing calls moves a job. SQLite has
// only one writer.
var (
	takeDeadJobs = statement{
		mysql: `
SELECT
    message_id,
    priority,
    attempts
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id
FOR UPDATE`,
		sqlite: `
SELECT
    message_id,
    priority,
    attempts
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id`,
	}

	reopenJobs = statement{
		mysql: `
INSERT INTO open_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    next_ms,
    changed_ms,
    status_code,
    error
)
VALUES (?, ...)
ON DUPLICATE KEY UPDATE
    attempts = VALUES(attempts),
    next_ms = VALUES(next_ms),
    changed_ms = VALUES(changed_ms),
    status_code = VALUES(status_code),
    error = VALUES(error)`,
		sqlite: `
INSERT INTO open_jobs (
    consumer_no,
    message_id,
    priority,
    attempts,
    next_ms,
    changed_ms,
    status_code,
    error
)
VALUES (?, ...)
ON CONFLICT DO UPDATE SET
    attempts = excluded.attempts,
    next_ms = excluded.next_ms,
    changed_ms = excluded.changed_ms,
    status_code = excluded.status_code,
    error = excluded.error`,
	}
)

// DeadJobs returns up to limit dead letters of a consumer with message IDs from from on, in
// order of the IDs.
func (s *Store) DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]DeadJob, error) {
	var out []DeadJob
	err := repeat(ctx, "list dead letters", func(ctx context.Context) error {
		out = nil
		return each(ctx, s.reads, selectDeadJobs, []any{consumerNo, from[:], limit}, func(r *sql.Rows) error {
			var d DeadJob
			err := r.Scan(scanID{&d.ID}, &d.Priority, &d.Attempts, &d.DiedMs, &d.StatusCode, &d.Reason, &d.Answer)
			out = append(out, d)
			return err
		})
	})
	return out, err
}

// Redrive turns dead letters into open jobs with no attempt charged, due at nowMs. It
// returns the jobs that this call moved, in order of their IDs; exactly one of several
// racing calls returns a job. After ErrOutcomeUnknown the jobs may have been moved; OpenJobs
// then lists them.
func (s *Store) Redrive(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]OpenJob, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return s.reopen(ctx, "redrive", consumerNo, ids, nowMs, true)
}

// Revive turns one dead letter into an open job that keeps its attempts, due at nowMs.
// ErrNotFound: the job is not dead, or another call moved it first.
func (s *Store) Revive(ctx context.Context, consumerNo uint32, id ident.ID, nowMs int64) (OpenJob, error) {
	moved, err := s.reopen(ctx, "revive", consumerNo, []ident.ID{id}, nowMs, false)
	if err != nil {
		return OpenJob{}, err
	}
	if len(moved) == 0 {
		return OpenJob{}, ErrNotFound
	}
	return moved[0], nil
}

func (s *Store) reopen(ctx context.Context, name string, consumerNo uint32, ids []ident.ID, nowMs int64, again bool) ([]OpenJob, error) {
	var moved []OpenJob
	err := s.run(ctx, transaction{name: name}, func(ctx context.Context, tx *sql.Tx) error {
		moved = nil
		for _, part := range chunks(ids, maxInList) {
			jobs, err := s.reopenPart(ctx, tx, consumerNo, part, nowMs, again)
			if err != nil {
				return err
			}
			moved = append(moved, jobs...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return moved, nil
}

func (s *Store) reopenPart(ctx context.Context, tx *sql.Tx, consumerNo uint32, ids []ident.ID, nowMs int64, again bool) ([]OpenJob, error) {
	var dead []OpenJob
	err := each(ctx, tx, list(s.dialect.sql(takeDeadJobs), len(ids)), inArgs(consumerNo, ids), func(r *sql.Rows) error {
		j := OpenJob{NextMs: nowMs}
		err := r.Scan(scanID{&j.ID}, &j.Priority, &j.Attempts)
		if again {
			j.Attempts = 0
		}
		dead = append(dead, j)
		return err
	})
	if err != nil || len(dead) == 0 {
		return nil, err
	}
	delivered, err := selectIDs(ctx, tx, list(selectDelivered, len(ids)), inArgs(consumerNo, ids))
	if err != nil {
		return nil, err
	}
	var moved []OpenJob
	var gone []ident.ID
	var args []any
	for _, j := range dead {
		if slices.Contains(delivered, j.ID) {
			continue // a delivered job stays delivered
		}
		moved = append(moved, j)
		gone = append(gone, j.ID)
		args = append(args, consumerNo, bytesOf(j.ID), j.Priority, j.Attempts, nowMs, nowMs, 0, []byte{})
	}
	if len(moved) == 0 {
		return nil, nil
	}
	if _, err := tx.ExecContext(ctx, rows(s.dialect.sql(reopenJobs), len(moved), 8), args...); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, list(deadJobs.remove, len(gone)), inArgs(consumerNo, gone)...); err != nil {
		return nil, err
	}
	return moved, nil
}

func bytesOf(id ident.ID) []byte { return id[:] }
