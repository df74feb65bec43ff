package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// columns are those of an exchange without its response.
func (w *Work) columns() columns {
	return columns{
		{"message_id", asID{&w.ID}},
		{"state", &w.State},
		{"goes_back", &w.GoesBack},
		{"deadline_ms", &w.DeadlineMs},
		{"due_ms", &w.DueMs},
		{"tries", &w.Tries},
		{"url", asBytes{&w.URL}},
		{"LENGTH(body) + LENGTH(headers)", &w.Bytes},
	}
}

var selectWork = `
SELECT` + new(Work).columns().names() + `
FROM exchanges
WHERE consumer_no = ?
  AND due_ms <= ?
ORDER BY due_ms
LIMIT ?`

const (
	// The end of one consumer's stretch of the index is the beginning of the next one's.
	selectNextWork = `
SELECT
    consumer_no,
    due_ms
FROM exchanges
WHERE consumer_no > ?
ORDER BY consumer_no, due_ms
LIMIT 1`

	delayWork = `
UPDATE exchanges
SET
    due_ms = ?,
    tries = tries + ?
WHERE consumer_no = ?
  AND state = ?
  AND message_id IN (?...)`

	dropBodies = `
UPDATE exchanges
SET
    due_ms = ?,
    reason = ?,
    headers = ?,
    body = ?
WHERE consumer_no = ?
  AND due_ms <= ?
  AND message_id IN (?...)`
)

// Dropped is the Reason of an exchange whose response was dropped by its age.
const Dropped = "the response is older than responseTTL and was dropped"

// NextWork returns the consumer with the lowest number above after that has exchanges, and when the
// first of them is due; consumer 0: there is none.
func (s *Store) NextWork(ctx context.Context, after uint32) (consumerNo uint32, dueMs int64, err error) {
	err = repeat(ctx, "find due responses", func(ctx context.Context) error {
		err := s.reads.QueryRowContext(ctx, selectNextWork, after).Scan(&consumerNo, &dueMs)
		if errors.Is(err, sql.ErrNoRows) {
			consumerNo, dueMs, err = 0, 0, nil
		}
		return err
	})
	return consumerNo, dueMs, err
}

// A Work is an exchange that is due, without its response.
type Work struct {
	ExchangeHead
	ID         ident.ID
	DeadlineMs int64
	DueMs      int64
	Tries      int
	URL        string
}

// DueWork returns up to limit exchanges of a consumer that are due at nowMs, the longest due first.
func (s *Store) DueWork(ctx context.Context, consumerNo uint32, nowMs int64, limit int) ([]Work, error) {
	return readAll[Work](ctx, s, "read due responses", selectWork, consumerNo, nowMs, limit)
}

// DelayWork makes exchanges of a consumer in a state due at dueMs, and counts tries.
func (s *Store) DelayWork(ctx context.Context, consumerNo uint32, state ExchangeState, ids []ident.ID, dueMs int64,
	tries int) error {
	for _, part := range chunks(ids, maxInList) {
		args := append([]any{dueMs, tries}, consumerNo, state)
		for i := range part {
			args = append(args, part[i][:])
		}
		err := repeat(ctx, "delay responses", func(ctx context.Context) error {
			return exec(ctx, s.db, list(delayWork, len(part)), args...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// DropResponses drops the bodies of exchanges that are past their time.
func (s *Store) DropResponses(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error {
	for _, part := range chunks(ids, maxInList) {
		args := []any{int64(Never), []byte(Dropped), []byte{}, []byte{}, consumerNo, nowMs}
		for i := range part {
			args = append(args, part[i][:])
		}
		err := repeat(ctx, "drop responses", func(ctx context.Context) error {
			return exec(ctx, s.db, list(dropBodies, len(part)), args...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
