//go:build unix

package durable_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// A folder that exists may be open to all, as a mounted volume is.
func TestTheFilesOfTheStoreAreForTheirOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	files := []string{"penstock.db", "penstock.db-wal", "penstock.db-shm", "penstock.lock"}

	open := func() *durable.Store {
		s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()))
		_, _, err = s.PutProducer(t.Context(), durable.Put{ID: "p", NewToken: "secret"})
		require.NoError(t, err)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, len(files), "%v", entries)
		for _, name := range files {
			info, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
		}
		return s
	}
	require.NoError(t, open().Close())

	// Left by a release that did not see to it, and by a kill: with its log.
	s := open()
	copies := t.TempDir()
	require.NoError(t, os.CopyFS(copies+"/killed", os.DirFS(dir)))
	require.NoError(t, s.Close())
	dir = copies + "/killed"
	for _, name := range files {
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o664))
	}
	require.NoError(t, open().Close())
}
