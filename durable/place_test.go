package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestADatabaseThatWasTakenAwayIsNotInPlace(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
		"renamed": func(t *testing.T, dir string) { require.NoError(t, os.Rename(dir, dir+"-old")) },
		"replaced": func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "penstock.db"), filepath.Join(dir, "old")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "penstock.db"), nil, 0o600))
		},
		"without its lock": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "penstock.lock")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s, err := durable.OpenSQLite(t.Context(), dir, durable.Options{})
			require.NoError(t, err)
			defer s.Close()
			require.NoError(t, s.Migrate(t.Context()))
			require.NoError(t, s.InPlace())
			take(t, dir)
			require.ErrorContains(t, s.InPlace(), "was removed, renamed or replaced")
		})
	}
}
