package durable

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/atrest"
)

// The release before had each secret of the brokers as four numbers among the settings. They are the same secrets in
// the table, beside the numbers, which brokers of that release read until the secrets are encrypted.
func TestSecretsOfTheReleaseBeforeAreKeptAndEncryptedOnMySQL(t *testing.T) {
	onMigrating(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		require.NoError(t, s.migrateTo(ctx, upTo(t, 51)))
		var want []byte
		for i, value := range []int64{-2, 7, -1 << 63, 0x0102030405060708} {
			require.NoError(t, s.SetSetting(ctx, fmt.Sprintf("audit fingerprints.%d", i), value))
			want = binary.BigEndian.AppendUint64(want, uint64(value))
		}
		require.NoError(t, s.SetSetting(ctx, "revive.0", 5)) // a broker died before it had made the others
		for i := range 4 {                                   // when a broker of a version first started
			require.NoError(t, s.SetSetting(ctx, fmt.Sprintf("version.1.0.%d", i), 9))
		}
		require.NoError(t, s.Migrate(ctx))

		secret := func() []byte {
			got, err := s.Secret(ctx, "audit fingerprints")
			require.NoError(t, err)
			return got
		}
		parts := func() (n int) {
			const count = "SELECT COUNT(*) FROM settings WHERE value IN (-2, 7, 72623859790382856)"
			require.NoError(t, s.db.QueryRowContext(ctx, count).Scan(&n))
			return n
		}
		require.Equal(t, want, secret())
		require.Equal(t, 3, parts())
		other, err := s.Secret(ctx, "revive")
		require.NoError(t, err)
		require.Len(t, other, secretBytes)

		s.UseKeys(atrest.NewKeys(make([]byte, 32), nil))
		require.Equal(t, want, secret(), "a plain one is read with a key, too")
		_, err = s.Reencrypt(ctx, func(Reencryption) {})
		require.NoError(t, err)
		require.Equal(t, want, secret())
		require.Zero(t, parts())
		kept, err := s.Setting(ctx, "version.1.0.3")
		require.NoError(t, err)
		require.EqualValues(t, 9, kept, "it was no secret")
		s.UseKeys(nil)
		_, err = s.Secret(ctx, "audit fingerprints")
		require.ErrorIs(t, err, ErrKeys)
		require.ErrorIs(t, s.CheckKeys(ctx), ErrKeys)
		if s.dialect == sqliteDialect {
			for _, file := range s.files {
				text, err := os.ReadFile(file.path)
				require.NoError(t, err)
				require.NotContains(t, string(text), string(want[:8]), filepath.Base(file.path))
				require.NotContains(t, string(text), string(want[24:]), filepath.Base(file.path))
			}
		}
	})
}
