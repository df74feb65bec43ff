package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/ident"
)

// A ReplayCounts is how far a replay is.
type ReplayCounts struct {
	Replayed  int64 // jobs of which a copy was sent
	Delivered int64
	Dead      int64
}

const (
	// The jobs of a replay that are dead, or wait for another attempt: all of them, and those of
	// messages up to the settled one.
	countReplayDead = `
SELECT
    COUNT(*),
    COALESCE(SUM(d.message_id <= ?), 0)` + deadIn

	countReplayOpen = `
SELECT
    COUNT(*),
    COALESCE(SUM(o.message_id <= ?), 0)` + openIn
)

// ReplayCounts counts the outcomes of a replay. The cost follows the jobs above the settled one, and
// the jobs that failed.
func (s *Store) ReplayCounts(ctx context.Context, r *Replay) (out ReplayCounts, err error) {
	if r.State.Ended() {
		return ReplayCounts{Replayed: r.Delivered + r.Dead, Delivered: r.Delivered, Dead: r.Dead}, nil
	}
	return s.countReplay(ctx, r.No, false)
}

// countReplay counts the outcomes of a replay; with all, each of them anew. Its progress counts the
// jobs of the broker that moved it, and a broker that looked after the replay before may have offered
// others. Retention removes messages below the progress with their outcomes, which then only the
// progress counts.
func (s *Store) countReplay(ctx context.Context, no uint32, all bool) (out ReplayCounts, err error) {
	err = s.run(ctx, transaction{
		name: "count a replay", options: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, reads: true, harmless: true,
	}, func(ctx context.Context, tx *sql.Tx) error {
		r, err := selectOne[Replay](ctx, tx, selectReplay, no) // of the same moment as the counts
		if err != nil {
			return orNotFound(err)
		}
		if out, err = s.replayCounts(ctx, tx, &r); err != nil || !all {
			return err
		}
		r.Settled, r.Jobs = r.After, 0
		anew, err := s.replayCounts(ctx, tx, &r)
		if anew.Delivered > out.Delivered {
			out = anew
		}
		return err
	})
	return out, err
}

// replayCounts counts: below the settled message each job is delivered, dead or open.
func (s *Store) replayCounts(ctx context.Context, tx *sql.Tx, r *Replay) (out ReplayCounts, err error) {
	var above, dead, deadBelow, open, openBelow int64
	if err := tx.QueryRowContext(ctx, countDelivered, r.No, r.Settled[:], r.Through[:]).Scan(&above); err != nil {
		return out, err
	}
	args := []any{r.Settled[:], r.No, r.After[:], r.Through[:]}
	if err := tx.QueryRowContext(ctx, countReplayDead, args...).Scan(&dead, &deadBelow); err != nil {
		return out, err
	}
	if err := tx.QueryRowContext(ctx, countReplayOpen, args...).Scan(&open, &openBelow); err != nil {
		return out, err
	}
	out.Delivered, out.Dead = r.Jobs-deadBelow-openBelow+above, dead
	out.Replayed = out.Delivered + dead + open
	return out, nil
}

// A Sized is the head of a message with the bytes of its payload.
type Sized struct {
	Head
	Bytes int64
}

func (m *Sized) columns() columns {
	return append(m.Head.columns(), column{"LENGTH(payload)", &m.Bytes})
}

var selectSizes = `
SELECT` + new(Sized).columns().names() + `
FROM messages
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`

// Sizes is Heads with the sizes of the messages, which must be older than the horizon of the
// reconciler. It takes no locks.
func (s *Store) Sizes(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]Sized, error) {
	return readAll[Sized](ctx, s, "read sizes of messages", selectSizes, channelNo, after[:], through[:], limit)
}
