package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An Expiry is a row of expiring: a message with a time to live of its own, whose jobs may
// not be over.
type Expiry struct {
	AtMs      int64 // Unix ms
	ChannelNo uint32
	ID        ident.ID
}

func (e *Expiry) columns() columns {
	return columns{
		{"expires_ms", &e.AtMs},
		{"channel_no", &e.ChannelNo},
		{"id", asID{&e.ID}},
	}
}

// timed are the columns of a head with its time to live.
func (h *Head) timed() columns { return append(h.columns(), column{"ttl_ms", &h.TTLMs}) }

var (
	selectExpiring = `
SELECT` + new(Expiry).columns().names() + `
FROM expiring
WHERE (expires_ms > ? OR expires_ms = ? AND (channel_no > ? OR channel_no = ? AND id > ?))
  AND expires_ms >= ?
  AND expires_ms <= ?
ORDER BY expires_ms, channel_no, id
LIMIT ?`

	selectHeadsOf = `
SELECT` + new(Head).timed().names() + `
FROM messages
WHERE channel_no = ?
  AND id IN (?...)
ORDER BY id`

	insertExpiring = statement{
		mysql:  insertExpiringRows + "\nON DUPLICATE KEY UPDATE id = VALUES(id)",
		sqlite: insertExpiringRows + "\nON CONFLICT DO NOTHING",
	}

	insertExpiringRows = new(Expiry).columns().inserts("expiring")

	insertExpiringAgain = copying("expiring", new(Expiry).columns().names(), selectRedriven)
)

const (
	deleteExpiring = `
DELETE FROM expiring
WHERE expires_ms = ?
  AND channel_no = ?
  AND id IN (?...)`

	selectRedriven = `
SELECT
    m.ttl_ms + ?,
    m.channel_no,
    m.id
FROM consumers k
JOIN messages m ON m.channel_no = k.channel_no
WHERE k.no = ?
  AND m.id IN (?...)
  AND m.ttl_ms > 0`
)

// Expiring returns up to limit rows of expiring that are due at nowMs and come after a row,
// in their order.
func (s *Store) Expiring(ctx context.Context, after Expiry, nowMs int64, limit int) ([]Expiry, error) {
	args := []any{after.AtMs, after.AtMs, after.ChannelNo, after.ChannelNo, after.ID[:], after.AtMs, nowMs, limit}
	return readAll[Expiry](ctx, s, "list expiring messages", selectExpiring, args...)
}

// Expire removes rows of expiring. Those whose message has a job that is not over are written
// again, due at laterMs.
func (s *Store) Expire(ctx context.Context, over, later []Expiry, laterMs int64) error {
	if len(over)+len(later) == 0 {
		return nil
	}
	return s.run(ctx, transaction{name: "expire", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		for _, part := range chunks(later, maxInList) {
			var args []any
			for _, e := range part {
				e.AtMs = laterMs
				args = append(args, e.columns().fields()...)
			}
			if err := insertRows(ctx, tx, s.dialect.sql(insertExpiring), args); err != nil {
				return err
			}
		}
		for _, e := range slices.Concat(over, later) {
			if err := exec(ctx, tx, list(deleteExpiring, 1), e.AtMs, e.ChannelNo, bytesOf(e.ID)); err != nil {
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
	return exec(ctx, tx, list(s.dialect.sql(insertExpiringAgain), len(ids)), args...)
}

// HeadsOf returns the heads of the existing messages among ids, with their times to live, in
// order of the IDs.
func (s *Store) HeadsOf(ctx context.Context, channelNo uint32, ids []ident.ID) ([]Head, error) {
	var out []Head
	for _, part := range chunks(ids, maxInList) {
		found, err := readOf(ctx, s, "read heads", (*Head).timed, list(selectHeadsOf, len(part)), inArgs(channelNo, part)...)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
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
    0 AS given_back,
    0 AS leases_lost,
    NULL AS worker,
    0 AS fingerprint
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
