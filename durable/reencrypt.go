package durable

import (
	"context"
	"database/sql"

	"github.com/penstock-broker/penstock/internal/model/atrest"
)

// reencryptRows is how many rows one transaction of Reencrypt reads, and writes at most.
const reencryptRows = 100

// asStored is a key of a context in which rows are read as they are stored.
type asStored struct{}

var (
	selectProducersFrom = fromProducers + `
WHERE no > ?
ORDER BY no
LIMIT ?`

	selectChannelsFrom = fromChannels + `
WHERE no > ?
ORDER BY no
LIMIT ?`

	selectConsumersFrom = fromConsumers + `
WHERE no > ?
ORDER BY no
LIMIT ?`

	selectSQSKeysFrom = `
SELECT` + new(SQSKey).columns().names() + `
FROM sqs_keys
WHERE id > ?
ORDER BY id
LIMIT ?`

	selectSecretsFrom = `
SELECT` + new(sharedSecret).columns().names() + `
FROM secrets
WHERE name > ?
ORDER BY name
LIMIT ?`
)

// A row is written only as it was read: every change of one gives it another version, or is its end. A shared secret
// does not change.
const (
	resealProducer = `
UPDATE producers
SET
    token = ?,
    former_token = ?,
    publish_secret = ?,
    settings = ?
WHERE no = ?
  AND version = ?`

	resealChannel = `
UPDATE channels
SET
    token = ?,
    former_token = ?
WHERE no = ?
  AND version = ?`

	resealConsumer = `
UPDATE consumers
SET
    token = ?,
    former_token = ?,
    policy = ?,
    since_policy = ?
WHERE no = ?
  AND version = ?`

	resealSQSKey = `
UPDATE sqs_keys
SET secret = ?
WHERE id = ?
  AND channel_no = ?`

	resealSecret = `
UPDATE secrets
SET secret = ?
WHERE name = ?`
)

// A resealing is what Reencrypt needs to know of a kind of rows.
type resealing[T any] struct {
	query, update string
	first         any
	next          func(*T) any   // that the next page begins after
	is            func(*T) []any // the key and version of the row
}

var (
	resealedProducers = resealing[Producer]{selectProducersFrom, resealProducer, 0,
		func(p *Producer) any { return p.No }, func(p *Producer) []any { return []any{p.No, p.Version} }}
	resealedChannels = resealing[Channel]{selectChannelsFrom, resealChannel, 0,
		func(c *Channel) any { return c.No }, func(c *Channel) []any { return []any{c.No, c.Version} }}
	resealedConsumers = resealing[Consumer]{selectConsumersFrom, resealConsumer, 0,
		func(k *Consumer) any { return k.No }, func(k *Consumer) []any { return []any{k.No, k.Version} }}
	resealedSQSKeys = resealing[SQSKey]{selectSQSKeysFrom, resealSQSKey, []byte{},
		func(k *SQSKey) any { return []byte(k.ID) }, func(k *SQSKey) []any { return []any{[]byte(k.ID), k.ChannelNo} }}
	resealedSecrets = resealing[sharedSecret]{selectSecretsFrom, resealSecret, []byte{},
		func(k *sharedSecret) any { return []byte(k.Name) }, func(k *sharedSecret) []any { return []any{[]byte(k.Name)} }}
)

// Reencryption is how far a Reencrypt is.
type Reencryption struct {
	Rows    int // read
	Changed int // written with the present key
	Missed  int // changed by others meanwhile
	Digests int // tokens of which a digest is kept
}

