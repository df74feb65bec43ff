package durable

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// What producers store is counted where a producer has a bound. A mark in each channel says up to
// which message the sums count. The transaction that counts moves the mark, and a purge subtracts what
// it removes below the mark, so each message is counted once as long as it is stored. A crash between
// two such transactions leaves a mark that is behind: the next count goes on from there.

// A StoredSum is what one producer stores.
type StoredSum struct{ Messages, Bytes int64 }

// A Stored is what all producers store, at one moment.
type Stored struct {
	Sums  map[uint32]StoredSum // producer -> its messages up to the marks
	Marks map[uint32]ident.ID  // channel -> up to which message they are counted
	Bulks map[uint32]int64     // producer -> bytes of the bodies of bulks that are not over
}

const (
	selectStoredMark = `
SELECT through_id
FROM stored_marks
WHERE channel_no = ?`

	selectUncounted = `
SELECT
    id,
    producer_no,
    LENGTH(payload) + LENGTH(headers)
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`

	moveStoredMark = `
UPDATE stored_marks
SET through_id = ?
WHERE channel_no = ?`

	selectRemovedSums = `
SELECT
    producer_no,
    COUNT(*),
    SUM(LENGTH(payload) + LENGTH(headers))
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND id NOT IN (?...)
GROUP BY producer_no
ORDER BY producer_no`

	subtractStored = `
UPDATE stored_sums
SET
    messages = CASE WHEN messages > ? THEN messages - ? ELSE 0 END,
    bytes = CASE WHEN bytes > ? THEN bytes - ? ELSE 0 END
WHERE producer_no = ?`

	insertStored = `
INSERT INTO stored_sums (
    producer_no,
    messages,
    bytes
)
VALUES (?, ?, ?)`

	selectStoredSums = `
SELECT
    producer_no,
    messages,
    bytes
FROM stored_sums`

	selectStoredMarks = `
SELECT
    channel_no,
    through_id
FROM stored_marks`

	selectBulkBodies = `
SELECT
    producer_no,
    SUM(bytes)
FROM bulks
WHERE state < ?
  AND chunks > 0
GROUP BY producer_no`

	// The index scheduled_turns has all that a count needs.
	selectScheduledCounts = `
SELECT
    producer_no,
    COUNT(*)
FROM scheduled
WHERE status = 0
  AND id < ?`

	selectScheduledBytes = `
SELECT
    producer_no,
    SUM(LENGTH(payload) + LENGTH(headers))
FROM scheduled
WHERE status IN (0, 1)
  AND id < ?`

	ofProducers = `
  AND producer_no IN (?...)`

	byProducer = `
GROUP BY producer_no`
)

var (
	insertStoredMark = keepFirst(`
INSERT INTO stored_marks (
    channel_no,
    through_id
)
VALUES (?, ?)`, "through_id")

	// The lock excludes a purge and another count of the channel.
	lockStoredMark = locking(selectStoredMark, updateLock)

	addStored = statement{
		mysql: insertStored + `
ON DUPLICATE KEY UPDATE
    messages = messages + VALUES(messages),
    bytes = bytes + VALUES(bytes)`,
		sqlite: insertStored + `
ON CONFLICT DO UPDATE SET
    messages = messages + excluded.messages,
    bytes = bytes + excluded.bytes`,
	}
)

// CountStored counts up to limit messages of a channel that are not counted yet, with an ID of at most
// through. more reports whether there may be others. through must be older than any message that can
// still be inserted.
func (s *Store) CountStored(ctx context.Context, channelNo uint32, through ident.ID, limit int) (more bool, err error) {
	// A repeat after a lost answer goes on from the mark.
	err = s.run(ctx, transaction{name: "count what producers store", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		more = false
		if err := exec(ctx, tx, s.dialect.sql(insertStoredMark), channelNo, bytesOf(ident.ID{})); err != nil {
			return err
		}
		var mark ident.ID
		if err := tx.QueryRowContext(ctx, s.dialect.sql(lockStoredMark), channelNo).Scan(asID{&mark}); err != nil {
			return err
		}
		if mark.Compare(through) >= 0 {
			return nil
		}
		sums, n := map[uint32]StoredSum{}, 0
		err := each(ctx, tx, selectUncounted, []any{channelNo, mark[:], through[:], limit}, func(r *sql.Rows) error {
			var producer uint32
			var size int64
			err := r.Scan(asID{&mark}, &producer, &size)
			sums[producer] = StoredSum{sums[producer].Messages + 1, sums[producer].Bytes + size}
			n++
			return err
		})
		if err != nil {
			return err
		}
		if more = n == limit; !more {
			mark = through
		}
		for _, no := range slices.Sorted(maps.Keys(sums)) {
			if err := exec(ctx, tx, s.dialect.sql(addStored), no, sums[no].Messages, sums[no].Bytes); err != nil {
				return err
			}
		}
		return exec(ctx, tx, moveStoredMark, mark[:], channelNo)
	})
	return more, err
}

