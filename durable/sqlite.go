package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/penstock-broker/penstock/internal/tool/folderlock"
	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

// OpenSQLite opens the embedded store in the folder dir, and creates the folder if needed.
// Only the owner can read its files, whatever the permissions of the folder are. A second
// process that opens the same folder gets an error.
func OpenSQLite(ctx context.Context, dir string, o Options) (*Store, error) {
	if err := privatefile.Folder(dir); err != nil {
		return nil, fmt.Errorf("durable: data folder: %w", err)
	}
	if err := makePrivate(dir); err != nil {
		return nil, fmt.Errorf("durable: data files: %w", err)
	}
	lock, err := folderlock.Take(dir, lockFile)
	if errors.Is(err, folderlock.ErrInUse) {
		return nil, fmt.Errorf("durable: the data folder %s is in use by another broker", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	s := &Store{dialect: sqliteDialect, packet: 4 * maxBatchBytes, lock: lock, keysKept: o.keysKept(), clock: o.Clock,
		tell: o.teller()}
	if err := s.openSQLite(ctx, filepath.Join(dir, databaseFile), o); err != nil {
		return nil, errors.Join(fmt.Errorf("durable: open SQLite: %w", err), s.closeAll())
	}
	return s, nil
}

const (
	databaseFile = "penstock.db"
	lockFile     = "penstock.lock"
)

// makePrivate creates the lock file and the database file for their owner only. SQLite gives
// a file beside its database the permissions of the database, but only when it creates the
// file. makePrivate therefore restricts existing ones.
func makePrivate(dir string) error {
	for _, name := range []string{lockFile, databaseFile} {
		if err := privatefile.Make(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, end := range []string{"-wal", "-shm", "-journal"} {
		if err := privatefile.Tighten(filepath.Join(dir, databaseFile+end)); err != nil {
			return err
		}
	}
	return nil
}

// closeAll closes the files and pools of a failed open.
func (s *Store) closeAll() error {
	var errs []error
	for _, db := range []*sql.DB{s.reads, s.db} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

const selectSQLiteVersion = `
SELECT sqlite_version()`

func (s *Store) openSQLite(ctx context.Context, file string, o Options) error {
	var err error
	// With _txlock=immediate a transaction of the writer never upgrades a read lock. Waiting
	// would not help against SQLITE_BUSY at such an upgrade.
	if s.db, err = openSQLitePool(file, 1, "synchronous(FULL)", "immediate"); err != nil {
		return err
	}
	var version string
	if err := s.db.QueryRowContext(ctx, selectSQLiteVersion).Scan(&version); err != nil {
		return err
	}
	s.describe = "SQLite " + version
	for _, path := range []string{file, s.lock.Name()} {
		opened, err := placeOf(path)
		if err != nil {
			return err
		}
		s.files = append(s.files, opened)
	}
	readers := o.MaxConns
	if readers <= 0 {
		readers = 4
	}
	s.reads, err = openSQLitePool(file, readers, "query_only(1)", "deferred")
	return err
}

func openSQLitePool(file string, conns int, pragma, txlock string) (*sql.DB, error) {
	params := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", pragma, "temp_store(MEMORY)", "cache_size(-8192)"},
		"_txlock": {txlock},
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(),
		RawQuery: params.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// barrier waits for the end of the present transaction of SQLite's writer, so that a following
// read sees its rows. MySQL needs no barrier, because there such reads wait for row locks.
func (s *Store) barrier(ctx context.Context) error {
	if s.dialect != sqliteDialect {
		return nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}
