package durable

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strconv"
)

// secretBytes is the size of a secret that all brokers share.
const secretBytes = 32

// A sharedSecret is a secret that all brokers share, such as the key of receipts.
type sharedSecret struct {
	Name   string
	Secret string // secretBytes
}

func (k *sharedSecret) columns() columns {
	return columns{
		{"name", asBytes{&k.Name}},
		{"secret", asBytes{&k.Secret}},
	}
}

func (k *sharedSecret) sealing() (string, []sealedField) {
	return "shared secret " + k.Name, []sealedField{{"secret", &k.Secret, false}}
}

var (
	selectSecret = `
SELECT` + new(sharedSecret).columns().names() + `
FROM secrets
WHERE name = ?`

	insertSecret = keepFirst(new(sharedSecret).columns().insert("secrets"), "secret")
)

// Secret returns the 32 random bytes that all brokers share under a name. The first call makes them. ErrKeys: the
// keys of UseKeys do not open them.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	made := make([]byte, secretBytes)
	_, _ = rand.Read(made) // never fails
	var kept sharedSecret
	err := repeat(s.withKeys(ctx), "read a secret", func(ctx context.Context) (err error) {
		kept, err = selectOne[sharedSecret](ctx, s.db, selectSecret, []byte(name))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		first := seal(ctx, &sharedSecret{Name: name, Secret: string(made)})
		if err := exec(ctx, s.db, s.dialect.sql(insertSecret), first.columns().fields()...); err != nil {
			return err
		}
		kept, err = selectOne[sharedSecret](ctx, s.db, selectSecret, []byte(name))
		return err
	})
	if err != nil {
		return nil, err
	}
	return []byte(kept.Secret), nil
}

const deleteSecretParts = `
DELETE FROM settings
WHERE name IN (?...)`

// forgetParts removes the four numbers in which the settings had each secret before the table secrets. It reports
// whether there were any.
func (s *Store) forgetParts(ctx context.Context) (found bool, err error) {
	const name = "remove the parts of secrets"
	secrets, err := readAll[sharedSecret](ctx, s, name, selectSecretsFrom, []byte{}, reencryptRows)
	if err != nil || len(secrets) == 0 {
		return false, err
	}
	var parts []any
	for _, k := range secrets {
		for i := range secretBytes / 8 {
			parts = append(parts, []byte(k.Name+"."+strconv.Itoa(i)))
		}
	}
	err = repeat(ctx, name, func(ctx context.Context) error {
		res, err := s.db.ExecContext(ctx, list(deleteSecretParts, len(parts)), parts...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		found = found || n > 0
		return err
	})
	return found, err
}
