package durable

import (
	"context"
	"database/sql"
	"errors"
)

// Channels of one installation may be in several stores (BROKER_MYSQL_DSNS). The store with the catalogue says in which
// one a channel is; whoever creates a channel says it there first, so no channel is ever in two of them.

// A Place is where a channel is, or is about to be.
type Place struct {
	ChannelID string
	Store     string // "": the store with the catalogue
	AtMs      int64  // Unix ms of when that was said
}

func (p *Place) columns() columns {
	return columns{
		{"channel_id", asBytes{&p.ChannelID}},
		{"store", asBytes{&p.Store}},
		{"at_ms", &p.AtMs},
	}
}

var (
	selectPlace = `
SELECT` + new(Place).columns().names() + `
FROM places
WHERE channel_id = ?`

	insertPlace = keepFirst(new(Place).columns().insert("places"), "store")
)

const (
	selectPlacedStores = `
SELECT DISTINCT store
FROM places
WHERE store <> ?`

	movePlace = `
UPDATE places
SET
    store = ?,
    at_ms = ?
WHERE channel_id = ?
  AND store = ?
  AND at_ms = ?`

	deletePlace = `
DELETE FROM places
WHERE channel_id = ?
  AND store = ?
  AND at_ms = ?`
)

// PlaceChannel says where a channel will be that is about to be created, unless it was said before. It returns what
// holds: made is true where that is p.
func (s *Store) PlaceChannel(ctx context.Context, p Place) (held Place, made bool, err error) {
	err = repeat(ctx, "place a channel", func(ctx context.Context) (err error) {
		if err := exec(ctx, s.db, s.dialect.sql(insertPlace), p.columns().fields()...); err != nil {
			return err
		}
		held, err = selectOne[Place](ctx, s.db, selectPlace, []byte(p.ChannelID))
		return err
	})
	return held, held == p, err
}

// PlaceOf returns where a channel is. ErrNotFound: nobody has said so.
func (s *Store) PlaceOf(ctx context.Context, channelID string) (held Place, err error) {
	err = repeat(ctx, "find the place of a channel", func(ctx context.Context) (err error) {
		if held, err = selectOne[Place](ctx, s.db, selectPlace, []byte(channelID)); errors.Is(err, sql.ErrNoRows) {
			err = ErrNotFound
		}
		return err
	})
	return held, err
}

// PlacedStores returns the stores in which channels are, without the one with the catalogue.
func (s *Store) PlacedStores(ctx context.Context) (names []string, err error) {
	err = repeat(ctx, "list the stores of channels", func(ctx context.Context) error {
		names = nil
		return each(ctx, s.reads, selectPlacedStores, []any{[]byte{}}, func(r *sql.Rows) error {
			var name string
			err := r.Scan(asBytes{&name})
			names = append(names, name)
			return err
		})
	})
	return names, err
}

// MovePlace says another place for a channel that was never created where it was said, or is deleted there. Of several
// callers with the same held one succeeds.
func (s *Store) MovePlace(ctx context.Context, held Place, store string, atMs int64) (moved bool, err error) {
	return s.changePlace(ctx, movePlace, []byte(store), atMs, []byte(held.ChannelID), []byte(held.Store), held.AtMs)
}

// ForgetPlace takes back what was said of a channel that does not exist.
func (s *Store) ForgetPlace(ctx context.Context, held Place) error {
	_, err := s.changePlace(ctx, deletePlace, []byte(held.ChannelID), []byte(held.Store), held.AtMs)
	return err
}

func (s *Store) changePlace(ctx context.Context, query string, args ...any) (changed bool, err error) {
	err = repeat(ctx, "change the place of a channel", func(ctx context.Context) error {
		res, err := s.db.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		changed = n == 1
		return err
	})
	return changed, err
}
