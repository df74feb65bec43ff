package durable

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// The lock belongs to a connection, so it ends when a migrating broker dies. Its name contains
// the database, because such locks are global to the server.
const (
	lockMigrations = `
SELECT GET_LOCK(CONCAT('penstock ', SHA1(DATABASE())), 2)`

	unlockMigrations = `
SELECT RELEASE_LOCK(CONCAT('penstock ', SHA1(DATABASE())))`
)

var (
	// ErrNewerSchema means that a newer release has changed the tables. Rows that this release
	// writes or reads could have another meaning there.
	ErrNewerSchema = errors.New("durable: the tables are newer than this program")
	// ErrOlderSchema means that a build before the first version has made the tables, and that no build of
	// lastOldBuild has brought them to the version of the first migration.
	ErrOlderSchema = errors.New("durable: the tables are older than the first version")
)

// lastOldBuild is the last commit with the migrations before the first one that is in this program.
const lastOldBuild = "dc2e5c56"

// selectOldTables finds the tables of a first migration before 50 that broke off: the note of its version
// comes after them.
const selectOldTables = `
SELECT COUNT(*) > 0 AND COUNT(CASE WHEN column_name = 'deleted_no' THEN 1 END) = 0
FROM information_schema.columns
WHERE table_schema = DATABASE()
  AND table_name = 'producers'`

// Migrate brings the schema up to date, and takes as long as the server needs for it: ctx should have no
// deadline. Several brokers may call it at any time: one of them migrates and the others wait.
// ErrNewerSchema: the schema is newer than this program. ErrOlderSchema: it is older than the first version.
// Both leave it as it is.
func (s *Store) Migrate(ctx context.Context) error { return s.migrateTo(ctx, migrations) }

// migrateTo is Migrate with the migrations of all.
func (s *Store) migrateTo(ctx context.Context, all fs.FS) (err error) {
	folder, kind, db := "migrations/mysql", goose.DialectMySQL, s.db
	if s.dialect == sqliteDialect {
		folder, kind = "migrations/sqlite", goose.DialectSQLite3 // the lock on the folder excludes other processes
		s.migrating.Lock()
		defer s.migrating.Unlock()
	} else {
		conn, lockErr := s.migrationLock(ctx)
		if lockErr != nil {
			return fmt.Errorf("durable: wait for another migration: %w", lockErr)
		}
		defer func() {
			var released sql.NullInt64
			if e := conn.QueryRowContext(context.WithoutCancel(ctx), unlockMigrations).Scan(&released); e != nil {
				err = errors.Join(err, e)
			}
			err = errors.Join(err, conn.Close())
		}()
		leased, release, leaseErr := s.leaseMigration(ctx)
		if leaseErr != nil {
			return fmt.Errorf("durable: wait for another migration: %w", leaseErr)
		}
		ctx = leased
		defer func() { err = errors.Join(err, release()) }()
		pool := yielding{conns: 1}
		if err := pool.open(s.patient, func() {}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pool.Close()) }()
		db = pool.DB
	}
	files, err := fs.Sub(all, folder)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	p, err := goose.NewProvider(kind, db, files, goose.WithLogger(goose.NopLogger()),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	return s.bringUp(ctx, db, p)
}

// bringUp runs the migrations that are missing in a database.
func (s *Store) bringUp(ctx context.Context, db *sql.DB, p *goose.Provider) error {
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	if err := CheckSchema(have); err != nil {
		return err
	}
	if have == 0 && s.dialect == mysqlDialect { // SQLite keeps nothing of a migration that breaks off
		var old bool
		if err := db.QueryRowContext(ctx, selectOldTables).Scan(&old); err != nil {
			return fmt.Errorf("durable: migrate: %w", err)
		} else if old {
			return olderSchema(have)
		}
	}
	begun, old := time.Now(), have > 0 && have < known
	if old {
		s.tell("the tables are brought up to date; large ones take time", "from_version", have, "to_version", known)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	if old {
		s.tell("the tables are up to date", "version", known, "took", time.Since(begun).Round(time.Millisecond).String())
	}
	return nil
}

// CheckSchema returns ErrNewerSchema where the version of tables is above that of this program, and
// ErrOlderSchema where it is below the first one that this program can bring up to date. Each has both
// versions and says what to do.
func CheckSchema(have int64) error {
	first, known := schemas()
	switch {
	case have > known:
		return fmt.Errorf("%w: they have version %d, this program knows versions up to %d; run the release that made "+
			"them, or a newer one", ErrNewerSchema, have, known)
	case have > 0 && have < first:
		return olderSchema(have)
	}
	return nil
}

func olderSchema(have int64) error {
	first, _ := schemas()
	return fmt.Errorf("%w: they have version %d, this program knows versions from %d on; start the build of commit %s "+
		"on them once, which brings them to version %d, then this program", ErrOlderSchema, have, first, lastOldBuild, first)
}

// KnownSchema is the version of the tables that this program makes.
func KnownSchema() int64 {
	_, known := schemas()
	return known
}

// schemas returns the versions that the first and the last migration make.
var schemas = sync.OnceValues(func() (first, last int64) {
	names, _ := fs.Glob(migrations, "migrations/mysql/*.sql") // sorted; those of SQLite have the same numbers
	for _, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			if first == 0 {
				first = n
			}
			last = n
		}
	}
	return first, last
})

// migrationLock waits for the lock in short steps, because a long wait would exceed the read
// timeout of the connection.
func (s *Store) migrationLock(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, lockMigrations).Scan(&got); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		if got.Int64 == 1 {
			return conn, nil
		}
		if tries == 1 {
			s.tell("another broker brings the tables up to date; this one waits for it")
		}
	}
}
