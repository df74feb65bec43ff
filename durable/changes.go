package durable

import (
	"context"
	"database/sql"
	"time"
)

// replayShown is how long a replay that has ended is among the changes: longer than its last attempt.
const replayShown = 2 * time.Hour

// Changes returns the rows that changed after a version of the catalogue, in one consistent
// snapshot. Version 0 returns all rows, and so does a version from the future, which a
// restored backup can cause. Without a change the call costs one read by key.
func (s *Store) Changes(ctx context.Context, after int64) (Changes, error) {
	var c Changes
	err := repeat(ctx, "read the version of the catalogue", func(ctx context.Context) error {
		return s.reads.QueryRowContext(ctx, selectCatalogue).Scan(&c.Version)
	})
	if err != nil || c.Version == after {
		return c, err
	}
	snapshot := transaction{
		name:     "read the catalogue",
		options:  &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		reads:    true,
		harmless: true,
	}
	err = s.run(ctx, snapshot, func(ctx context.Context, tx *sql.Tx) error {
		c = Changes{}
		// The first read establishes the snapshot.
		if err := tx.QueryRowContext(ctx, selectCatalogue).Scan(&c.Version); err != nil {
			return err
		}
		since := after
		if c.Version < since {
			since = 0
		}
		var err error
		if c.Producers, err = selectAll[Producer](ctx, tx, selectProducersSince, since); err != nil {
			return err
		}
		if c.Channels, err = selectAll[Channel](ctx, tx, selectChannelsSince, since); err != nil {
			return err
		}
		if c.Groups, err = selectAll[Group](ctx, tx, selectGroupsSince, since); err != nil {
			return err
		}
		if c.Consumers, err = selectAll[Consumer](ctx, tx, selectConsumersSince, since); err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		c.Replays, err = selectAll[Replay](ctx, tx, selectReplaysSince, since, now-replayShown.Milliseconds())
		if err != nil {
			return err
		}
		c.Tokens, c.NewTokens, err = tokensSince(ctx, tx, since)
		return err
	})
	if err != nil {
		return Changes{}, err
	}
	return c, nil
}

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
	Version                                int64
	Producers, Channels, Consumers, Groups Sums
	Tokens                                 Sums // of API tokens
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

	tallyGroups = `
SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM channel_groups`

	tallyConsumers = `
SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM consumers`

	tallyTokens = `
SELECT
    COUNT(*),
    COALESCE(SUM(version % 1000000007), 0)
FROM api_tokens`
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
		}{{tallyProducers, &e.Producers}, {tallyChannels, &e.Channels}, {tallyConsumers, &e.Consumers},
			{tallyGroups, &e.Groups}, {tallyTokens, &e.Tokens}} {
			if err := tx.QueryRowContext(ctx, part.query).Scan(&part.to.Rows, &part.to.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	return e, err
}

// Numbers are the highest internal numbers of each kind; replays have numbers of consumers.
type Numbers struct{ Producer, Channel, Consumer uint32 }

// Max returns the higher number of each kind.
func (n Numbers) Max(o Numbers) Numbers {
	return Numbers{max(n.Producer, o.Producer), max(n.Channel, o.Channel), max(n.Consumer, o.Consumer)}
}

// Touch gives the catalogue a new version without a change. From then on no resource gets a number
// up to used: what was accepted in a former history, and waits in a journal, names it.
func (s *Store) Touch(ctx context.Context, used Numbers) error {
	return s.put(ctx, "touch the catalogue", func(ctx context.Context, c change) error {
		for _, one := range []struct {
			name string
			no   uint32
		}{{usedProducer, used.Producer}, {usedChannel, used.Channel}, {usedConsumer, used.Consumer}} {
			if one.no == 0 {
				continue
			}
			if err := exec(ctx, c.tx, s.dialect.sql(raiseSetting), []byte(one.name), one.no); err != nil {
				return err
			}
		}
		return nil
	})
}
