package durable_test

import (
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/test/storetest"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

func TestTheClockOfSQLiteNeverGoesBack(t *testing.T) {
	storetest.RunClock(t, func(t *testing.T) storetest.Server {
		dir := t.TempDir()
		tables.SQLite(t, dir)
		var off atomic.Int64
		s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{Clock: func() int64 {
			return time.Now().UnixMilli() + off.Load()
		}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return storetest.Server{Store: s, Jump: func(by time.Duration) { off.Store(by.Milliseconds()) },
			Exec: person(t, "sqlite", "file:"+filepath.Join(dir, "penstock.db")+"?_pragma=busy_timeout(60000)")}
	})
}

// person returns a function that runs statements as a person does.
func person(t *testing.T, driver, dsn string) func(*testing.T, string) {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return func(t *testing.T, statement string) {
		t.Helper()
		_, err := db.Exec(statement)
		require.NoError(t, err, statement)
	}
}
