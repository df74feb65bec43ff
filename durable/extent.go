package durable

import (
	"context"
	"database/sql"
)

// versionModulus keeps the sums of versions within 64 bits. It is a prime.
const versionModulus = 1_000_000_007

// Sums are a number of rows and the sum of their versions, each modulo versionModulus.
type Sums struct{ Rows, Sum int64 }

// Add adds a row.
func (t *Sums) Add(version int64) {
	t.Rows++
	t.Sum += version % versionModulus
}

// An Extent is what a catalogue consists of. No two catalogues with the same extent have different
// rows, except by a coincidence of sums.
type Extent struct {
	Version                        int64
	Producers, Channels, Consumers Sums
}

const (
	tallyProducers = `
SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM producers`

	tallyChannels = `
SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM channels`

	tallyConsumers = `
SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM consumers`
)

// Extent returns the extent of the catalogue, in one consistent snapshot. It reads an index of
// each table.
func (s *Store) Extent(ctx context.Context) (e Extent, err error) {
	snapshot := transaction{
		name:     "compare the catalogue",
		options:  &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		reads:    true,
		harmless: true,
	}
	err = s.run(ctx, snapshot, func(ctx context.Context, tx *sql.Tx) error {
		e = Extent{}
		if err := tx.QueryRowContext(ctx, selectCatalogue).Scan(&e.Version); err != nil {
			return err
		}
		for _, part := range []struct {
			query string
			to    *Sums
		}{{tallyProducers, &e.Producers}, {tallyChannels, &e.Channels}, {tallyConsumers, &e.Consumers}} {
			if err := tx.QueryRowContext(ctx, part.query).Scan(&part.to.Rows, &part.to.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	return e, err
}

// Touch gives the catalogue a new version without a change.
func (s *Store) Touch(ctx context.Context) error {
	return s.put(ctx, "touch the catalogue", func(context.Context, change) error { return nil })
}
