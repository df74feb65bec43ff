package durable

import (
	"context"
	"database/sql"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"
)

// A ReceiptID names a message that was in the journal of a broker. It begins with 48 bits of Unix
// milliseconds, so receipts ascend with time.
type ReceiptID [20]byte

// ReceiptsKept is how long the store knows what became of a message of a journal.
const ReceiptsKept = 7 * 24 * time.Hour

// A Receipt says what became of a message of a journal.
type Receipt struct {
	ID        ReceiptID
	ChannelNo uint32
	Message   string // the ID of the message in its path; empty: it was not stored
	Reason    string // why not: the code of a problem
}

func (r *Receipt) columns() columns {
	return columns{
		{"id", asFixed(r.ID[:])},
		{"channel_no", &r.ChannelNo},
		{"message", asBytes{&r.Message}},
		{"reason", asBytes{&r.Reason}},
	}
}

var (
	selectReceipts = `
SELECT` + new(Receipt).columns().names() + `
FROM receipts
WHERE id IN (?...)`

	// A receipt that is there already stays: its message was replayed before.
	insertReceipts = keepFirst(new(Receipt).columns().inserts("receipts"), "reason")
)

const (
	selectOldReceipts = `
SELECT id
FROM receipts
WHERE id < ?
ORDER BY id
LIMIT ?`

	deleteOldReceipts = `
DELETE FROM receipts
WHERE id <= ?`
)

// StoreReceipts records what became of messages of a journal. A crash between the insert of a
// message and this call leaves a message whose receipt still waits: the journal still has it, and
// its replay finds it stored.
//
// seen is the store's clock from before the messages were stored, or found stored; the zero value is
// none. ErrStale means that the store went back since, as to a replica without the last writes: it may
// have none of them, and nothing was recorded. This is so for no receipts, too.
func (s *Store) StoreReceipts(ctx context.Context, seen Clock, all []Receipt) error {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Receipt) int { return strings.Compare(string(a.ID[:]), string(b.ID[:])) })
	parts := chunks(all, maxInList)
	if len(parts) == 0 {
		parts = [][]Receipt{nil}
	}
	for _, part := range parts {
		var args []any
		for _, r := range part {
			args = append(args, r.columns().fields()...)
		}
		err := s.run(ctx, transaction{name: "store receipts", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
			if err := s.sameHistory(ctx, tx, seen); err != nil || len(part) == 0 {
				return err
			}
			return insertRows(ctx, tx, s.dialect.sql(insertReceipts), args)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Receipts returns what is recorded of some receipts.
func (s *Store) Receipts(ctx context.Context, ids []ReceiptID) (map[ReceiptID]Receipt, error) {
	out := map[ReceiptID]Receipt{}
	for _, part := range chunks(ids, maxInList) {
		err := repeat(ctx, "read receipts", func(ctx context.Context) error {
			found, err := receiptsIn(ctx, s.reads, part)
			maps.Copy(out, found)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// receiptsIn reads at most maxInList receipts.
func receiptsIn(ctx context.Context, q querier, ids []ReceiptID) (map[ReceiptID]Receipt, error) {
	out := map[ReceiptID]Receipt{}
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	err := eachOf(ctx, q, (*Receipt).columns, list(selectReceipts, len(ids)), args, func(r *Receipt) { out[r.ID] = *r })
	return out, err
}

// ForgetReceipts removes up to limit receipts that are older than ReceiptsKept, and returns their
// number. nowMs is the store's clock.
func (s *Store) ForgetReceipts(ctx context.Context, nowMs int64, limit int) (removed int, err error) {
	before := ReceiptID{}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(0, nowMs-ReceiptsKept.Milliseconds())))
	copy(before[:], ms[2:])
	err = s.run(ctx, transaction{name: "forget receipts", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		var last []byte
		removed = 0
		err := each(ctx, tx, selectOldReceipts, []any{before[:], limit}, func(r *sql.Rows) error {
			removed++
			return r.Scan(&last)
		})
		if err != nil || removed == 0 {
			return err
		}
		return exec(ctx, tx, deleteOldReceipts, last)
	})
	return removed, err
}
