package durable

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"

	"github.com/penstock-broker/penstock/internal/model/atrest"
)

// Where an installation has several stores (BROKER_MYSQL_DSNS), producers, groups and API tokens are made in the store
// with the catalogue. The other stores have copies of them with the same numbers, so each store decides alone.

// Shared are producers, groups and API tokens as the store with the catalogue has them.
type Shared struct {
	Version   int64 // of that catalogue
	Producers []Producer
	Groups    []Group
	Tokens    []APIToken // all of them; nil: they stay as they are
}

// adopted is the setting with the version of the catalogue that the copies are of.
const adopted = "adopted version"

var (
	selectProducerByNo = fromProducers + `
WHERE no = ?`

	selectGroupByNo = fromGroups + `
WHERE no = ?`
)

const deleteTokens = `
DELETE FROM api_tokens`

// Adopt makes producers, groups and API tokens those of another store. A producer that is deleted there ends here as
// DeleteProducer ends it. An older version than one that was adopted before changes nothing.
func (s *Store) Adopt(ctx context.Context, of Shared) error {
	return s.put(ctx, "adopt what stores share", func(ctx context.Context, c change) error {
		var before int64
		err := c.tx.QueryRowContext(ctx, selectSetting, []byte(adopted)).Scan(&before)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if before > of.Version {
			return errUnchanged
		}
		if err := exec(ctx, c.tx, s.dialect.sql(raiseSetting), []byte(adopted), of.Version); err != nil {
			return err
		}
		for _, deleted := range []bool{true, false} { // an ID may belong to another one now
			if err := c.adoptOwners(ctx, of, deleted); err != nil {
				return err
			}
		}
		return s.adoptTokens(ctx, c, of.Tokens)
	})
}

// adoptOwners adopts the producers and groups that are deleted, or those that are not. It ends at the first error: the
// transaction may be over with it.
func (c change) adoptOwners(ctx context.Context, of Shared, deleted bool) error {
	for _, p := range of.Producers {
		if p.Deleted != deleted {
			continue
		}
		if err := c.adoptProducer(ctx, p); err != nil {
			return err
		}
	}
	for _, g := range of.Groups {
		if g.Deleted != deleted {
			continue
		}
		if err := c.adoptGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func (c change) adoptProducer(ctx context.Context, p Producer) error {
	old, err := selectOne[Producer](ctx, c.tx, selectProducerByNo, p.No)
	switch {
	case errors.Is(err, sql.ErrNoRows) && p.Deleted:
		return nil
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case p.Deleted && old.Deleted:
		return nil
	case p.Deleted:
		return c.endProducer(ctx, &old)
	}
	p.Version = c.version
	stored := seal(ctx, &p)
	if old.No == 0 {
		if err := exec(ctx, c.tx, insertProducer, stored.made().fields()...); err != nil {
			return err
		}
	}
	if err := exec(ctx, c.tx, updateProducer, append(stored.changed().fields(), p.No)...); err != nil {
		return err
	}
	return exec(ctx, c.tx, updateSender, []byte(stored.PublishSecret), []byte(stored.Settings), p.No)
}

func (c change) adoptGroup(ctx context.Context, g Group) error {
	old, err := selectOne[Group](ctx, c.tx, selectGroupByNo, g.No)
	switch {
	case errors.Is(err, sql.ErrNoRows) && g.Deleted:
		return nil
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case g.Deleted && old.Deleted:
		return nil
	case g.Deleted:
		return exec(ctx, c.tx, deleteGroup, c.version, g.No)
	}
	g.Version = c.version
	if old.No == 0 {
		err = exec(ctx, c.tx, insertGroup, g.made().fields()...)
	} else {
		err = exec(ctx, c.tx, updateGroup, append(g.changed().fields(), g.No)...)
	}
	if err != nil || old.Paused == g.Paused {
		return err
	}
	return c.pauseGroup(ctx, &g)
}

// adoptTokens replaces the API tokens.
func (s *Store) adoptTokens(ctx context.Context, c change, tokens []APIToken) error {
	if tokens == nil {
		return nil
	}
	if err := exec(ctx, c.tx, deleteTokens); err != nil {
		return err
	}
	for _, t := range tokens {
		t.Version = c.version
		if err := exec(ctx, c.tx, insertToken, t.columns().fields()...); err != nil {
			return err
		}
	}
	return exec(ctx, c.tx, s.dialect.sql(raiseSetting), []byte(changedTokens), c.version)
}

// SameAs reports whether a copy of a producer is as the producer.
func (p *Producer) SameAs(of *Producer) bool {
	a, b := *p, *of
	a.Version = b.Version
	if atrest.Same(a.Token, b.Token) { // a digest may be kept of one, and not of the other
		a.Token = b.Token
	}
	if atrest.Same(a.FormerToken, b.FormerToken) {
		a.FormerToken = b.FormerToken
	}
	return a == b
}

// SameAs reports whether a copy of a group is as the group.
func (g *Group) SameAs(of *Group) bool {
	a := *g
	a.Version = of.Version
	return a == *of
}

// SameAs reports whether a copy of an API token lets in what the token does.
func (t *APIToken) SameAs(of *APIToken) bool {
	a := *t
	a.Version, a.UsedMs = of.Version, of.UsedMs
	return a == *of
}

// EndScopes takes the scopes of a deleted channel, or of a deleted consumer of it, from all API tokens. Another store
// had the channel.
func (s *Store) EndScopes(ctx context.Context, channelID, consumerID string) error {
	return s.put(ctx, "end the scopes of API tokens", func(ctx context.Context, c change) error {
		return s.endScopes(ctx, c, scopesOf(channelID, consumerID))
	})
}

// ErrOtherSecret means that a store has a secret of its own where that of another store should be.
var ErrOtherSecret = errors.New("durable: the store has secrets of another installation")

// AdoptSecret makes a secret that all brokers share that of another store, before the first call of Secret.
func (s *Store) AdoptSecret(ctx context.Context, name string, secret []byte) error {
	err := s.run(ctx, transaction{name: "adopt a secret", harmless: true}, func(ctx context.Context, tx *sql.Tx) error {
		first := seal(ctx, &sharedSecret{Name: name, Secret: string(secret)})
		return exec(ctx, tx, s.dialect.sql(insertSecret), first.columns().fields()...)
	})
	if err != nil {
		return err
	}
	kept, err := s.Secret(ctx, name)
	if err == nil && subtle.ConstantTimeCompare(kept, secret) == 0 {
		err = fmt.Errorf("%w: %s", ErrOtherSecret, name)
	}
	return err
}
