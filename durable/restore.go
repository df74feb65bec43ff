package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/folderlock"
	"github.com/penstock-broker/penstock/internal/tool/privatefile"
)

const (
	checkWhole = `PRAGMA integrity_check(1)`
	selectSize = `
SELECT page_count * page_size
FROM pragma_page_count, pragma_page_size`
	emptyLog = `PRAGMA wal_checkpoint(TRUNCATE)`
)

var (
	// ErrDamaged means that a file is no backup of a store, or is not whole.
	ErrDamaged = errors.New("durable: the file is no whole copy of a store")
	// ErrOccupied means that a folder has a store that would be replaced.
	ErrOccupied = errors.New("durable: the folder has a store already")
	// ErrOwnFile means that a file is one that a restore replaces or removes.
	ErrOwnFile = errors.New("durable: the file belongs to the store that would be replaced")
)

// RestoreSQLite makes a copy of BackupSQLite the embedded store in a folder. Where the folder has a
// store, RestoreSQLite replaces it with force, and returns the name that it has kept it under; else the
// error is ErrOccupied. ErrDamaged: the file is no whole copy. ErrNewerSchema, ErrOlderSchema: it is of a newer
// release, or from before the first version. ErrOwnFile: the file is the store itself, or one beside it that is
// removed. After an error the store in the folder is what it was.
//
// At each moment the file of the store is the old one or the new one, whole and flushed. A crash may
// leave penstock.db.restoring, which the next restore replaces.
func RestoreSQLite(ctx context.Context, dir, file string, force bool) (kept string, err error) {
	to := filepath.Join(dir, databaseFile)
	part := to + ".restoring"
	if err := checkApart(file, to, to+"-wal", to+"-shm", to+"-journal", part); err != nil {
		return "", err
	}
	if err := checkCopy(ctx, file); err != nil {
		return "", err
	}
	if err := privatefile.Folder(dir); err != nil {
		return "", fmt.Errorf("durable: data folder: %w", err)
	}
	lock, err := folderlock.Take(dir, lockFile)
	if errors.Is(err, folderlock.ErrInUse) {
		return "", fmt.Errorf("durable: the data folder %s is in use by a broker: stop it first", dir)
	}
	if err != nil {
		return "", fmt.Errorf("durable: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if info, err := os.Stat(to); err == nil && info.Size() > 0 && !force {
		return "", fmt.Errorf("%w: %s; it is kept under another name with --force", ErrOccupied, to)
	}
	err = copyFlushed(file, part)
	if err == nil {
		err = checkCopy(ctx, part)
	}
	if err == nil {
		kept, err = setAside(ctx, to)
	}
	if err == nil {
		err = os.Rename(part, to)
	}
	if err != nil {
		return "", fmt.Errorf("durable: restore: %w", errors.Join(err, removed(part)))
	}
	return kept, flush(dir)
}

// checkApart refuses a file that is one of others, by whatever name. A file that is missing is none of them.
func checkApart(file string, others ...string) error {
	info, err := os.Stat(file)
	if err != nil {
		return nil // checkCopy says what is wrong with it
	}
	for _, other := range others {
		if there, err := os.Stat(other); err == nil && os.SameFile(info, there) {
			return fmt.Errorf("%w: %s is %s; copy it to a place outside the folder and restore that", ErrOwnFile, file, other)
		}
	}
	return nil
}

// checkCopy reads a whole file of a store.
func checkCopy(ctx context.Context, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no regular file", ErrDamaged, file)
	}
	for _, end := range []string{"-wal", "-journal"} {
		if log, err := os.Stat(file + end); err == nil && log.Size() > 0 {
			return fmt.Errorf("%w: %s beside it has what was committed last; make the copy with broker backup", ErrDamaged,
				file+end)
		}
	}
	// Nobody writes to the file, and nothing is made beside it.
	db, err := openFile(file, "mode", "ro", "immutable", "1")
	if err != nil {
		return fmt.Errorf("durable: %w", err)
	}
	err = checkDatabase(ctx, db, info.Size())
	return errors.Join(err, db.Close())
}

// checkDatabase checks a database whose file has a size: SQLite takes what is missing at the end for zeros.
func checkDatabase(ctx context.Context, db *sql.DB, size int64) error {
	var said string
	var want int64
	if err := db.QueryRowContext(ctx, checkWhole).Scan(&said); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if said != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, said)
	}
	if err := db.QueryRowContext(ctx, selectSize).Scan(&want); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if size != want {
		return fmt.Errorf("%w: it has %d bytes instead of %d", ErrDamaged, size, want)
	}
	schema, err := schemaOf(ctx, db, sqliteDialect)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case schema == 0:
		return fmt.Errorf("%w: it has no tables of Penstock", ErrDamaged)
	}
	return CheckSchema(schema)
}

// copyFlushed copies a file to a new one that only its owner can read.
func copyFlushed(from, to string) error {
	if err := removed(to); err != nil {
		return err
	}
	if err := privatefile.Make(to); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(err, source.Close())
	}
	_, err = io.Copy(target, source)
	if err == nil {
		err = target.Sync()
	}
	return errors.Join(err, target.Close(), source.Close())
}

// setAside gives the store of a folder a second name, and leaves no log beside it that would count for
// the file which takes its place; "": there is no store. Of a store that cannot be read the log gets the
// second name, too.
func setAside(ctx context.Context, file string) (name string, err error) {
	if info, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return "", removed(file+"-wal", file+"-shm")
	}
	name = file + ".replaced-" + time.Now().UTC().Format("20060102T150405.000")
	// The log gets its second name before SQLite, which removes one that it cannot use, has seen it.
	if err := os.Link(file+"-wal", name+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("keep the log of the store that is there: %w", err)
	}
	switch err = mergeLog(ctx, file); {
	case errors.Is(err, errInUse): // its log is whole where it is
		return "", errors.Join(fmt.Errorf("keep the store that is there: %w", err), removed(name+"-wal"))
	case err == nil:
		err = removed(name + "-wal")
	default:
		err = nil
	}
	if err == nil {
		err = os.Link(file, name)
	}
	if err != nil {
		return "", fmt.Errorf("keep the store that is there: %w", err)
	}
	if err := flush(filepath.Dir(file)); err != nil {
		return "", err
	}
	return name, removed(file+"-wal", file+"-shm")
}

var errInUse = errors.New("another process uses the store")

// mergeLog writes what is in the log of a database into its file.
func mergeLog(ctx context.Context, file string) error {
	db, err := openFile(file)
	if err != nil {
		return err
	}
	var busy, pages, merged int
	err = db.QueryRowContext(ctx, emptyLog).Scan(&busy, &pages, &merged)
	if err == nil && busy != 0 {
		err = errInUse
	}
	return errors.Join(err, db.Close())
}

// removed removes files. One that is not there is no error.
func removed(files ...string) error {
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
