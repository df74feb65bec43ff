package durable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheWriterOfSQLiteFlushesEachCommitAndReadersCannotWrite(t *testing.T) {
	s, err := OpenSQLite(t.Context(), t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var mode string
	var synchronous, timeout int
	require.NoError(t, s.db.QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&mode))
	require.NoError(t, s.db.QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&synchronous))
	require.NoError(t, s.db.QueryRowContext(t.Context(), `PRAGMA busy_timeout`).Scan(&timeout))
	require.Equal(t, "wal", mode)
	require.Equal(t, 2, synchronous, "FULL: the log is flushed before a commit is answered")
	require.Equal(t, 10_000, timeout)
	_, err = s.reads.ExecContext(t.Context(), `CREATE TABLE x (y INTEGER)`)
	require.Error(t, err)
}

// A store without room, or that may not write, has committed nothing: no answer says that the
// outcome is unknown.
func TestASQLiteWithoutRoomRefusesForCertain(t *testing.T) {
	s, err := OpenSQLite(t.Context(), t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.reads.ExecContext(t.Context(), `CREATE TABLE x (y INTEGER)`)
	require.True(t, full(err), "%v", err)
	require.Equal(t, failed, classify(err))
	_, err = s.db.ExecContext(t.Context(), `CREATE TABLE x (y BLOB)`)
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `PRAGMA max_page_count = 1`) // the present number
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), `INSERT INTO x VALUES (zeroblob(1000000))`)
	require.True(t, full(err), "%v", err)
	require.Equal(t, failed, classify(err))
	_, err = s.db.ExecContext(t.Context(), `INSERT INTO nothing VALUES (1)`)
	require.Error(t, err)
	require.False(t, full(err))
}
