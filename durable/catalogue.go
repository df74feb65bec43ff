package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// The catalogue is the set of producers, channels, groups and consumers, which change by PUT. It
// has one version, in one row, and every change locks that row first. Commits therefore
// happen in the order of their versions, and a reader that asks for all changes after a
// version never misses a change that commits late.

// The version is the Unix time of its change in ms, or the next number. Two histories of the catalogue
// that separate when a backup is restored therefore have no later version in common.
var bumpCatalogue = statement{
	mysql: `
UPDATE settings
SET value = GREATEST(value + 1, ?)
WHERE name = 'catalogue'`,
	sqlite: `
UPDATE settings
SET value = MAX(value + 1, ?)
WHERE name = 'catalogue'`,
}

const (
	selectCatalogue = `
SELECT value
FROM settings
WHERE name = 'catalogue'`
)

// A change is one transaction on the catalogue.
type change struct {
	tx      *sql.Tx
	version int64
	nowMs   int64
}

// errUnchanged rolls back a Put that changes nothing, so that no broker reloads for it.
var errUnchanged = errors.New("durable: nothing changed")

// put runs f with a new version of the catalogue. If the outcome of the commit is unknown,
// put does not repeat it: the second run would report that the row existed before.
func (s *Store) put(ctx context.Context, name string, f func(ctx context.Context, c change) error) error {
	err := s.run(ctx, transaction{name: name}, func(ctx context.Context, tx *sql.Tx) error {
		c, err := s.newVersion(ctx, tx)
		if err != nil {
			return err
		}
		return f(ctx, c)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// newVersion begins a change with a new version of the catalogue, inside a transaction.
func (s *Store) newVersion(ctx context.Context, tx *sql.Tx) (c change, err error) {
	c.tx = tx
	now, err := s.now(ctx, tx)
	if err != nil {
		return c, err
	}
	if err = exec(ctx, tx, s.dialect.sql(bumpCatalogue), now); err != nil {
		return c, err
	}
	if err = tx.QueryRowContext(ctx, selectCatalogue).Scan(&c.version); err != nil {
		return c, err
	}
	c.nowMs, err = s.now(ctx, tx)
	return c, err
}

// The settings that have the highest numbers which a former history of the store gave away.
const (
	usedProducer = "used producer number"
	usedChannel  = "used channel number"
	usedConsumer = "used consumer number"
	usedGroup    = "used group number"
)

// next returns 1 + the highest number of a table, and of those that Touch has stored under used. The
// lock on the version serialises creators, and no row of the catalogue is ever deleted, so numbers
// are not reused.
func (c change) next(ctx context.Context, selectMax, used string) (uint32, error) {
	var highest, lost uint32
	if err := c.tx.QueryRowContext(ctx, selectMax).Scan(&highest); err != nil {
		return 0, err
	}
	err := c.tx.QueryRowContext(ctx, selectSetting, []byte(used)).Scan(&lost)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return max(highest, lost) + 1, err
}

// A resource is what putResource needs to know of a kind of rows: producers, channels, consumers or groups.
type resource[T any] struct {
	max, used string                                // see next
	find      func() (T, error)                     // the row that is there; sql.ErrNoRows: there is none
	merge     func(row *T, created bool) error      // sets what only rows of this kind have
	write     func(old, row *T, created bool) error // stores the row
}

// The common are the fields that every resource has.
type common struct {
	no              *uint32
	id, name, token *string
	changedAt       *time.Time
	version         *int64
	former          *Former
}

// putResource creates or updates a resource. It returns errUnchanged with a row that stays as it is.
func putResource[T comparable, P interface {
	*T
	common() common
}](ctx context.Context, c change, p Put, r resource[T]) (row T, created bool, err error) {
	old, err := r.find()
	created = errors.Is(err, sql.ErrNoRows)
	if err != nil && !created {
		return row, false, err
	}
	was := P(&old).common()
	if err := p.check(!created, *was.changedAt); err != nil {
		return row, false, err
	}
	if created {
		*was.id, *was.name, *was.token = p.ID, p.ID, p.NewToken
		if *was.no, err = c.next(ctx, r.max, r.used); err != nil {
			return row, false, err
		}
	}
	row = old
	is := P(&row).common()
	*is.name, *is.token = p.merge(*was.name, *was.token)
	if *is.token != *was.token {
		*is.former = p.former(*was.token, c.nowMs)
	}
	if err := r.merge(&row, created); err != nil {
		return row, false, err
	}
	if row == old && !created {
		return row, false, errUnchanged
	}
	*is.changedAt, *is.version = fromMillis(c.stamp(p, !created, *was.changedAt)), c.version
	if created {
		auditlog.Note(ctx, nil, row)
	} else {
		auditlog.Note(ctx, old, row)
	}
	return row, created, r.write(&old, &row, created)
}

// check returns ErrPrecondition if a precondition does not hold. exists and changed
// describe the stored row.
func (p Put) check(exists bool, changed time.Time) error {
	switch {
	case p.Exists != nil && *p.Exists != exists,
		!p.Revision.IsZero() && !(exists && changed.Equal(p.Revision)),
		!p.UnmodifiedSince.IsZero() && exists && changed.Unix() > p.UnmodifiedSince.Unix():
		return ErrPrecondition
	}
	return nil
}

// stamp returns the time of the change in Unix ms. HTTP dates have whole seconds, so each
// change of a resource gets a second of its own; further changes within a second get times
// ahead of the clock. A change with UnmodifiedSince in the present second gets the second
// after that date, so that the same date refuses the next writer. A date in the future has
// no effect on the time.
func (c change) stamp(p Put, exists bool, changed time.Time) int64 {
	ms := c.nowMs
	if exists {
		ms = max(ms, (changed.Unix()+1)*1000)
	}
	if since := p.UnmodifiedSince.Unix(); since == c.nowMs/1000 {
		ms = max(ms, (since+1)*1000)
	}
	return ms
}

// valid rejects values that the columns cannot hold, so that MySQL and SQLite reject the
// same values.
func (p Put) valid() error {
	switch {
	case p.ID == "" || len(p.ID) > 255:
		return fmt.Errorf("%w: an ID has 1 to 255 bytes", ErrRejected)
	case p.Name != nil && (!utf8.ValidString(*p.Name) || utf8.RuneCountInString(*p.Name) > 255):
		return fmt.Errorf("%w: a name has at most 255 characters of UTF-8", ErrRejected)
	case p.Token != nil && len(*p.Token) > 255 || len(p.NewToken) > 255:
		return fmt.Errorf("%w: a token has at most 255 bytes", ErrRejected)
	}
	return nil
}

// merge returns the name and token that a row with this name and token has after p. For a
// new row the arguments are the defaults.
func (p Put) merge(name, token string) (string, string) {
	if p.Name != nil {
		name = *p.Name
	}
	if p.Token != nil && !atrest.Same(token, *p.Token) {
		token = *p.Token
	}
	if p.Rotate != nil {
		token = p.NewToken
	}
	return name, token
}

// former is what stays of a token that p replaces: nothing, unless p rotates it.
func (p Put) former(token string, nowMs int64) Former {
	if p.Rotate == nil || *p.Rotate <= 0 {
		return Former{}
	}
	return Former{token, nowMs + p.Rotate.Milliseconds()}
}
