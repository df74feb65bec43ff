package durable

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

func (d *DeadJob) columns() columns {
	return columns{
		{"message_id", asID{&d.ID}},
		{"priority", &d.Priority},
		{"attempts", &d.Attempts},
		{"died_ms", &d.DiedMs},
		{"status_code", &d.StatusCode},
		{"reason", asBytes{&d.Error}},
		{"answer", &d.Answer},
		{"reason_code", &d.Reason},
		{"leases_lost", &d.LeasesLost},
		{"given_back", &d.GivenBack},
		{"worker", asBytes{&d.Worker}},
		{"fingerprint", &d.Fingerprint},
	}
}

var selectDeadJobs = `
SELECT` + new(DeadJob).columns().of("d").names() + `
FROM dead_jobs d
WHERE d.consumer_no = ?
  AND d.message_id >= ?
  AND d.disposal <> 2
  AND NOT EXISTS (
      SELECT 1
      FROM deliveries v
      WHERE v.consumer_no = d.consumer_no
        AND v.message_id = d.message_id
  )
ORDER BY d.message_id
LIMIT ?`

// selectDeadJobsBack is selectDeadJobs in the other direction.
var selectDeadJobsBack = strings.NewReplacer("d.message_id >= ?", "d.message_id <= ?", "ORDER BY d.message_id",
	"ORDER BY d.message_id DESC").Replace(selectDeadJobs)

const (
	selectDeaths = `
SELECT
    consumer_no,
    message_id,
    ?,
    ?,
    died_ms,
    attempts,
    status_code,
    reason_code,
    reason
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)`

	selectDelivered = `
SELECT message_id
FROM deliveries
WHERE consumer_no = ?
  AND message_id IN (?...)`
)

// On MySQL the row lock ensures that one of several racing calls moves a job. SQLite has
// only one writer.
var (
	takeDeadJobs = locking(`
SELECT
    message_id,
    priority,
    attempts,
    redrives,
    leases_lost,
    given_back,
    died_ms,
    fingerprint,
    disposal
FROM dead_jobs
WHERE consumer_no = ?
  AND message_id IN (?...)
ORDER BY message_id`, updateLock)

	// A job is not redriven twice in a millisecond: it has to die in between.
	insertRedrives = copying("redrives", `
    consumer_no,
    message_id,
    at_ms,
    how,
    died_ms,
    attempts,
    status_code,
    reason_code,
    reason`, selectDeaths)

	reopenJobs = replacing(`
INSERT INTO open_jobs (`+openJobColumns+`,
    redriven_ms,
    redrives,
    leases_lost,
    given_back
)
VALUES (?, ...)`,
		"attempts", "next_ms", "changed_ms", "status_code", "error", "redriven_ms", "redrives", "leases_lost", "given_back")
)

// DeadJobs returns up to limit dead letters of a consumer with message IDs from from on, in
// order of the IDs.
func (s *Store) DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]DeadJob, error) {
	return readAll[DeadJob](ctx, s, "list dead letters", selectDeadJobs, consumerNo, from[:], limit)
}

// DeadJobsBack returns up to limit dead letters of a consumer with message IDs down from from, the newest
// first.
func (s *Store) DeadJobsBack(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]DeadJob, error) {
	return readAll[DeadJob](ctx, s, "list dead letters", selectDeadJobsBack, consumerNo, from[:], limit)
}

// Redrive turns dead letters into open jobs with no attempt charged, due at nowMs. It
// returns the jobs that this call moved, in order of their IDs; exactly one of several
// racing calls returns a job. After ErrOutcomeUnknown the jobs may have been moved; OpenJobs
// then lists them.
func (s *Store) Redrive(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]OpenJob, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return s.reopen(ctx, "redrive", consumerNo, ids, nowMs, ByRequest)
}

// RedriveAgain is Redrive by the broker itself. It counts: see DeadHead.
func (s *Store) RedriveAgain(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) ([]OpenJob, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return s.reopen(ctx, "redrive", consumerNo, ids, nowMs, ByBroker)
}

