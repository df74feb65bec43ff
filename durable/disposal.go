package durable

import (
	"context"
	"database/sql"
	"slices"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Disposal says what became of a dead letter.
type Disposal uint8

// The disposals. The numbers are stored.
const (
	Kept      Disposal = iota
	Forwarded          // handed on, or not to be handed on; it stays a dead letter
	Discarded          // not listed any more; retention takes the job for over
)

// disposal is that of a dead letter when it is stored.
func (o *Outcome) disposal() Disposal {
	if o.Forget {
		return Discarded
	}
	return Kept
}

// A DeadHead has the fields of a dead letter that decide what becomes of it.
type DeadHead struct {
	ID       ident.ID
	DiedMs   int64
	Reason   Reason
	Redrives int // by the broker itself, since the last one by request
	Disposal Disposal
}

const (
	selectDeadHeads = `
SELECT
    d.message_id,
    d.died_ms,
    d.reason_code,
    d.redrives,
    d.disposal,
    v.message_id IS NOT NULL
FROM (
    SELECT
        consumer_no,
        message_id,
        died_ms,
        reason_code,
        redrives,
        disposal
    FROM dead_jobs
    WHERE consumer_no = ?
      AND message_id >= ?
    ORDER BY message_id
    LIMIT ?
) d
LEFT JOIN deliveries v
    ON v.consumer_no = d.consumer_no
   AND v.message_id = d.message_id
ORDER BY d.message_id`

	updateDisposal = `
UPDATE dead_jobs
SET disposal = ?
WHERE consumer_no = ?
  AND message_id = ?
  AND died_ms = ?
  AND disposal <> 2`

	selectRecentDeliveries = `
SELECT MAX(at_ms)
FROM (
    SELECT at_ms
    FROM deliveries
    WHERE consumer_no = ?
    ORDER BY message_id DESC
    LIMIT ?
) v`
)

// DeadHeads returns up to limit dead letters of a consumer with message IDs from from on, in
// order, also those that are disposed of. next continues; it is zero at the end.
func (s *Store) DeadHeads(ctx context.Context, consumerNo uint32, from ident.ID, limit int) (out []DeadHead,
	next ident.ID, err error) {
	err = repeat(ctx, "scan dead letters", func(ctx context.Context) error {
		out, next = nil, ident.ID{}
		n := 0
		return each(ctx, s.reads, selectDeadHeads, []any{consumerNo, from[:], limit}, func(r *sql.Rows) error {
			var d DeadHead
			var delivered bool
			err := r.Scan(asID{&d.ID}, &d.DiedMs, &d.Reason, &d.Redrives, &d.Disposal, &delivered)
			if n++; n == limit {
				next = d.ID.Next()
			}
			if !delivered {
				out = append(out, d)
			}
			return err
		})
	})
	return out, next, err
}

// Dispose notes what became of dead letters. A job that died again since is left alone.
func (s *Store) Dispose(ctx context.Context, consumerNo uint32, dead []DeadHead, to Disposal) error {
	if len(dead) == 0 {
		return nil
	}
	return s.run(ctx, transaction{name: "dispose of dead letters", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		var left []deadRow
		if to == Discarded {
			died := map[ident.ID]int64{}
			ids := make([]ident.ID, len(dead))
			for i := range dead {
				ids[i], died[dead[i].ID] = dead[i].ID, dead[i].DiedMs
			}
			for _, part := range chunks(ids, maxInList) {
				taken, err := s.takeDead(ctx, tx, consumerNo, part)
				if err != nil {
					return err
				}
				left = append(left, taken...)
			}
			left = slices.DeleteFunc(left, func(d deadRow) bool { return died[d.ID] != d.DiedMs })
		}
		for i := range dead {
			if err := exec(ctx, tx, updateDisposal, to, consumerNo, dead[i].ID[:], dead[i].DiedMs); err != nil {
				return err
			}
		}
		return leaveGroups(ctx, tx, consumerNo, left)
	})
}

// recentDeliveries bounds the deliveries that LastDelivery looks at.
const recentDeliveries = 1000

// LastDelivery returns the time of the latest delivery to a consumer, Unix ms, 0 without one.
// It looks at the newest delivered messages only, so a late success of an old message, with
// many newer ones delivered before, is not seen.
func (s *Store) LastDelivery(ctx context.Context, consumerNo uint32) (int64, error) {
	var at sql.NullInt64
	err := repeat(ctx, "find the latest delivery", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectRecentDeliveries, consumerNo, recentDeliveries).Scan(&at)
	})
	return at.Int64, err
}