// Reencrypt seals all tokens, secrets and credentials with the present key of UseKeys, plain ones too, and with
// a nil present key it makes them plain. Keys that digest (atrest.Digesting) keep the digests of tokens that are only
// compared, and no digest becomes a token again. Brokers may run meanwhile. It works in small transactions, and tell is
// told after each; a call that is repeated goes on with what is left. ErrKeys: there are texts of a key that is not
// known; what was done before stays.
func (s *Store) Reencrypt(ctx context.Context, tell func(Reencryption)) (r Reencryption, err error) {
	if s.dialect == sqliteDialect { // the old texts do not stay in freed pages
		if err := exec(ctx, s.db, secureDelete); err != nil {
			return r, failedTo("set secure_delete", err)
		}
	}
	var parts bool
	for _, step := range []func() error{
		func() error { return reseal(ctx, s, &r, tell, resealedProducers) },
		func() error { return reseal(ctx, s, &r, tell, resealedChannels) },
		func() error { return reseal(ctx, s, &r, tell, resealedConsumers) },
		func() error { return reseal(ctx, s, &r, tell, resealedSQSKeys) },
		func() error { return reseal(ctx, s, &r, tell, resealedSecrets) },
		func() (err error) { parts, err = s.forgetParts(ctx); return err },
	} {
		if err := step(); err != nil {
			return r, err
		}
	}
	if s.dialect == sqliteDialect && (r.Changed > 0 || parts) {
		err = s.forget(ctx)
	}
	return r, err
}

const (
	secureDelete = `PRAGMA secure_delete = ON`
	vacuum       = `VACUUM`
	truncateLog  = `PRAGMA wal_checkpoint(TRUNCATE)`
)

// forget writes the embedded store anew: what was freed before may have old texts.
func (s *Store) forget(ctx context.Context) error {
	for _, statement := range []string{vacuum, truncateLog} {
		if err := exec(ctx, s.db, statement); err != nil {
			return failedTo("write the database anew", err)
		}
	}
	return nil
}

// reseal does the rows of one kind.
func reseal[T any, P interface {
	rowOf[T]
	guarded
}](ctx context.Context, s *Store, r *Reencryption, tell func(Reencryption), of resealing[T]) error {
	after, done := of.first, false
	for !done {
		var page Reencryption
		var last any
		err := s.run(ctx, transaction{name: "encrypt again", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
			page, last = Reencryption{}, after
			rows, err := selectAll[T, P](context.WithValue(ctx, asStored{}, true), tx, of.query, after, reencryptRows)
			if err != nil {
				return err
			}
			done = len(rows) < reencryptRows
			for i := range rows {
				last = of.next(&rows[i])
				if err := resealOne[T, P](ctx, s.keys, tx, &page, &rows[i], of); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		after = last
		r.Rows, r.Changed, r.Missed = r.Rows+page.Rows, r.Changed+page.Changed, r.Missed+page.Missed
		r.Digests += page.Digests
		tell(*r)
	}
	return nil
}

// resealOne writes a row that is not sealed with the present key, or has a token of which a digest is to be kept.
func resealOne[T any, P interface {
	rowOf[T]
	guarded
}](ctx context.Context, keys *atrest.Keys, tx *sql.Tx, page *Reencryption, row *T, of resealing[T]) error {
	page.Rows++
	_, fields := P(row).sealing()
	current := true
	for _, f := range fields {
		current = current && keys.Current(*f.text)
	}
	if err := openRow(keys, P(row)); err != nil {
		return err
	}
	for _, f := range fields {
		if kept := keys.Kept(*f.text); f.compared && atrest.Digested(kept) {
			page.Digests++
			current = current && *f.text == kept
		}
	}
	if current {
		return nil
	}
	sealRow(keys, P(row))
	var args []any
	for _, f := range fields {
		args = append(args, []byte(*f.text))
	}
	res, err := tx.ExecContext(ctx, of.update, append(args, of.is(row)...)...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		page.Missed++
		return nil
	}
	page.Changed++
	return nil
}

// CheckKeys returns ErrKeys if a token, secret or credential in the store cannot be decrypted with the keys of UseKeys.
// It reads the catalogue.
func (s *Store) CheckKeys(ctx context.Context) error {
	if _, err := s.Changes(ctx, 0); err != nil {
		return err
	}
	if err := opened(ctx, s, resealedSQSKeys); err != nil {
		return err
	}
	return opened(ctx, s, resealedSecrets)
}

// opened reads all rows of one kind. The error is ErrKeys where one cannot be decrypted.
func opened[T any, P rowOf[T]](ctx context.Context, s *Store, of resealing[T]) error {
	for after := of.first; ; {
		page, err := readAll[T, P](ctx, s, "read what is encrypted", of.query, after, reencryptRows)
		if err != nil {
			return err
		}
		if len(page) < reencryptRows {
			return nil
		}
		after = of.next(&page[len(page)-1])
	}
}
