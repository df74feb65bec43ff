package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The scans of a reconciler go forward by ID and never return, so they must not skip a row
// that is inserted but not committed yet. On MySQL their locking reads wait for such a row.
// READ COMMITTED locks rows but no gaps, so the scans do not delay inserts. On SQLite a scan
// first waits for the writer.

// columns are those of the table messages that decide which consumers a message concerns, and the
// priority.
func (h *Head) columns() columns {
	return append(h.scope(), column{"priority", &h.Priority})
}

// scope are the columns that the table prioritised has as well.
func (h *Head) scope() columns {
	return columns{
		{"id", asID{&h.ID}},
		{"audience", &h.Audience},
		{"addressed", asPositions{&h.Addressed}},
		{"left_out", asPositions{&h.LeftOut}},
	}
}

var (
	fromHeads = `
SELECT` + new(Head).columns().names() + `
FROM messages`

	selectHeads = locking(fromHeads+`
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`, shareLock)

	selectPlainHeads = locking(fromHeads+`
WHERE channel_no = ?
  AND id > ?
  AND id <= ?
  AND priority = 0
ORDER BY id
LIMIT ?`, shareLock)

	selectLevelHeads = locking(`
SELECT`+new(Head).scope().names()+`,
    1023 - inv_priority
FROM prioritised
WHERE channel_no = ?
  AND inv_priority = ?
  AND id > ?
  AND id <= ?
ORDER BY id
LIMIT ?`, shareLock)
)

const (
	selectNextLevel = `
SELECT MIN(inv_priority)
FROM prioritised
WHERE channel_no = ?
  AND inv_priority >= ?`

	// One lookup by key per channel, however many messages it has.
	selectLatest = `
SELECT
    c.no,
    (
        SELECT m.id
        FROM messages m
        WHERE m.channel_no = c.no
        ORDER BY m.id DESC
        LIMIT 1
    )
FROM channels c
WHERE c.no > ?
ORDER BY c.no
LIMIT ?`
)

// Heads returns up to limit messages of a channel with after < ID <= through, in order. It
// waits for uncommitted messages in that range and skips none.
func (s *Store) Heads(ctx context.Context, channelNo uint32, after, through ident.ID, limit int) ([]Head, error) {
	return s.heads(ctx, selectHeads, channelNo, after[:], through[:], limit)
}

// LevelHeads is Heads for the messages of one priority.
func (s *Store) LevelHeads(ctx context.Context, channelNo uint32, priority int, after, through ident.ID,
	limit int) ([]Head, error) {
	if priority == 0 {
		return s.heads(ctx, selectPlainHeads, channelNo, after[:], through[:], limit)
	}
	return s.heads(ctx, selectLevelHeads, channelNo, maxPriority-priority, after[:], through[:], limit)
}

func (s *Store) heads(ctx context.Context, query statement, args ...any) ([]Head, error) {
	var out []Head
	err := repeat(ctx, "scan messages", func(ctx context.Context) error {
		err := s.barrier(ctx)
		if err == nil {
			out, err = selectAll[Head](ctx, s.reads, s.dialect.sql(query), args...)
		}
		return err
	})
	return out, err
}

// Levels returns the priorities above 0 that messages of a channel have, highest first. Each
// priority costs one lookup by key, however many messages it has.
func (s *Store) Levels(ctx context.Context, channelNo uint32) ([]int, error) {
	var out []int
	err := repeat(ctx, "list priorities", func(ctx context.Context) error {
		out = nil
		if err := s.barrier(ctx); err != nil {
			return err
		}
		for from := 0; ; {
			var next sql.NullInt64
			if err := s.reads.QueryRowContext(ctx, selectNextLevel, channelNo, from).Scan(&next); err != nil {
				return err
			}
			if !next.Valid {
				return nil
			}
			out = append(out, maxPriority-int(next.Int64))
			from = int(next.Int64) + 1
		}
	})
	return out, err
}

// LatestMessages returns up to limit channels with a number above afterChannel, in order, each
// with its newest message. It costs one read by key per channel.
func (s *Store) LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]Latest, error) {
	return readAll[Latest](ctx, s, "find the newest messages", selectLatest, afterChannel, limit)
}

func (l *Latest) columns() columns {
	return columns{{"no", &l.ChannelNo}, {"id", asOptionalID{&l.ID}}}
}
