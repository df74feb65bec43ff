package durable

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

// A broker of an older release is started again after a newer one has migrated.
func TestTablesThatANewerReleaseHasMadeAreRefusedOnMySQL(t *testing.T) {
	sqlite, err := OpenSQLite(t.Context(), t.TempDir(), Options{})
	require.NoError(t, err)
	mysql, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	for _, s := range []*Store{sqlite, mysql} {
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, s.Migrate(t.Context()))
		require.NoError(t, s.Migrate(t.Context()), "the same release again")
		_, err = s.db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
		require.NoError(t, err)
		err = s.Migrate(t.Context())
		require.ErrorIs(t, err, ErrNewerSchema)
		require.ErrorContains(t, err, "version 9999")
		_, err = s.db.ExecContext(t.Context(), `DELETE FROM goose_db_version WHERE version_id = 9999`)
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()), "the lock was given back")
	}
}
