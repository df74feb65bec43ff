package durable

import (
	"context"
	"database/sql"
	"errors"
)

// maxSettingName is the width of the column.
const maxSettingName = 64

const selectSetting = `
SELECT value
FROM settings
WHERE name = ?`

const insertIntoSettings = `
INSERT INTO settings (
    name,
    value
)
VALUES (?, ?)`

var (
	insertSetting = keepFirst(insertIntoSettings, "value")

	insertFirstSetting = ignoring(insertIntoSettings)

	upsertSetting = statement{
		mysql:  insertIntoSettings + "\nON DUPLICATE KEY UPDATE value = VALUES(value)",
		sqlite: insertIntoSettings + "\nON CONFLICT DO UPDATE SET value = excluded.value",
	}

	raiseSetting = statement{
		mysql:  insertIntoSettings + "\nON DUPLICATE KEY UPDATE value = GREATEST(value, VALUES(value))",
		sqlite: insertIntoSettings + "\nON CONFLICT DO UPDATE SET value = MAX(value, excluded.value)",
	}
)

// Setting returns a number that brokers store under a name, such as the fingerprint of the
// seed file; 0 if it was never set.
func (s *Store) Setting(ctx context.Context, name string) (value int64, err error) {
	err = repeat(ctx, "read setting", func(ctx context.Context) error {
		err := s.reads.QueryRowContext(ctx, selectSetting, []byte(name)).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			value, err = 0, nil
		}
		return err
	})
	return value, err
}

// SetSetting stores a number under a name.
func (s *Store) SetSetting(ctx context.Context, name string, value int64) error {
	return repeat(ctx, "store setting", func(ctx context.Context) error {
		return exec(ctx, s.db, s.dialect.sql(upsertSetting), []byte(name), value)
	})
}

const swapSetting = `
UPDATE settings
SET value = ?
WHERE name = ?
  AND value = ?`

// SwapSetting stores a number under a name if the number there is old. Exactly one of several
// callers with the same old succeeds.
func (s *Store) SwapSetting(ctx context.Context, name string, old, value int64) (swapped bool, err error) {
	err = repeat(ctx, "swap setting", func(ctx context.Context) error {
		if old == 0 { // there may be no row
			if err := exec(ctx, s.db, s.dialect.sql(insertSetting), []byte(name), 0); err != nil {
				return err
			}
		}
		res, err := s.db.ExecContext(ctx, swapSetting, value, []byte(name), old)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		swapped = n == 1
		return err
	})
	return swapped, err
}
