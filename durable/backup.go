package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

const (
	vacuumInto  = `VACUUM INTO ?`
	checkBackup = `PRAGMA quick_check(1)`
)

// BackupSQLite copies the embedded store in a folder to a new file, which only its owner can read. A
// broker may use the store meanwhile: the copy is what was committed at one moment.
//
// The copy gets its name when it is whole and flushed. A crash before that leaves FILE.part, which
// the next backup replaces.
func BackupSQLite(ctx context.Context, dir, file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("durable: backup: %s exists already", file)
	}
	if _, err := os.Stat(filepath.Join(dir, databaseFile)); err != nil {
		return fmt.Errorf("durable: backup: no embedded store: %w", err)
	}
	part := file + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("durable: backup: %w", err)
	}
	if err := privatefile.Make(part); err != nil {
		return fmt.Errorf("durable: backup: %w", err)
	}
	err := copySQLite(ctx, filepath.Join(dir, databaseFile), part)
	if err == nil {
		err = flush(part)
	}
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		return fmt.Errorf("durable: backup: %w", errors.Join(err, os.Remove(part)))
	}
	return flush(filepath.Dir(file))
}

// copySQLite copies a database and checks the copy.
func copySQLite(ctx context.Context, from, to string) error {
	source, err := openFile(from)
	if err != nil {
		return err
	}
	_, err = source.ExecContext(ctx, vacuumInto, to)
	if err = errors.Join(err, source.Close()); err != nil {
		return err
	}
	made, err := openFile(to)
	if err != nil {
		return err
	}
	var said string
	err = made.QueryRowContext(ctx, checkBackup).Scan(&said)
	if err == nil && said != "ok" {
		err = fmt.Errorf("the copy is damaged: %s", said)
	}
	return errors.Join(err, made.Close())
}

// openFile opens a database that is there: for writes too, unless the parameters say otherwise.
func openFile(file string, params ...string) (*sql.DB, error) {
	query := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"}}
	for i := 0; i < len(params); i += 2 {
		query.Set(params[i], params[i+1])
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(),
		RawQuery: query.Encode()}).String())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// flush flushes a file or a folder.
func flush(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
