package durable

import (
	"context"
	"database/sql"
	"errors"
)

const selectSetting = `
SELECT value
FROM settings
WHERE name = ?`

var upsertSetting = statement{
	mysql: `
INSERT INTO settings (
    name,
    value
)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE value = VALUES(value)`,
	sqlite: `
INSERT INTO settings (
    name,
    value
)
VALUES (?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value`,
}

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
		_, err := s.db.ExecContext(ctx, s.dialect.sql(upsertSetting), []byte(name), value)
		return err
	})
}
