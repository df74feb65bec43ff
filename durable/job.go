package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/ident"
)

const (
	// One statement reads the three tables at one moment.
	selectJobStates = `
SELECT
    message_id,
    3 AS status,
    attempts,
    at_ms,
    0 AS next_ms,
    status_code,
    NULL AS error
FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...)
UNION ALL
SELECT
    message_id,
    2,
    attempts,
    died_ms,
    0,
    status_code,
    reason
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
UNION ALL
SELECT
    message_id,
    1,
    attempts,
    changed_ms,
    next_ms,
    status_code,
    error
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)`

	selectOpenJobs = `
SELECT
    o.message_id,
    o.priority,
    o.attempts,
    o.next_ms
FROM open_jobs o
WHERE o.consumer_no = ?
  AND o.message_id >= ?
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = o.consumer_no
        AND v.message_id = o.message_id
  )
  AND NOT EXISTS (
      SELECT 1
      FROM dead_jobs d
      WHERE d.consumer_no = o.consumer_no
        AND d.message_id = o.message_id
  )
ORDER BY o.message_id
LIMIT ?`

	selectAttempts = `
SELECT
    attempt,
    at_ms,
    status_code,
    error,
    duration_ms,
    answer
FROM attempts
WHERE consumer_no = ?
  AND message_id = ?
ORDER BY at_ms DESC, attempt DESC
LIMIT ?`
)

// JobStates returns the stored states of jobs of a consumer. A job without a row is not in
// the map. It is Waiting, which is the zero JobState.
func (s *Store) JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]JobState, error) {
	out := make(map[ident.ID]JobState, len(ids))
	for _, part := range chunks(ids, maxInList) {
		one := inArgs(consumerNo, part)
		args := make([]any, 0, 3*len(one))
		args = append(append(append(args, one...), one...), one...)
		err := repeat(ctx, "read job states", func(ctx context.Context) error {
			return each(ctx, s.reads, list(selectJobStates, len(part)), args, func(r *sql.Rows) error {
				var id ident.ID
				var j JobState
				var text []byte
				if err := r.Scan(scanID{&id}, &j.Status, &j.Attempts, &j.ChangedMs, &j.NextMs, &j.StatusCode, &text); err != nil {
					return err
				}
				j.Error = string(text)
				if j.Status >= out[id].Status {
					out[id] = j
				}
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// OpenJobs returns up to limit rows of open_jobs of a consumer, whose jobs are not over, with
// message IDs from from on, in order of the IDs.
func (s *Store) OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]OpenJob, error) {
	var out []OpenJob
	err := repeat(ctx, "list open jobs", func(ctx context.Context) error {
		out = nil
		return each(ctx, s.reads, selectOpenJobs, []any{consumerNo, from[:], limit}, func(r *sql.Rows) error {
			var j OpenJob
			err := r.Scan(scanID{&j.ID}, &j.Priority, &j.Attempts, &j.NextMs)
			out = append(out, j)
			return err
		})
	})
	return out, err
}

// Attempts returns the newest failed attempts of a job, up to limit, in order of time. After
// a redrive the attempt numbers start at 1 again.
func (s *Store) Attempts(ctx context.Context, consumerNo uint32, id ident.ID, limit int) ([]Attempt, error) {
	var out []Attempt
	err := repeat(ctx, "list attempts", func(ctx context.Context) error {
		out = nil
		return each(ctx, s.reads, selectAttempts, []any{consumerNo, id[:], limit}, func(r *sql.Rows) error {
			var a Attempt
			err := r.Scan(&a.No, &a.AtMs, &a.StatusCode, &a.Error, &a.DurationMs, &a.Answer)
			out = append(out, a)
			return err
		})
	})
	slices.Reverse(out)
	return out, err
}
