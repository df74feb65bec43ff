package durable

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
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

// ErrNewerSchema means that a newer release has changed the tables. Rows that this release
// writes or reads could have another meaning there.
var ErrNewerSchema = errors.New("durable: the tables are newer than this program")

// Migrate brings the schema up to date, and takes as long as the server needs for it: ctx should have no
// deadline. Several brokers may call it at any time: one of them migrates and the others wait.
// ErrNewerSchema: the schema is newer than this program.
func (s *Store) Migrate(ctx context.Context) (err error) {
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
	files, err := fs.Sub(migrations, folder)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	p, err := goose.NewProvider(kind, db, files, goose.WithLogger(goose.NopLogger()),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	if err := CheckSchema(have); err != nil {
		return err
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
