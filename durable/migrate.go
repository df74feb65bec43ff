package durable

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// The lock belongs to a connection, so a broker that dies while it migrates
// does not keep the others out. The name holds the database because such locks
// belong to the whole server.
const (
	lockMigrations = `
SELECT GET_LOCK(CONCAT('penstock ', SHA1(DATABASE())), 2)`

	unlockMigrations = `
SELECT RELEASE_LOCK(CONCAT('penstock ', SHA1(DATABASE())))`
)

// ErrNewerSchema says that a newer release has changed the tables: what this one
// would write into them, or read from them, need not mean the same any more.
var ErrNewerSchema = errors.New("durable: the tables are newer than this program")

// Migrate brings the schema up to date. It may run at any time and in several
// brokers at once: one of them works, the others wait. ErrNewerSchema: it is newer.
func (s *Store) Migrate(ctx context.Context) (err error) {
	folder, kind := "migrations/mysql", goose.DialectMySQL
	if s.dialect == sqliteDialect {
		folder, kind = "migrations/sqlite", goose.DialectSQLite3 // the folder's lock keeps other processes out
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
	}
	files, err := fs.Sub(migrations, folder)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	p, err := goose.NewProvider(kind, s.db, files, goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	have, known, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	if have > known {
		return fmt.Errorf("%w: they have version %d, this program knows versions up to %d; run the release that made them, or a newer one", ErrNewerSchema, have, known)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("durable: migrate: %w", err)
	}
	return nil
}

// migrationLock waits for the lock in short steps: a single long wait would
// meet the read timeout of the connection.
func (s *Store) migrationLock(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for {
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, lockMigrations).Scan(&got); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		if got.Int64 == 1 {
			return conn, nil
		}
	}
}
