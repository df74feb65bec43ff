package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// One statement reads the three tables at one moment.
const selectJobStates = `
SELECT
    message_id,
    3 AS status,
    attempts,
    at_ms,
    0 AS next_ms,
    status_code,
    NULL AS error,
    0 AS reason_code,
    0 AS redriven_ms,
    0 AS disposal,
    0 AS given_back,
    0 AS leases_lost,
    worker,
    0 AS fingerprint
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
    reason,
    reason_code,
    0,
    disposal,
    given_back,
    leases_lost,
    worker,
    fingerprint
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
    error,
    0,
    redriven_ms,
    0,
    given_back,
    leases_lost,
    NULL,
    0
FROM open_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)`

func (j *OpenJob) columns() columns {
	return columns{
		{"message_id", asID{&j.ID}},
		{"priority", &j.Priority},
		{"attempts", &j.Attempts},
		{"next_ms", &j.NextMs},
		{"redriven_ms", &j.RedrivenMs},
	}
}

var selectOpenJobs = `
SELECT` + new(OpenJob).columns().of("o").names() + `
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
				id, j, err := scanJobState(r)
				if err != nil {
					return err
				}
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

// scanJobState reads a row of selectJobStates.
func scanJobState(r *sql.Rows) (id ident.ID, j JobState, err error) {
	var text []byte
	var disposal Disposal
	err = r.Scan(asID{&id}, &j.Status, &j.Attempts, &j.ChangedMs, &j.NextMs, &j.StatusCode, &text, &j.Reason,
		&j.RedrivenMs, &disposal, &j.GivenBack, &j.LeasesLost, asBytes{&j.Worker}, &j.Fingerprint)
	j.Error, j.Discarded = string(text), disposal == Discarded
	return id, j, err
}

// OpenJobs returns up to limit rows of open_jobs of a consumer, whose jobs are not over, with
// message IDs from from on, in order of the IDs.
func (s *Store) OpenJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]OpenJob, error) {
	return readAll[OpenJob](ctx, s, "list open jobs", selectOpenJobs, consumerNo, from[:], limit)
}
