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
    version,
    paused,
    intake,
    deleted_no <> 0,
    shape
FROM channels
WHERE id = ?
  AND deleted_no = 0`

	selectChannelsSince = `
SELECT
    no,
    id,
    name,
    token,
    audience,
    changed_ms,
    version,
    paused,
    intake,
    deleted_no <> 0,
    shape
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

	updateIntake = `
UPDATE channels
SET intake = ?
WHERE no = ?`

	// changed_ms stays: clients see no change of the channel when it gets a consumer, so
	// their preconditions must still hold.
	growAudience = `
UPDATE channels
SET
    audience = ?,
    version = ?
WHERE no = ?`

	growShape = `
UPDATE channels
SET
    shape = shape + 1,
    version = ?
WHERE no = ?`
)

// PutChannel creates or updates a channel. created is true for exactly one of several
// racing creators.
func (s *Store) PutChannel(ctx context.Context, p Put) (out Channel, created bool, err error) {
	if err := p.valid(); err != nil {
		return Channel{}, false, err
	}
	err = s.put(ctx, "put channel", func(ctx context.Context, c change) error {
		old, err := scanChannel(c.tx.QueryRowContext(ctx, selectChannel, []byte(p.ID)))
		var stored *named
		switch {
		case err == nil:
			stored = &named{No: old.No, ID: old.ID, Name: old.Name, Token: old.Token, ChangedAt: old.ChangedAt, Version: old.Version, intake: old.Intake}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		var n named
		n, created, err = c.putNamed(ctx, p, stored, namedSQL{selectChannelMax, usedChannel, insertChannel, updateChannel})
		out = Channel{No: n.No, ID: n.ID, Name: n.Name, Token: n.Token, Audience: old.Audience, Shape: old.Shape, Paused: old.Paused, Intake: n.intake, ChangedAt: n.ChangedAt, Version: n.Version}
		if err != nil || p.Intake == nil {
			return err
		}
		_, err = c.tx.ExecContext(ctx, updateIntake, []byte(out.Intake), out.No)
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
	err := r.Scan(&c.No, &c.ID, &c.Name, &c.Token, &c.Audience, &ms, &c.Version, &c.Paused, &c.Intake, &c.Deleted, &c.Shape)
	c.ChangedAt = fromMillis(ms)
	return c, err
}
