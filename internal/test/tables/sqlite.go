// Package tables gives tests a store whose tables are there already. The first call of a process
// migrates an empty store, and later calls copy what that made: a copy takes a small part of the
// time. Tests of the migrations themselves begin with an empty store instead.
package tables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// databaseFile is the name that durable.OpenSQLite gives the database.
const databaseFile = "penstock.db"

// SQLite puts the database of a migrated, empty store into the folder dir, for durable.OpenSQLite.
func SQLite(tb servers.TB, dir string) {
	tb.Helper()
	database, err := sqliteDatabase()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, databaseFile), database, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// sqliteDatabase returns the bytes of the database of a migrated store.
var sqliteDatabase = sync.OnceValues(func() (database []byte, err error) {
	dir, err := os.MkdirTemp("", "penstock-tables-")
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := durable.OpenSQLite(context.Background(), dir, durable.Options{})
	if err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	if err := errors.Join(s.Migrate(context.Background()), s.Close()); err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	// Closing has moved everything from the log into this file.
	return os.ReadFile(filepath.Join(dir, databaseFile))
})
