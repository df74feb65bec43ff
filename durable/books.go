package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Books are the numbers of the jobs of one consumer for a stretch of messages, at one moment. If
// nothing is lost or double, Accepted is the sum of the others.
type Books struct {
	Accepted  int64 // messages that concern the consumer, those that its filter left out included
	Delivered int64
	Open      int64 // waiting, in flight, or waiting for a retry
	Dead      int64 // dead letters, without those in Expired
	Expired   int64 // dead letters of jobs that were too old
	Filtered  int64 // left out by the filter of the consumer
}

// Difference is what the books do not account for: 0 where they balance.
func (b Books) Difference() int64 {
	return b.Accepted - b.Delivered - b.Open - b.Dead - b.Expired - b.Filtered
}

const (
	selectBookSums = `
SELECT
    COALESCE(SUM(accepted), 0),
    COALESCE(SUM(filtered), 0),
    COALESCE(SUM(delivered), 0)
FROM books
WHERE consumer_no = ?
  AND after_id >= ?
  AND after_id < ?
  AND through_id <= ?`

	// The ends of stretches in the question that no other one of them follows, and the next one.
	selectBookGaps = `
SELECT
    b.through_id,
    (
        SELECT MIN(n.after_id)
        FROM books n
        WHERE n.consumer_no = b.consumer_no
          AND n.after_id >= b.through_id
          AND n.through_id <= ?
    )
FROM books b
WHERE b.consumer_no = ?
  AND b.after_id >= ?
  AND b.after_id < ?
  AND b.through_id <= ?
  AND NOT EXISTS (
      SELECT 1
      FROM books f
      WHERE f.consumer_no = b.consumer_no
        AND f.after_id = b.through_id
        AND f.through_id <= ?
  )
ORDER BY b.after_id`

	selectFirstRowIn = `
SELECT MIN(after_id)
FROM books
WHERE consumer_no = ?
  AND after_id >= ?
  AND after_id < ?
  AND through_id <= ?`

	// A job may have rows in several tables: a delivery counts before a death, and a death before an
	// attempt.
	deadIn = `
    FROM dead_jobs d
    WHERE d.consumer_no = ?
      AND d.message_id > ?
      AND d.message_id <= ?
      AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = d.consumer_no AND v.message_id = d.message_id)`

	openIn = `
    FROM open_jobs o
    WHERE o.consumer_no = ?
      AND o.message_id > ?
      AND o.message_id <= ?
      AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = o.consumer_no AND v.message_id = o.message_id)
      AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = o.consumer_no AND d.message_id = o.message_id)`

	countDeadIn = `
SELECT
    COUNT(*),
    COALESCE(SUM(d.reason_code = ?), 0)` + deadIn

	countOpenIn = `
SELECT COUNT(*)` + openIn

	// Stretches with jobs that were not delivered when their sums were made, and of which some are
	// neither dead nor open now: they were redriven, and have been delivered.
	selectChangedBookRows = `
SELECT
    after_id,
    through_id,
    delivered
FROM (
    SELECT
        b.after_id,
        b.through_id,
        b.delivered,
        b.accepted - b.filtered - b.delivered AS rest,
        (
            SELECT COUNT(*)
            FROM dead_jobs d
            WHERE d.consumer_no = b.consumer_no
              AND d.message_id > b.after_id
              AND d.message_id <= b.through_id
              AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = d.consumer_no AND v.message_id = d.message_id)
        ) + (
            SELECT COUNT(*)
            FROM open_jobs o
            WHERE o.consumer_no = b.consumer_no
              AND o.message_id > b.after_id
              AND o.message_id <= b.through_id
              AND NOT EXISTS (SELECT 1 FROM deliveries v WHERE v.consumer_no = o.consumer_no AND v.message_id = o.message_id)
              AND NOT EXISTS (SELECT 1 FROM dead_jobs d WHERE d.consumer_no = o.consumer_no AND d.message_id = o.message_id)
        ) AS left_over
    FROM books b
    WHERE b.consumer_no = ?
      AND b.after_id >= ?
      AND b.after_id < ?
      AND b.through_id <= ?
      AND b.accepted - b.filtered > b.delivered
) s
WHERE rest <> left_over`
)

var countIn = `
SELECT
    COUNT(*),
    COALESCE(SUM(` + leftOutIn("m.") + `), 0),
    COALESCE(SUM(NOT ` + leftOutIn("m.") + ` AND v.message_id IS NULL AND d.message_id IS NULL AND o.message_id IS NULL), 0)
FROM messages m
LEFT JOIN deliveries v
    ON v.consumer_no = ?
   AND v.message_id = m.id
LEFT JOIN dead_jobs d
    ON d.consumer_no = ?
   AND d.message_id = m.id
LEFT JOIN open_jobs o
    ON o.consumer_no = ?
   AND o.message_id = m.id
WHERE m.channel_no = ?
  AND m.id > ?
  AND m.id <= ?
  AND ` + meantIn("m.")

