package durable

import "context"

// The history is what brokers counted, by slots of time. A row belongs to one writer, a broker since its
// start, and has all that the writer counted in the slot: written again, it changes nothing, so a write
// whose outcome is unknown is repeated. Whoever reads adds the rows of the writers. A broker that dies
// leaves the rows that it wrote last, and nobody repairs them: what it counted since is lost. No writer has
// the number 0, see historymerge.go.

// A HistoryScope says of what a row of the history is.
type HistoryScope uint8

// The scopes. The numbers are stored.
const (
	HistoryOfAll HistoryScope = iota // with the number 0
	HistoryOfChannel
	HistoryOfConsumer
)

// A HistoryRow is what one writer counted in one slot.
type HistoryRow struct {
	Scope  HistoryScope
	No     uint32 // of the channel or the consumer
	Step   int    // length of the slot, seconds
	AtMs   int64  // begin of the slot, by the store's clock
	Writer uint32

	Accepted, Delivered, Failed, Dead int64
	OldestMs                          int64  // age of the oldest waiting job, the largest of the slot
	Acks, Deliveries                  []byte // histograms, as package history encodes them
}

// MaxHistogram is the width of the columns with histograms, bytes.
const MaxHistogram = 1024

// MaxHistoryRows is the most rows of one KeepHistory: published messages wait for that of SQLite, which
// took 12 ms, on two cores.
const MaxHistoryRows = 200

func (r *HistoryRow) columns() columns {
	return columns{
		{"scope", &r.Scope},
		{"no", &r.No},
		{"step", &r.Step},
		{"at_ms", &r.AtMs},
		{"writer", &r.Writer},
		{"accepted", &r.Accepted},
		{"delivered", &r.Delivered},
		{"failed", &r.Failed},
		{"dead", &r.Dead},
		{"oldest_ms", &r.OldestMs},
		{"acks", asBlob{&r.Acks}},
		{"deliveries", asBlob{&r.Deliveries}},
	}
}

var (
	replaceHistory = replacing(new(HistoryRow).columns().inserts("history"), "accepted", "delivered", "failed", "dead",
		"oldest_ms", "acks", "deliveries")

	selectHistory = `
SELECT` + new(HistoryRow).columns().names() + `
FROM history
WHERE scope = ?
  AND no = ?
  AND step = ?
  AND at_ms >= ?
  AND at_ms < ?
ORDER BY at_ms`
)

const (
	selectFirstSlot = `
SELECT COALESCE(MIN(at_ms), ?)
FROM history
WHERE step = ?`

	deleteSlot = `
DELETE FROM history
WHERE step = ?
  AND at_ms = ?`
)

// KeepHistory stores up to MaxHistoryRows rows, each in the place of an earlier one of its writer. They
// are in the order of their keys, so two writers do not lock each other out.
func (s *Store) KeepHistory(ctx context.Context, rows []HistoryRow) error {
	if len(rows) == 0 {
		return nil
	}
	return repeat(ctx, "keep history", func(ctx context.Context) error { return s.putHistory(ctx, s.db, rows) })
}

func (s *Store) putHistory(ctx context.Context, q querier, rows []HistoryRow) error {
	var args []any
	for i := range rows {
		args = append(args, rows[i].columns().fields()...)
	}
	return insertRows(ctx, q, s.dialect.sql(replaceHistory), args)
}

// History returns the rows of all writers, of slots that begin from fromMs until before toMs, in the order
// of the slots.
func (s *Store) History(ctx context.Context, scope HistoryScope, no uint32, step int,
	fromMs, toMs int64) ([]HistoryRow, error) {
	return readAll[HistoryRow](ctx, s, "read history", selectHistory, scope, no, step, fromMs, toMs)
}

// ForgetHistory removes the slots of a step that begin before a time, the oldest first and at most limit of
// them, with the rows of all writers. It returns how many it removed. It may be repeated.
func (s *Store) ForgetHistory(ctx context.Context, step int, beforeMs int64, limit int) (slots int, err error) {
	for slots < limit {
		var first int64
		err := repeat(ctx, "find old history", func(ctx context.Context) error {
			return s.reads.QueryRowContext(ctx, selectFirstSlot, beforeMs, step).Scan(&first)
		})
		if err != nil || first >= beforeMs {
			return slots, err
		}
		err = repeat(ctx, "remove old history", func(ctx context.Context) error {
			return exec(ctx, s.db, deleteSlot, step, first)
		})
		if err != nil {
			return slots, err
		}
		slots++
	}
	return slots, nil
}
