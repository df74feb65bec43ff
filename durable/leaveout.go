package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

var takeLeftOut = locking(`
SELECT
    id,
    priority,
    left_out
FROM messages
WHERE channel_no = ?
  AND id IN (?...)`, updateLock)

const (
	updateLeftOut = `
UPDATE messages
SET
    left_out = ?
WHERE channel_no = ?
  AND id = ?`

	updatePrioritisedLeftOut = `
UPDATE prioritised
SET
    left_out = ?
WHERE channel_no = ?
  AND inv_priority = ?
  AND id = ?`
)

// LeaveOut stores that the filter of a consumer refused messages which were stored before the
// consumer was created (see Consumer.Since). The messages are at most 1000. It may be repeated. A
// message that is gone is skipped.
func (s *Store) LeaveOut(ctx context.Context, k Consumer, ids []ident.ID) error {
	if len(ids) == 0 {
		return nil
	}
	return s.run(ctx, transaction{name: "leave out messages", harmless: true}, func(ctx context.Context,
		tx *sql.Tx) error {
		var found []Head
		for _, part := range chunks(ids, maxInList) {
			err := each(ctx, tx, list(s.dialect.sql(takeLeftOut), len(part)), inArgs(k.ChannelNo, part),
				func(r *sql.Rows) error {
					var h Head
					err := r.Scan(asID{&h.ID}, &h.Priority, asPositions{&h.LeftOut})
					found = append(found, h)
					return err
				})
			if err != nil {
				return err
			}
		}
		for _, h := range found {
			if h.LeftOut.Has(k.Position) {
				continue
			}
			set := PositionSet{b: []byte(h.LeftOut)}
			set.Add(k.Position)
			column := set.Positions().column()
			if err := exec(ctx, tx, updateLeftOut, column, k.ChannelNo, h.ID[:]); err != nil {
				return err
			}
			if h.Priority == 0 {
				continue
			}
			if err := exec(ctx, tx, updatePrioritisedLeftOut, column, k.ChannelNo, maxPriority-h.Priority, h.ID[:]); err != nil {
				return err
			}
		}
		return nil
	})
}
