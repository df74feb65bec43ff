package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Settled is a stretch of messages, After < ID <= Through, by which the settled watermark of a
// consumer moves forward, with its sums: each job in it has an outcome or a row in open_jobs.
type Settled struct {
	ConsumerNo     uint32
	After, Through ident.ID
	Accepted       int64 // messages that concern the consumer, or that its filter left out
	Filtered       int64 // of which its filter left out
	Delivered      int64 // of which are delivered
}

// The settled watermark of a consumer is the ID up to which each of its jobs has an
// outcome or a row in open_jobs. The table of the watermarks is called marks.

const selectWatermarks = `
SELECT
    consumer_no,
    message_id
FROM marks`

var (
	upsertWatermarks = statement{
		mysql:  insertWatermarks + "\nON DUPLICATE KEY UPDATE message_id = GREATEST(message_id, VALUES(message_id))",
		sqlite: insertWatermarks + "\nON CONFLICT DO UPDATE SET message_id = MAX(message_id, excluded.message_id)",
	}

	// A watermark that another broker holds is waited for.
	lockWatermarks = locking(selectWatermarks+`
WHERE consumer_no IN (?...)`, updateLock)
)

const (
	insertWatermarks = `
INSERT INTO marks (
    consumer_no,
    message_id
)
VALUES (?, ...)`

	rewindWatermarks = `
UPDATE marks
SET message_id = ?
WHERE message_id > ?`

	rewindWatermark = `
UPDATE marks
SET message_id = ?
WHERE message_id > ?
  AND consumer_no = ?`

	rewindBookRows = `
DELETE FROM books
WHERE through_id > ?
  AND consumer_no = ?`

	rewindBooks = `
DELETE FROM books
WHERE through_id > ?`
)

// standingWatermarks returns the stretches that begin at the stored watermark of their consumer, and the
// stored watermarks of the others.
func (s *Store) standingWatermarks(ctx context.Context, tx *sql.Tx, part []Settled) (standing []Settled,
	others map[uint32]ident.ID, err error) {
	args := make([]any, len(part))
	for i, m := range part {
		args[i] = m.ConsumerNo
	}
	stored := map[uint32]ident.ID{}
	err = each(ctx, tx, list(s.dialect.sql(lockWatermarks), len(args)), args, func(r *sql.Rows) error {
		var no uint32
		var id ident.ID
		err := r.Scan(&no, asID{&id})
		stored[no] = id
		return err
	})
	others = map[uint32]ident.ID{}
	for _, m := range part {
		if at := stored[m.ConsumerNo]; at == m.After {
			standing = append(standing, m)
		} else if at != m.Through { // else a repeat after a lost answer
			others[m.ConsumerNo] = at
		}
	}
	return slices.Clip(standing), others, err
}

// RewindWatermarks moves all settled watermarks after an ID back to it, and forgets what the books
// have of the messages after it, which the scans enter again.
func (s *Store) RewindWatermarks(ctx context.Context, to ident.ID) error {
	return s.run(ctx, transaction{name: "rewind watermarks", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		if err := exec(ctx, tx, rewindWatermarks, to[:], to[:]); err != nil { // first, as in SaveWatermarks
			return err
		}
		return exec(ctx, tx, rewindBooks, to[:])
	})
}

// RewindWatermark is RewindWatermarks for one consumer.
func (s *Store) RewindWatermark(ctx context.Context, consumerNo uint32, to ident.ID) error {
	return s.run(ctx, transaction{name: "rewind a watermark", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		if err := exec(ctx, tx, rewindWatermark, to[:], to[:], consumerNo); err != nil { // first, as in SaveWatermarks
			return err
		}
		return exec(ctx, tx, rewindBookRows, to[:], consumerNo)
	})
}

// ForgetWatermarks removes the watermarks and the books of all consumers. Both are made of messages
// and outcomes: scans begin at the oldest message and enter the books again.
func (s *Store) ForgetWatermarks(ctx context.Context) error {
	return s.run(ctx, transaction{name: "forget watermarks", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		if err := exec(ctx, tx, `DELETE FROM marks`); err != nil { // first, as in SaveWatermarks
			return err
		}
		return exec(ctx, tx, `DELETE FROM books`)
	})
}

// Watermarks returns the settled watermark of each consumer, by consumer number.
func (s *Store) Watermarks(ctx context.Context) (map[uint32]ident.ID, error) {
	out := map[uint32]ident.ID{}
	err := repeat(ctx, "read watermarks", func(ctx context.Context) error {
		clear(out)
		return each(ctx, s.reads, selectWatermarks, nil, func(r *sql.Rows) error {
			var no uint32
			var id ident.ID
			err := r.Scan(&no, asID{&id})
			out[no] = id
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
