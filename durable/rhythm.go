package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A Rhythm says of a channel in which messages are expected from when on silence counts at the earliest. It
// is the time of a message, which retention may have removed since, or of the setting, or of the last change
// between paused and active.
type Rhythm struct {
	ChannelNo uint32
	SinceMs   int64
}

func (r *Rhythm) columns() columns {
	return columns{
		{"channel_no", &r.ChannelNo},
		{"since_ms", &r.SinceMs},
	}
}

var (
	selectRhythms = `
SELECT` + new(Rhythm).columns().names() + `
FROM rhythms
ORDER BY channel_no`

	insertIntoRhythms = `
INSERT INTO rhythms (` + new(Rhythm).columns().names() + `
)
VALUES (?, ?)`

	raiseRhythm = statement{
		mysql:  insertIntoRhythms + "\nON DUPLICATE KEY UPDATE since_ms = GREATEST(since_ms, VALUES(since_ms))",
		sqlite: insertIntoRhythms + "\nON CONFLICT DO UPDATE SET since_ms = MAX(since_ms, excluded.since_ms)",
	}
)

const (
	updateRhythm = `
UPDATE rhythms
SET since_ms = ?
WHERE channel_no = ?`

	deleteRhythm = `
DELETE FROM rhythms
WHERE channel_no = ?`
)

// Rhythms returns the rhythms of all channels that have one.
func (s *Store) Rhythms(ctx context.Context) ([]Rhythm, error) {
	return readAll[Rhythm](ctx, s, "read the rhythms of channels", selectRhythms)
}

// KeepRhythm stores the rhythm of a channel, unless a later one is stored.
func (s *Store) KeepRhythm(ctx context.Context, r Rhythm) error {
	return repeat(ctx, "keep the rhythm of a channel", func(ctx context.Context) error {
		return exec(ctx, s.db, s.dialect.sql(raiseRhythm), r.columns().fields()...)
	})
}

// ForgetRhythm removes the rhythm of a channel.
func (s *Store) ForgetRhythm(ctx context.Context, channelNo uint32) error {
	return repeat(ctx, "forget the rhythm of a channel", func(ctx context.Context) error {
		return exec(ctx, s.db, deleteRhythm, channelNo)
	})
}

// NewestMessage returns the newest message of a channel, ErrNotFound if the store has none: one step in the
// index, however many messages there are.
func (s *Store) NewestMessage(ctx context.Context, channelNo uint32) (id ident.ID, err error) {
	var newest []byte
	err = repeat(ctx, "read the newest message", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectLastMessage, channelNo).Scan(&newest)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && len(newest) != ident.Size:
		return ident.ID{}, ErrNotFound
	case err != nil:
		return ident.ID{}, err
	}
	return ident.ID(newest), nil
}
