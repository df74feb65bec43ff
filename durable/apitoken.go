package durable

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// A Former is the token that a resource had before a rotation. It is right until a time of the store's clock.
type Former struct {
	FormerToken   string // "": there is none
	FormerUntilMs int64
}

// ErrTooManyTokens means that the installation has as many API tokens as it may have.
var ErrTooManyTokens = errors.New("durable: there are too many API tokens")

const (
	// MaxAPITokens is the number of API tokens of an installation. Every broker has all in memory.
	MaxAPITokens = 1000
	// expiredShown is how long a token that has expired is listed: the next one that is made removes it then.
	expiredShown = 7 * 24 * time.Hour
)

// An APIToken is what is stored of an API token: never the token itself. See package apitoken.
type APIToken struct {
	ID        string
	Name      string
	Scopes    string // words of package scope, with blanks between them
	Digest    string // 32 bytes
	KeyID     string // of the key of the digest; "": none
	CreatedMs int64
	ExpiresMs int64 // 0: never
	UsedMs    int64 // when a broker last noted a use; 0: none
	Version   int64 // of the catalogue when it was made
}

func (t *APIToken) columns() columns {
	return columns{
		{"id", asBytes{&t.ID}},
		{"name", &t.Name},
		{"scopes", asBytes{&t.Scopes}},
		{"digest", asBytes{&t.Digest}},
		{"key_id", asBytes{&t.KeyID}},
		{"created_ms", &t.CreatedMs},
		{"expires_ms", &t.ExpiresMs},
		{"used_ms", &t.UsedMs},
		{"version", &t.Version},
	}
}

// changedTokens is the setting with the version of the catalogue at which an API token was last made, changed or
// deleted.
const changedTokens = "api tokens"

var (
	selectTokens = `
SELECT` + new(APIToken).columns().names() + `
FROM api_tokens
WHERE id >= ?
ORDER BY id
LIMIT ?`

	selectToken = `
SELECT` + new(APIToken).columns().names() + `
FROM api_tokens
WHERE id = ?`

	insertToken = new(APIToken).columns().insert("api_tokens")
)

const (
	countTokens = `
SELECT COUNT(*)
FROM api_tokens`

	deleteToken = `
DELETE FROM api_tokens
WHERE id = ?`

	deleteExpiredTokens = `
DELETE FROM api_tokens
WHERE expires_ms > 0
  AND expires_ms < ?`

	updateTokenScopes = `
UPDATE api_tokens
SET scopes = ?
WHERE id = ?`

	updateTokenUsed = `
UPDATE api_tokens
SET used_ms = ?
WHERE id = ?
  AND used_ms < ?`
)

// CreateAPIToken stores an API token, which lasts for a time; 0: for ever. ErrTooManyTokens: there are
// MaxAPITokens.
func (s *Store) CreateAPIToken(ctx context.Context, t APIToken, lasts time.Duration) (APIToken, error) {
	err := s.put(ctx, "create an API token", func(ctx context.Context, c change) error {
		if err := exec(ctx, c.tx, deleteExpiredTokens, c.nowMs-expiredShown.Milliseconds()); err != nil {
			return err
		}
		var have int
		if err := c.tx.QueryRowContext(ctx, countTokens).Scan(&have); err != nil {
			return err
		}
		if have >= MaxAPITokens {
			return ErrTooManyTokens
		}
		t.CreatedMs, t.Version, t.UsedMs, t.ExpiresMs = c.nowMs, c.version, 0, 0
		if lasts > 0 {
			t.ExpiresMs = c.nowMs + lasts.Milliseconds()
		}
		auditlog.Note(ctx, nil, t)
		if err := exec(ctx, c.tx, insertToken, t.columns().fields()...); err != nil {
			return err
		}
		return exec(ctx, c.tx, s.dialect.sql(raiseSetting), []byte(changedTokens), c.version)
	})
	return t, err
}

// DeleteAPIToken removes an API token. ErrNotFound: there is none of that ID.
func (s *Store) DeleteAPIToken(ctx context.Context, id string) error {
	return s.put(ctx, "delete an API token", func(ctx context.Context, c change) error {
		t, err := selectOne[APIToken](ctx, c.tx, selectToken, []byte(id))
		if err != nil {
			return orNotFound(err)
		}
		auditlog.Note(ctx, t, nil)
		if err := exec(ctx, c.tx, deleteToken, []byte(id)); err != nil {
			return err
		}
		return exec(ctx, c.tx, s.dialect.sql(raiseSetting), []byte(changedTokens), c.version)
	})
}

// endScopes takes the scopes of a deleted resource from all API tokens: one that is created under its ID is not meant.
// A token without another scope is deleted.
func (s *Store) endScopes(ctx context.Context, c change, ends func(word string) bool) error {
	all, err := selectAll[APIToken](ctx, c.tx, selectTokens, []byte{}, MaxAPITokens)
	if err != nil {
		return err
	}
	changed := false
	for _, t := range all {
		words := strings.Fields(t.Scopes)
		left := slices.DeleteFunc(slices.Clone(words), ends)
		switch {
		case len(left) == len(words):
			continue
		case len(left) == 0:
			err = exec(ctx, c.tx, deleteToken, []byte(t.ID))
		default:
			err = exec(ctx, c.tx, updateTokenScopes, []byte(strings.Join(left, " ")), []byte(t.ID))
		}
		if err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return exec(ctx, c.tx, s.dialect.sql(raiseSetting), []byte(changedTokens), c.version)
}

// APITokens returns up to limit API tokens, by ID, from one on.
func (s *Store) APITokens(ctx context.Context, from string, limit int) ([]APIToken, error) {
	return readAll[APIToken](ctx, s, "list API tokens", selectTokens, []byte(from), limit)
}

// UsedAPITokens notes when tokens, by their IDs, were last used, in Unix ms. One that has gone is passed over.
func (s *Store) UsedAPITokens(ctx context.Context, used map[string]int64) error {
	return s.run(ctx, transaction{name: "note the use of API tokens", harmless: true},
		func(ctx context.Context, tx *sql.Tx) error {
			for id, ms := range used {
				if err := exec(ctx, tx, updateTokenUsed, ms, []byte(id), ms); err != nil {
					return err
				}
			}
			return nil
		})
}

// tokensSince returns all API tokens, if one was made or deleted after a version.
func tokensSince(ctx context.Context, tx *sql.Tx, since int64) (all []APIToken, changed bool, err error) {
	var at int64
	err = tx.QueryRowContext(ctx, selectSetting, []byte(changedTokens)).Scan(&at)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, false, err
	}
	if since > 0 && at <= since {
		return nil, false, nil
	}
	all, err = selectAll[APIToken](ctx, tx, selectTokens, []byte{}, MaxAPITokens)
	return all, true, err
}
