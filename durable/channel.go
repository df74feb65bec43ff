package durable

import (
	"context"
	"database/sql"
	"errors"
)

const (
	selectChannel = `
SELECT
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version
FROM channels
WHERE id = ?`

	selectChannelsSince = `
SELECT
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version
FROM channels
WHERE version > ?
ORDER BY no`

	selectChannelMax = `
SELECT COALESCE(MAX(no), 0)
FROM channels`

	insertChannel = `
INSERT INTO channels (
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version
)
VALUES (?, ?, ?, ?, 0, ?, ?)`

	updateChannel = `
UPDATE channels
SET
    name = ?,
    token = ?,
    changed_ms = ?,
    version = ?
WHERE no = ?`

	// changed_ms stays: a new consumer is no change of the channel that a
	// client could see, and must not spoil its precondition.
	growAudience = `
UPDATE channels
SET
    audience = ?,
    version = ?
WHERE no = ?`
)

// PutChannel creates or updates a channel. Of several racing creators exactly
// one gets created.
func (s *Store) PutChannel(ctx context.Context, p Put) (out Channel, created bool, err error) {
	if err := p.valid(); err != nil {
		return Channel{}, false, err
	}
	err = s.put(ctx, "put channel", func(ctx context.Context, c change) error {
		created = false
		old, err := scanChannel(c.tx.QueryRowContext(ctx, selectChannel, []byte(p.ID)))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			created = true
			old = Channel{ID: p.ID, Name: p.ID, Token: p.NewToken}
			if old.No, err = c.next(ctx, selectChannelMax); err != nil {
				return err
			}
		case err != nil:
			return err
		}
		if err := p.check(old.ChangedAt); err != nil && !created {
			return err
		}
		out = old
		out.Name, out.Token = p.merge(old.Name, old.Token)
		if out == old && !created {
			return errUnchanged
		}
		out.ChangedAt, out.Version = fromMillis(c.nowMs), c.version
		if created {
			_, err = c.tx.ExecContext(ctx, insertChannel,
				out.No, []byte(out.ID), out.Name, []byte(out.Token), c.nowMs, c.version)
			return err
		}
		_, err = c.tx.ExecContext(ctx, updateChannel,
			out.Name, []byte(out.Token), c.nowMs, c.version, out.No)
		return err
	})
	if err != nil {
		return Channel{}, false, err
	}
	return out, created, nil
}

func channelsSince(ctx context.Context, q querier, version int64) ([]Channel, error) {
	var out []Channel
	err := each(ctx, q, selectChannelsSince, []any{version}, func(r *sql.Rows) error {
		c, err := scanChannel(r)
		out = append(out, c)
		return err
	})
	return out, err
}

func scanChannel(r scanner) (Channel, error) {
	var c Channel
	var ms int64
	err := r.Scan(&c.No, &c.ID, &c.Name, &c.Token, &c.Audience, &ms, &c.Version)
	c.ChangedAt = fromMillis(ms)
	return c, err
}