// subtractStored takes the messages that a purge is about to remove out of the sums. keep are those of
// the page that stay.
func (p *Purge) subtractStored(ctx context.Context, tx *sql.Tx, s *Store, keep []ident.ID) error {
	var mark ident.ID
	err := tx.QueryRowContext(ctx, s.dialect.sql(lockStoredMark), p.ChannelNo).Scan(asID{&mark})
	if err != nil {
		return orNothing(err) // nothing of the channel was ever counted
	}
	if p.Through.Compare(mark) < 0 {
		mark = p.Through
	}
	if len(keep) == 0 {
		keep = []ident.ID{p.After} // outside of every range that begins after it
	}
	args := []any{p.ChannelNo, p.After[:], mark[:]}
	for i := range keep {
		args = append(args, keep[i][:])
	}
	sums := map[uint32]StoredSum{}
	err = each(ctx, tx, list(selectRemovedSums, len(keep)), args, func(r *sql.Rows) error {
		var producer uint32
		var sum StoredSum
		err := r.Scan(&producer, &sum.Messages, &sum.Bytes)
		sums[producer] = sum
		return err
	})
	if err != nil {
		return err
	}
	for _, no := range slices.Sorted(maps.Keys(sums)) {
		m := sums[no]
		if err := exec(ctx, tx, subtractStored, m.Messages, m.Messages, m.Bytes, m.Bytes, no); err != nil {
			return err
		}
	}
	return nil
}

// Stored returns what the producers store.
func (s *Store) Stored(ctx context.Context) (out Stored, err error) {
	snapshot := transaction{
		name: "read what producers store", options: &sql.TxOptions{Isolation: sql.LevelRepeatableRead,
			ReadOnly: true}, reads: true, harmless: true,
	}
	err = s.run(ctx, snapshot, func(ctx context.Context, tx *sql.Tx) error {
		out = Stored{map[uint32]StoredSum{}, map[uint32]ident.ID{}, map[uint32]int64{}}
		err := each(ctx, tx, selectStoredSums, nil, func(r *sql.Rows) error {
			var no uint32
			var sum StoredSum
			err := r.Scan(&no, &sum.Messages, &sum.Bytes)
			out.Sums[no] = sum
			return err
		})
		if err != nil {
			return err
		}
		err = each(ctx, tx, selectStoredMarks, nil, func(r *sql.Rows) error {
			var no uint32
			var mark ident.ID
			err := r.Scan(&no, asID{&mark})
			out.Marks[no] = mark
			return err
		})
		if err != nil {
			return err
		}
		return each(ctx, tx, selectBulkBodies, []any{BulkDone}, func(r *sql.Rows) error {
			var no uint32
			var bytes int64
			err := r.Scan(&no, &bytes)
			out.Bulks[no] = bytes
			return err
		})
	})
	return out, err
}

// ScheduledCounts returns how many schedules of each producer wait, of those with an ID below before.
// of are the producers, nil: all. It reads index entries of theirs alone.
func (s *Store) ScheduledCounts(ctx context.Context, before ident.ID, of []uint32) (map[uint32]int64, error) {
	return s.scheduledSums(ctx, selectScheduledCounts, before, of)
}

// ScheduledBytes returns the bytes of the schedules of each producer, also of those that are over. It
// reads the rows of these producers.
func (s *Store) ScheduledBytes(ctx context.Context, before ident.ID, of []uint32) (map[uint32]int64, error) {
	return s.scheduledSums(ctx, selectScheduledBytes, before, of)
}

func (s *Store) scheduledSums(ctx context.Context, query string, before ident.ID, of []uint32) (out map[uint32]int64,
	err error) {
	parts := [][]uint32{nil}
	if of != nil {
		parts = chunks(of, maxInList)
	}
	err = repeat(ctx, "count the schedules of producers", func(ctx context.Context) error {
		out = map[uint32]int64{}
		for _, part := range parts {
			text, args := query+byProducer, []any{before[:]}
			if of != nil {
				text = query + list(ofProducers, len(part)) + byProducer
			}
			for _, no := range part {
				args = append(args, no)
			}
			err := each(ctx, s.reads, text, args, func(r *sql.Rows) error {
				var no uint32
				var sum int64
				err := r.Scan(&no, &sum)
				out[no] = sum
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
