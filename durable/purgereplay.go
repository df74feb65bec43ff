package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/ident"
)

const selectReplaysWithin = `
SELECT` + replayColumns + `
WHERE channel_no = ?
  AND after_id < ?
  AND through_id > ?
ORDER BY no`

// The lock waits for the creation of a replay: one that is created later has read what this page
// removes, or sees that it is gone.
var shareChannel = statement{
	mysql: `
SELECT no
FROM channels
WHERE no = ?
LOCK IN SHARE MODE`,
	sqlite: `
SELECT no
FROM channels
WHERE no = ?`,
}

// replaysOf returns the replays of the channel with messages in the page. It reads them in the
// transaction: the caller may not know the newest one.
func (s *Store) replaysOf(ctx context.Context, tx *sql.Tx, p Purge) (out []Replay, err error) {
	var no uint32
	if err := tx.QueryRowContext(ctx, s.dialect.sql(shareChannel), p.ChannelNo).Scan(&no); err != nil {
		return nil, err
	}
	err = each(ctx, tx, selectReplaysWithin, []any{p.ChannelNo, p.Through[:], p.After[:]}, func(r *sql.Rows) error {
		one, err := scanReplay(r)
		out = append(out, one)
		return err
	})
	return out, err
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
