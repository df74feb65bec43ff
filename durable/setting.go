package durable

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"strconv"
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

// Secret returns the 32 random bytes that all brokers share under a name. The first call makes
// them: four numbers, each from the first broker that stored it.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	secret := make([]byte, 0, len(random))
	for i := range 4 {
		part := []byte(name + "." + strconv.Itoa(i))
		var value int64
		err := repeat(ctx, "read a secret", func(ctx context.Context) error {
			made := int64(binary.BigEndian.Uint64(random[8*i:]))
			if err := exec(ctx, s.db, s.dialect.sql(insertSetting), part, made); err != nil {
				return err
			}
			return s.db.QueryRowContext(ctx, selectSetting, part).Scan(&value)
		})
		if err != nil {
			return nil, err
		}
		secret = binary.BigEndian.AppendUint64(secret, uint64(value))
	}
	return secret, nil
}
