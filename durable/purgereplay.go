package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/ident"
)

var selectReplaysWithin = fromReplays + `
WHERE channel_no = ?
  AND after_id < ?
  AND through_id > ?
ORDER BY no`

// The lock waits for the creation of a replay: one that is created later has read what this page
// removes, or sees that it is gone.
var shareChannel = locking(`
SELECT deleted_no <> 0
FROM channels
WHERE no = ?`, shareLock)

// replaysOf returns the replays of the channel with messages in the page. It reads them in the
// transaction: the caller may not know the newest one.
func (s *Store) replaysOf(ctx context.Context, tx *sql.Tx, p Purge) ([]Replay, error) {
	var deleted bool
	err := tx.QueryRowContext(ctx, s.dialect.sql(shareChannel), p.ChannelNo).Scan(&deleted)
	if errors.Is(err, sql.ErrNoRows) || err == nil && p.Deleted && !deleted {
		return nil, ErrStale
	}
	if err != nil {
		return nil, err
	}
	if err := p.ended(ctx, tx); err != nil {
		return nil, err
	}
	return selectAll[Replay](ctx, tx, selectReplaysWithin, p.ChannelNo, p.Through[:], p.After[:])
}

const selectEnded = `
SELECT
    no,
    deleted_no <> 0,
    since_id IS NOT NULL
FROM consumers
WHERE channel_no = ?`

// ended returns ErrStale unless the store has the consumers of the request, those that it takes
// for deleted are deleted, and the request lacks no consumer of older messages. The channel is
// locked, so that neither a restoration nor a new consumer comes between.
func (p *Purge) ended(ctx context.Context, tx *sql.Tx) error {
	type ending struct{ deleted, since bool }
	stored := make(map[uint32]ending, len(p.Consumers))
	err := each(ctx, tx, selectEnded, []any{p.ChannelNo}, func(r *sql.Rows) error {
		var no uint32
		var e ending
		err := r.Scan(&no, &e.deleted, &e.since)
		stored[no] = e
		return err
	})
	if err != nil {
		return err
	}
	for _, k := range p.Consumers {
		if e, known := stored[k.No]; !known || k.Deleted() && !e.deleted {
			return ErrStale
		}
		delete(stored, k.No)
	}
	for _, e := range stored { // that the request lacks
		if e.since && !e.deleted {
			return ErrStale
		}
	}
	return nil
}

// replays reports whether the message belongs to a replay that has not ended and has not passed it.
func replays(all []Replay, id ident.ID) bool {
	for i := range all {
		if r := &all[i]; !r.State.Ended() && id.Compare(r.Settled) > 0 && id.Compare(r.Through) <= 0 {
			return true
		}
	}
	return false
}
