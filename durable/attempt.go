package durable

import (
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

var insertAttempts = keepFirst(`
INSERT INTO attempts (
    consumer_no,
    message_id,
    at_ms,
    attempt,
    status_code,
    error,
    duration_ms,
    answer,
    phase,
    node,
    worker
)
VALUES (?, ...)`, "attempt")

const (
	selectRecorded = `
SELECT
    message_id,
    at_ms,
    attempt
FROM attempts
WHERE consumer_no = ?
  AND message_id IN (?...)`

	selectLeaseCounts = `
SELECT
    COALESCE(SUM(CASE WHEN phase = 4 THEN 1 ELSE 0 END), 0),
    COALESCE(SUM(CASE WHEN phase = 3 THEN 1 ELSE 0 END), 0)
FROM attempts
WHERE consumer_no = ?
  AND message_id = ?
  AND at_ms > (
      SELECT COALESCE(MAX(r.at_ms), 0)
      FROM redrives r
      WHERE r.consumer_no = ?
        AND r.message_id = ?
        AND r.how <> 2
  )`
)

func (a *Attempt) columns() columns {
	return columns{
		{"attempt", &a.No},
		{"at_ms", &a.AtMs},
		{"status_code", &a.StatusCode},
		{"error", asBytes{&a.Error}},
		{"duration_ms", &a.DurationMs},
		{"answer", &a.Answer},
		{"phase", &a.Phase},
		{"worker", asBytes{&a.Worker}},
	}
}

var selectAttempts = `
SELECT` + new(Attempt).columns().names() + `
FROM attempts
WHERE consumer_no = ?
  AND message_id = ?
  AND attempt > 0
ORDER BY at_ms DESC, attempt DESC
LIMIT ?`

// LeaseCounts returns how often a job was given back, and how many of its leases were lost, since
// its message was stored or it was redriven, as its attempts are counted.
func (s *Store) LeaseCounts(ctx context.Context, consumerNo uint32, id ident.ID) (givenBack, lost int, err error) {
	err = repeat(ctx, "count leases", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectLeaseCounts, consumerNo, id[:], consumerNo, id[:]).Scan(&givenBack, &lost)
	})
	return givenBack, lost, err
}

// Attempts returns the newest failed attempts of a job, up to limit, in order of time. After
// a redrive the attempt numbers start at 1 again.
func (s *Store) Attempts(ctx context.Context, consumerNo uint32, id ident.ID, limit int) ([]Attempt, error) {
	out, err := readAll[Attempt](ctx, s, "list attempts", selectAttempts, consumerNo, id[:], limit)
	slices.Reverse(out)
	return out, err
}

func (s *Store) recordAttempts(ctx context.Context, tx *sql.Tx, outcomes []Outcome) error {
	return write(ctx, tx, s.dialect.sql(insertAttempts), outcomes, func(o *Outcome) []any {
		return []any{o.ConsumerNo, o.ID[:], o.AtMs, o.attempt(), o.StatusCode, note(o.Error), o.DurationMs, head(o.Answer),
			o.Phase, orNull(o.node()), []byte(o.Worker)}
	})
}

type attemptKey struct {
	consumerNo uint32
	id         ident.ID
	atMs       int64
	attempt    int
}

func recorded(ctx context.Context, tx *sql.Tx, kinds ...[]Outcome) (map[attemptKey]bool, error) {
	known := map[attemptKey]bool{}
	for _, outcomes := range kinds {
		for _, part := range byConsumer(outcomes) {
			k := attemptKey{consumerNo: part[0].ConsumerNo}
			err := each(ctx, tx, list(selectRecorded, len(part)), jobArgs(part), func(r *sql.Rows) error {
				err := r.Scan(asID{&k.id}, &k.atMs, &k.attempt)
				known[k] = true
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return known, nil
}

// lost is how many leases the outcome says are lost.
func (o *Outcome) lost() int {
	if o.Phase == PhaseLeaseEnded {
		return 1
	}
	return 0
}

// node is the column of Node.
func (o *Outcome) node() sql.NullInt64 {
	return sql.NullInt64{Int64: int64(o.Node) - 1, Valid: o.Node > 0}
}

// duration is the column of the duration of a delivery: a report of a pull worker has none, and no
// status either.
func (o *Outcome) duration() sql.NullInt64 {
	return sql.NullInt64{Int64: min(o.DurationMs, math.MaxUint32), Valid: o.StatusCode > 0 && o.Node > 0}
}