// Reopen turns one dead letter into an open job that keeps its attempts, due at nowMs.
// ErrNotFound: the job is not dead, or another call moved it first.
func (s *Store) Reopen(ctx context.Context, consumerNo uint32, id ident.ID, nowMs int64) (OpenJob, error) {
	moved, err := s.reopen(ctx, "reopen", consumerNo, []ident.ID{id}, nowMs, ByWorker)
	if err != nil {
		return OpenJob{}, err
	}
	if len(moved) == 0 {
		return OpenJob{}, ErrNotFound
	}
	return moved[0], nil
}

// A Reopening says who opened a dead letter again. The numbers are stored.
type Reopening uint8

// The three ways in which a dead letter is opened again.
const (
	ByRequest Reopening = iota // attempts and automatic redrives count from zero
	ByBroker                   // attempts count from zero, and this is one more automatic redrive
	ByWorker                   // a pull worker claims it: the attempts and the other counts stay
)

// String says in words how it was opened.
func (r Reopening) String() string {
	return [...]string{"by request", "by the policy of the consumer", "claimed by a pull worker"}[min(r, ByWorker)]
}

// count returns the counts of a job that is opened again, and changes its attempts.
func (r Reopening) count(j *OpenJob, n counts) counts {
	switch r {
	case ByWorker:
		n.redrives = 0
	case ByBroker:
		j.Attempts, n = 0, counts{redrives: n.redrives + 1}
	default:
		j.Attempts, n = 0, counts{}
	}
	return n
}

func (s *Store) reopen(ctx context.Context, name string, consumerNo uint32, ids []ident.ID, nowMs int64,
	how Reopening) ([]OpenJob, error) {
	var moved []OpenJob
	err := s.run(ctx, transaction{name: name}, func(ctx context.Context, tx *sql.Tx) error {
		moved = nil
		for _, part := range chunks(ids, maxInList) {
			jobs, err := s.reopenPart(ctx, tx, consumerNo, part, nowMs, how)
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

func (s *Store) reopenPart(ctx context.Context, tx *sql.Tx, consumerNo uint32, ids []ident.ID, nowMs int64,
	how Reopening) ([]OpenJob, error) {
	var dead []OpenJob
	var left []deadRow // of dead
	counted := map[ident.ID]counts{}
	err := each(ctx, tx, list(s.dialect.sql(takeDeadJobs), len(ids)), inArgs(consumerNo, ids), func(r *sql.Rows) error {
		j, n, row := OpenJob{NextMs: nowMs, RedrivenMs: nowMs}, counts{}, deadRow{}
		err := r.Scan(asID{&j.ID}, &j.Priority, &j.Attempts, &n.redrives, &n.leasesLost, &n.givenBack, &row.DiedMs,
			&row.Fingerprint, &row.Disposal)
		row.ID = j.ID
		counted[j.ID] = how.count(&j, n)
		dead, left = append(dead, j), append(left, row)
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
		n := counted[j.ID]
		args = append(args, consumerNo, bytesOf(j.ID), j.Priority, j.Attempts, nowMs, nowMs, 0, []byte{}, nowMs,
			n.redrives, n.leasesLost, n.givenBack)
	}
	if len(moved) == 0 {
		return nil, nil
	}
	if err := insertRows(ctx, tx, s.dialect.sql(reopenJobs), args); err != nil {
		return nil, err
	}
	if err := exec(ctx, tx, list(s.dialect.sql(insertRedrives), len(gone)), append([]any{nowMs, how},
		inArgs(consumerNo, gone)...)...); err != nil {
		return nil, err
	}
	if err := exec(ctx, tx, list(deadJobs.remove, len(gone)), inArgs(consumerNo, gone)...); err != nil {
		return nil, err
	}
	if err := s.expireAgain(ctx, tx, consumerNo, gone, nowMs); err != nil {
		return nil, err
	}
	left = slices.DeleteFunc(left, func(d deadRow) bool { return slices.Contains(delivered, d.ID) })
	return moved, leaveGroups(ctx, tx, consumerNo, left)
}
