package durable

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

const (
	// bookRowMessages and bookRowSpan bound the stretch of one row of the books. Edges of a question that lie
	// in a stretch are counted message by message.
	bookRowMessages = 20_000
	bookRowSpan     = 10 * time.Minute

	selectLastBookRow = `
SELECT
    after_id,
    through_id,
    accepted
FROM books
WHERE consumer_no = ?
ORDER BY after_id DESC
LIMIT 1`

	selectFirstBookRow = `
SELECT MIN(after_id)
FROM books
WHERE consumer_no = ?
  AND through_id > ?`

	extendBookRow = `
UPDATE books
SET
    through_id = ?,
    accepted = accepted + ?,
    filtered = filtered + ?,
    delivered = delivered + ?
WHERE consumer_no = ?
  AND after_id = ?`

	insertBookRow = `
INSERT INTO books (
    consumer_no,
    after_id,
    through_id,
    accepted,
    filtered,
    delivered
)
VALUES (?, ?, ?, ?, ?, ?)`

	correctBookRow = `
UPDATE books
SET delivered = ?
WHERE consumer_no = ?
  AND after_id = ?
  AND through_id = ?
  AND delivered = ?`

	deleteBookRows = `
DELETE FROM books
WHERE consumer_no = ?
  AND through_id <= ?`
)

// SaveWatermarks moves the settled watermark of each consumer from the begin of its stretch to the
// end, and enters the sums of the stretch into the books. Where the stored watermark is another than
// the begin, nothing is saved: another broker has moved it, or the store went back. others are the
// stored watermarks of these consumers. seen is the store's clock from before the stretches were
// counted, the zero value for none: ErrStale means that the store went back since, and nothing was saved.
func (s *Store) SaveWatermarks(ctx context.Context, seen Clock, settled []Settled) (others map[uint32]ident.ID,
	err error) {
	slices.SortFunc(settled, func(a, b Settled) int { return int(a.ConsumerNo) - int(b.ConsumerNo) })
	others = map[uint32]ident.ID{}
	for _, part := range chunks(settled, maxInList) {
		var missed map[uint32]ident.ID
		err := s.run(ctx, transaction{name: "save watermarks", harmless: true}, func(ctx context.Context,
			tx *sql.Tx) (err error) {
			// First, because the rows of the watermarks guard the books.
			if err := s.sameHistory(ctx, tx, seen); err != nil {
				return err
			}
			var standing []Settled
			if standing, missed, err = s.standingWatermarks(ctx, tx, part); err != nil || len(standing) == 0 {
				return err
			}
			args := make([]any, 0, 2*len(standing))
			for _, m := range standing {
				args = append(args, m.ConsumerNo, bytesOf(m.Through))
			}
			if err := insertRows(ctx, tx, s.dialect.sql(upsertWatermarks), args); err != nil {
				return err
			}
			for _, m := range standing {
				if err := enter(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		maps.Copy(others, missed)
	}
	return others, nil
}

// enter adds a stretch to the last row of the books of its consumer, or begins a new row.
func enter(ctx context.Context, tx *sql.Tx, m Settled) error {
	if m.Accepted == 0 && m.Delivered == 0 {
		return nil // as if it were in no stretch: it is counted, in no time
	}
	var after, through ident.ID
	var accepted int64
	err := tx.QueryRowContext(ctx, selectLastBookRow, m.ConsumerNo).Scan(asID{&after}, asID{&through}, &accepted)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	case through.Compare(m.After) > 0:
		return nil
	case through == m.After && accepted+m.Accepted <= bookRowMessages &&
		m.Through.Millis()-after.Millis() <= bookRowSpan.Milliseconds():
		return exec(ctx, tx, extendBookRow, bytesOf(m.Through), m.Accepted, m.Filtered, m.Delivered, m.ConsumerNo,
			bytesOf(after))
	}
	return exec(ctx, tx, insertBookRow, m.ConsumerNo, bytesOf(m.After), bytesOf(m.Through), m.Accepted, m.Filtered,
		m.Delivered)
}

// FirstBookRow returns the begin of the first stretch of a consumer in the books that ends after an ID.
// found is false where there is none.
func (s *Store) FirstBookRow(ctx context.Context, consumerNo uint32, after ident.ID) (begin ident.ID, found bool,
	err error) {
	err = repeat(ctx, "find the first stretch of the books", func(ctx context.Context) error {
		var first []byte
		err := s.reads.QueryRowContext(ctx, selectFirstBookRow, consumerNo, after[:]).Scan(&first)
		if found = len(first) == ident.Size; found {
			begin = ident.ID(first)
		}
		return err
	})
	return begin, found, err
}

// TrimBooks removes the rows of the books of a consumer whose stretches end before a time.
func (s *Store) TrimBooks(ctx context.Context, consumerNo uint32, before ident.ID) error {
	return repeat(ctx, "trim the books", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteBookRows, consumerNo, bytesOf(before))
	})
}