// Books returns the numbers for the messages with after < ID <= through. All are of one moment,
// because they are read in one snapshot. Stretches that are in the books cost one row each.
// The others, which are those above the settled watermark and the edges of the question, are counted.
func (s *Store) Books(ctx context.Context, k Consumer, after, through ident.ID) (Books, error) {
	var a audit
	err := s.run(ctx, transaction{
		name: "balance the books", options: &sql.TxOptions{Isolation: sql.LevelRepeatableRead,
			ReadOnly: true}, reads: true, harmless: true,
	}, func(ctx context.Context, tx *sql.Tx) error {
		a = audit{tx: tx, k: k, after: after, through: through}
		return a.run(ctx)
	})
	if err != nil {
		return Books{}, err
	}
	for _, c := range a.corrected {
		// Best effort: the next question finds the difference again.
		_, _ = s.db.ExecContext(ctx, correctBookRow, c.now, k.No, bytesOf(c.after), bytesOf(c.through), c.before)
	}
	return a.Books, nil
}

// An audit makes the books of one consumer.
type audit struct {
	tx             *sql.Tx
	k              Consumer
	after, through ident.ID
	Books
	corrected []correction
}

// A correction is a stretch in which jobs were delivered after its sums had been made.
type correction struct {
	after, through ident.ID
	before, now    int64
}

func (a *audit) run(ctx context.Context) error {
	if err := a.bookRows(ctx); err != nil {
		return err
	}
	rest, err := a.uncovered(ctx)
	if err != nil {
		return err
	}
	for _, g := range rest {
		if err := a.count(ctx, g.after, g.through); err != nil {
			return err
		}
	}
	var dead, expired, open int64
	in := []any{a.k.No, a.after[:], a.through[:]}
	if err := a.tx.QueryRowContext(ctx, countDeadIn, append([]any{Expired}, in...)...).Scan(&dead, &expired); err != nil {
		return err
	}
	if err := a.tx.QueryRowContext(ctx, countOpenIn, in...).Scan(&open); err != nil {
		return err
	}
	a.Dead, a.Expired, a.Open = dead-expired, expired, a.Open+open
	return nil
}

// in are the arguments of the queries for stretches that lie in the question.
func (a *audit) in() []any { return []any{a.k.No, a.after[:], a.through[:], a.through[:]} }

// bookRows adds the sums of the stretches that lie in the question.
func (a *audit) bookRows(ctx context.Context) error {
	if err := a.tx.QueryRowContext(ctx, selectBookSums, a.in()...).Scan(&a.Accepted, &a.Filtered,
		&a.Delivered); err != nil {
		return err
	}
	err := each(ctx, a.tx, selectChangedBookRows, a.in(), func(r *sql.Rows) error {
		var c correction
		err := r.Scan(asID{&c.after}, asID{&c.through}, &c.before)
		a.corrected = append(a.corrected, c)
		return err
	})
	if err != nil {
		return err
	}
	for i := range a.corrected {
		c := &a.corrected[i]
		if err := a.tx.QueryRowContext(ctx, countDelivered, a.k.No, c.after[:], c.through[:]).Scan(&c.now); err != nil {
			return err
		}
		a.Delivered += c.now - c.before
	}
	return nil
}

// A gap is a part of the question that is in no stretch.
type gap struct{ after, through ident.ID }

// uncovered returns the gaps of the question.
func (a *audit) uncovered(ctx context.Context) ([]gap, error) {
	var first []byte
	if err := a.tx.QueryRowContext(ctx, selectFirstRowIn, a.in()...).Scan(&first); err != nil {
		return nil, err
	}
	if len(first) != ident.Size {
		return []gap{{a.after, a.through}}, nil
	}
	gaps := []gap{{a.after, ident.ID(first)}}
	err := each(ctx, a.tx, selectBookGaps, append(append([]any{a.through[:]}, a.in()...), a.through[:]),
		func(r *sql.Rows) error {
			g := gap{through: a.through}
			var next []byte
			err := r.Scan(asID{&g.after}, &next)
			if len(next) == ident.Size && ident.ID(next).Compare(g.through) < 0 {
				g.through = ident.ID(next)
			}
			gaps = append(gaps, g)
			return err
		})
	return gaps, err
}

// count adds the jobs of a part of the question that is in no stretch. Open jobs with a row of their
// own are counted elsewhere.
func (a *audit) count(ctx context.Context, after, through ident.ID) error {
	if after.Compare(through) >= 0 {
		return nil
	}
	var accepted, filtered, waiting, delivered int64
	no := a.k.No
	args := append(appendHasPosition(appendHasPosition(nil, a.k.Position), a.k.Position), no, no, no, a.k.ChannelNo,
		after[:], through[:])
	err := a.tx.QueryRowContext(ctx, countIn, a.k.appendMeant(args)...).Scan(&accepted, &filtered, &waiting)
	if err != nil {
		return err
	}
	if err := a.tx.QueryRowContext(ctx, countDelivered, no, after[:], through[:]).Scan(&delivered); err != nil {
		return err
	}
	a.Accepted += accepted
	a.Filtered += filtered
	a.Open += waiting
	a.Delivered += delivered
	return nil
}
