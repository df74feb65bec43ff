package durable

import (
	"context"
	"database/sql"
	"errors"
)

const (
	selectProducer = `
SELECT
    no,
    id,
    name,
    token,
    changed_ms,
    version,
    publish_secret,
    deleted_no <> 0,
    COALESCE(settings, '')
FROM producers
WHERE id = ?
  AND deleted_no = 0`

	selectProducersSince = `
SELECT
    no,
    id,
    name,
    token,
    changed_ms,
    version,
    publish_secret,
    deleted_no <> 0,
    COALESCE(settings, '')
FROM producers
WHERE version > ?
ORDER BY no`

	selectProducerMax = `
SELECT COALESCE(MAX(no), 0)
FROM producers`

	insertProducer = `
INSERT INTO producers (
    no,
    id,
    name,
    token,
    changed_ms,
    version
)
VALUES (?, ?, ?, ?, ?, ?)`

	updateProducer = `
UPDATE producers
SET
    name = ?,
    token = ?,
    changed_ms = ?,
    version = ?
WHERE no = ?`

	updateSender = `
UPDATE producers
SET
    publish_secret = ?,
    settings = ?
WHERE no = ?`
)

// maxSettingsBytes is the width of the column.
const maxSettingsBytes = 4096

// PutProducer creates or updates a producer. created is true for exactly one of several
// racing creators.
func (s *Store) PutProducer(ctx context.Context, p Put) (out Producer, created bool, err error) {
	if err := p.valid(); err != nil {
		return Producer{}, false, err
	}
	err = s.put(ctx, "put producer", func(ctx context.Context, c change) error {
		old, err := scanProducer(c.tx.QueryRowContext(ctx, selectProducer, []byte(p.ID)))
		var stored *named
		switch {
		case err == nil:
			stored = &named{No: old.No, ID: old.ID, Name: old.Name, Token: old.Token, ChangedAt: old.ChangedAt, Version: old.Version, publishSecret: old.PublishSecret, settings: old.Settings}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		var n named
		n, created, err = c.putNamed(ctx, p, stored, namedSQL{selectProducerMax, usedProducer, insertProducer, updateProducer})
		out = Producer{n.No, n.ID, n.Name, n.Token, n.ChangedAt, n.Version, n.publishSecret, false, n.settings}
		if err != nil || p.PublishSecret == nil && p.Settings == nil {
			return err
		}
		_, err = c.tx.ExecContext(ctx, updateSender, []byte(out.PublishSecret), []byte(out.Settings), out.No)
		if err != nil || out.Settings == old.Settings {
			return err
		}
		return s.followSettings(ctx, c, p, out.No, out.Settings)
	})
	if err != nil {
		return Producer{}, false, err
	}
	return out, created, nil
}

func producersSince(ctx context.Context, q querier, version int64) ([]Producer, error) {
	var out []Producer
	err := each(ctx, q, selectProducersSince, []any{version}, func(r *sql.Rows) error {
		p, err := scanProducer(r)
		out = append(out, p)
		return err
	})
	return out, err
}

// A scanner is the current row of a result.
type scanner interface{ Scan(dest ...any) error }

func scanProducer(r scanner) (Producer, error) {
	var p Producer
	var ms int64
	err := r.Scan(&p.No, &p.ID, &p.Name, &p.Token, &ms, &p.Version, &p.PublishSecret, &p.Deleted, &p.Settings)
	p.ChangedAt = fromMillis(ms)
	return p, err
}
