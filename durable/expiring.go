package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/ident"
)

// An Expiry is a row of expiring: a message with a time to live of its own, whose jobs may
// not be over.
type Expiry struct {
	AtMs      int64 // Unix ms
	ChannelNo uint32
	ID        ident.ID
}

const (
	selectExpiring = `
SELECT
    expires_ms,
    channel_no,
    id
FROM expiring
WHERE (expires_ms > ? OR expires_ms = ? AND (channel_no > ? OR channel_no = ? AND id > ?))
  AND expires_ms >= ?
  AND expires_ms <= ?
ORDER BY expires_ms, channel_no, id
LIMIT ?`

	deleteExpiring = `
DELETE FROM expiring
WHERE expires_ms = ?
  AND channel_no = ?
  AND id IN (?...)`

	selectHeadsOf = `
SELECT
    id,
    audience,
    addressed,
    left_out,
    priority,
    ttl_ms
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
ORDER BY id`
)

var (
	insertExpiring = statement{
		mysql: `
INSERT INTO expiring (
    expires_ms,
    channel_no,
    id
)
VALUES (?, ...)
ON DUPLICATE KEY UPDATE id = VALUES(id)`,
		sqlite: `
INSERT INTO expiring (
    expires_ms,
    channel_no,
    id
)
VALUES (?, ...)
ON CONFLICT DO NOTHING`,
	}

	insertExpiringAgain = statement{
		mysql: `
INSERT IGNORE INTO expiring (
    expires_ms,
    channel_no,
    id
)
` + selectRedriven,
		sqlite: `
INSERT OR IGNORE INTO expiring (
    expires_ms,
    channel_no,
    id
)
` + selectRedriven,
	}
)

const selectRedriven = `SELECT
    m.ttl_ms + ?,
    m.channel_no,
    m.id
FROM consumers k
JOIN messages m ON m.channel_no = k.channel_no
WHERE k.no = ?
  AND m.id IN (?...)
  AND m.ttl_ms > 0`

// Expiring returns up to limit rows of expiring that are due at nowMs and come after a row,
// in their order.
func (s *Store) Expiring(ctx context.Context, after Expiry, nowMs int64, limit int) ([]Expiry, error) {
	var out []Expiry
	args := []any{after.AtMs, after.AtMs, after.ChannelNo, after.ChannelNo, after.ID[:], after.AtMs, nowMs, limit}
	err := repeat(ctx, "list expiring messages", func(ctx context.Context) error {
		out = nil
		return each(ctx, s.reads, selectExpiring, args, func(r *sql.Rows) error {
			var e Expiry
			err := r.Scan(&e.AtMs, &e.ChannelNo, scanID{&e.ID})
			out = append(out, e)
			return err
		})
	})
	return out, err
}

// Expire removes rows of expiring. Those whose message has a job that is not over are written
// again, due at laterMs.
func (s *Store) Expire(ctx context.Context, over, later []Expiry, laterMs int64) error {
	if len(over)+len(later) == 0 {
		return nil
	}
	return s.run(ctx, transaction{name: "expire", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		for _, part := range chunks(later, maxInList) {
			args := make([]any, 0, 3*len(part))
			for i := range part {
				args = append(args, laterMs, part[i].ChannelNo, part[i].ID[:])
			}
			if _, err := tx.ExecContext(ctx, rows(s.dialect.sql(insertExpiring), len(part), 3), args...); err != nil {
				return err
			}
		}
		for _, e := range slices.Concat(over, later) {
			if _, err := tx.ExecContext(ctx, list(deleteExpiring, 1), e.AtMs, e.ChannelNo, bytesOf(e.ID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// expireAgain gives redriven jobs whose messages have a time to live of their own a new row
// of expiring.
func (s *Store) expireAgain(ctx context.Context, tx *sql.Tx, consumerNo uint32, ids []ident.ID, nowMs int64) error {
	args := append([]any{nowMs}, inArgs(consumerNo, ids)...)
	_, err := tx.ExecContext(ctx, list(s.dialect.sql(insertExpiringAgain), len(ids)), args...)
	return err
}

// HeadsOf returns the heads of the existing messages among ids, with their times to live, in
// order of the IDs.
func (s *Store) HeadsOf(ctx context.Context, channelNo uint32, ids []ident.ID) ([]Head, error) {
	var out []Head
	for _, part := range chunks(ids, maxInList) {
		had := len(out)
		err := repeat(ctx, "read heads", func(ctx context.Context) error {
			out = out[:had]
			return each(ctx, s.reads, list(selectHeadsOf, len(part)), inArgs(channelNo, part), func(r *sql.Rows) error {
				var h Head
				err := r.Scan(append(h.columns(), &h.TTLMs)...)
				out = append(out, h)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Head) int { return a.ID.Compare(b.ID) })
	return out, nil
}

const selectJob = `
SELECT
    id,
    0 AS status,
    0 AS attempts,
    0 AS at_ms,
    0 AS next_ms,
    0 AS status_code,
    NULL AS error,
    0 AS reason_code,
    ttl_ms,
    0 AS disposal,
    0 AS given_back
FROM messages
WHERE channel_no = ?
  AND id = ?
UNION ALL` + selectJobStates

// A StoredJob is the state of one job with what its message says about its life.
type StoredJob struct {
	JobState
	Stored bool  // the message is there
	TTLMs  int64 // of the message
}

// Job returns the state of one job, in one statement.
func (s *Store) Job(ctx context.Context, k *Consumer, id ident.ID) (j StoredJob, err error) {
	args := []any{k.ChannelNo, id[:], k.No, id[:], k.No, id[:], k.No, id[:]}
	err = repeat(ctx, "read a job", func(ctx context.Context) error {
		j = StoredJob{}
		return each(ctx, s.reads, list(selectJob, 1), args, func(r *sql.Rows) error {
			_, x, err := scanJobState(r)
			switch {
			case err != nil:
				return err
			case x.Status == Waiting:
				j.Stored, j.TTLMs = true, x.RedrivenMs
			case x.Status >= j.Status:
				j.JobState = x
			}
			return nil
		})
	})
	return j, err
}
