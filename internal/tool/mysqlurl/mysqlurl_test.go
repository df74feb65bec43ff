package mysqlurl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBothFormsNameOneDatabase(t *testing.T) {
	for _, dsn := range []string{"mysql://us%40er:p%2Fw@db:3306/old?charset=utf8mb4", "MariaDB://us%40er:p%2Fw@db/old",
		"us@er:p/w@tcp(db:3306)/old?multiStatements=true"} {
		c, err := Parse(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, []string{"us@er", "p/w", "db:3306", "old"}, []string{c.User, c.Passwd, c.Addr, c.DBName}, dsn)
	}
}

func TestWhatIsNoDSNIsNotQuoted(t *testing.T) {
	for _, dsn := range []string{"", "secret", "mysql://", "mysql://u:secret@h/db?timeout=secret", "mysql://u:se cret@h/d",
		"u:secret@tcp(h/db?x"} {
		_, err := Parse(dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A user who asks for TLS gets it, in both ways to write the address.
func TestTheParametersOfAMySQLAddressAreTaken(t *testing.T) {
	for _, dsn := range []string{"mysql://u:p%40ss@db.example/shop?tls=skip-verify&collation=utf8mb4_bin",
		"u:p@ss@tcp(db.example:3306)/shop?tls=skip-verify&collation=utf8mb4_bin"} {
		c, err := Parse(dsn)
		require.NoError(t, err)
		require.Equal(t, []string{"u", "p@ss", "tcp", "db.example:3306", "shop", "skip-verify", "utf8mb4_bin"},
			[]string{c.User, c.Passwd, c.Net, c.Addr, c.DBName, c.TLSConfig, c.Collation})
		require.NotNil(t, c.TLS)
	}
	_, err := Parse("mysql://u:p@db.example/shop?tls=nonsense")
	require.Error(t, err)
}
