package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A Survey is what a look at a store finds that changes nothing.
type Survey struct {
	Server
	Ahead   time.Duration // how far the clock of the server is ahead of that of this process; SQLite: 0
	Schema  int64         // the version of its tables; 0: there are none
	Missing []string      // rights of a MySQL user that the broker needs, and the user lacks
	ByRole  bool          // the user has a role, whose rights are not looked at
	Unclear bool          // the user may have rights that are Missing: not all its grants were understood
	Unread  bool          // the log of an embedded store, which has what was committed last, was not read
}

const (
	selectServerMs = `
SELECT CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)`

	selectSchema = `
SELECT COALESCE(MAX(version_id), 0)
FROM goose_db_version`
)

var selectHasSchema = statement{
	mysql: `
SELECT COUNT(*)
FROM information_schema.tables
WHERE table_schema = DATABASE()
  AND table_name = 'goose_db_version'`,
	sqlite: `
SELECT COUNT(*)
FROM sqlite_master
WHERE type = 'table'
  AND name = 'goose_db_version'`,
}

// SurveyMySQL looks at a server and at the database of a DSN. A server that cannot be the store is
// asked for nothing more. No error contains the DSN or the password.
func SurveyMySQL(ctx context.Context, dsn string) (s Survey, err error) {
	cfg, err := mysqlConfig(dsn)
	if err != nil {
		return Survey{}, err
	}
	db, err := plainPool(cfg)
	if err != nil {
		return Survey{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if s.Server, err = readServer(ctx, db); err != nil || s.Unfit != nil {
		return s, err
	}
	for _, ask := range []func(context.Context, *sql.DB) error{s.askClock, s.askRights, s.askSchema} {
		if err := ask(ctx, db); err != nil {
			return s, fmt.Errorf("durable: look at the MySQL server: %w", err)
		}
	}
	return s, s.askSession(ctx, cfg.Clone())
}

// askSession makes the settings of a session, as a broker does.
func (s *Survey) askSession(ctx context.Context, cfg *mysql.Config) error {
	one := yielding{conns: 1}
	if err := one.open(cfg, func() {}); err != nil {
		return err
	}
	var wrong *sessionError
	err := one.PingContext(ctx)
	if errors.As(err, &wrong) {
		s.Unfit, err = err, nil
	}
	return errors.Join(err, one.Close())
}

// askClock compares the clocks. Of three answers the fastest is the most precise.
func (s *Survey) askClock(ctx context.Context, db *sql.DB) error {
	best := time.Hour
	for range 3 {
		var ms int64
		begun := time.Now()
		if err := db.QueryRowContext(ctx, selectServerMs).Scan(&ms); err != nil {
			return err
		}
		if took := time.Since(begun); took < best {
			best, s.Ahead = took, time.UnixMilli(ms).Sub(begun.Add(took/2))
		}
	}
	return nil
}

func (s *Survey) askSchema(ctx context.Context, db *sql.DB) (err error) {
	s.Schema, err = schemaOf(ctx, db, mysqlDialect)
	return err
}

// schemaOf returns the version of the tables in a database; 0: there are none.
func schemaOf(ctx context.Context, db *sql.DB, d dialect) (version int64, err error) {
	var tables int
	if err := db.QueryRowContext(ctx, d.sql(selectHasSchema)).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, selectSchema).Scan(&version)
	return version, err
}

// SurveySQLite looks at the embedded store in a folder. A broker may use it meanwhile. It makes and changes no file.
// The error is fs.ErrNotExist where there is none.
func SurveySQLite(ctx context.Context, dir string) (s Survey, err error) {
	file := filepath.Join(dir, databaseFile)
	if _, err := os.Stat(file); err != nil {
		return Survey{}, fmt.Errorf("durable: no embedded store: %w", err)
	}
	params := []string{"mode", "ro", "immutable", "1"} // no file is made or changed for the look
	if log, err := os.Stat(file + "-wal"); err == nil && log.Size() > 0 {
		// The index of the log is shared with a broker that runs. Without one SQLite would have to make it.
		if _, err := os.Stat(file + "-shm"); err == nil {
			params = []string{"mode", "ro", "readonly_shm", "1"}
		} else {
			s.Unread = true
		}
	}
	db, err := openFile(file, params...)
	if err != nil {
		return Survey{}, fmt.Errorf("durable: look at the embedded store: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var version string
	if err = db.QueryRowContext(ctx, selectSQLiteVersion).Scan(&version); err == nil {
		s.Product = "SQLite " + version
		s.Schema, err = schemaOf(ctx, db, sqliteDialect)
	}
	if err != nil {
		return s, fmt.Errorf("durable: look at the embedded store: %w", err)
	}
	return s, nil
}
