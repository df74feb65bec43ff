package durable

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// unescape reads a literal as the server does: up to the first quote that is not
// escaped, `\0` being the zero byte and any other escaped byte itself.
func unescape(t *testing.T, literal []byte) []byte {
	rest, ok := bytes.CutPrefix(literal, []byte("'"))
	require.True(t, ok)
	out := []byte{}
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; c {
		case '\'':
			require.Equal(t, len(rest)-1, i, "the literal ends where it is meant to")
			return out
		case '\\':
			i++
			if rest[i] == '0' {
				out = append(out, 0)
			} else {
				require.Contains(t, `\'`, string(rest[i]))
				out = append(out, rest[i])
			}
		default:
			require.NotZero(t, c, "no zero byte inside a statement")
			out = append(out, c)
		}
	}
	t.Fatal("the literal does not end")
	return nil
}

func FuzzLiteralsHoldEveryByteAndNothingEscapesThem(f *testing.F) {
	for _, s := range []string{"", "plain", `'`, `\`, `\'`, `'\`, "\x00", "\x00'\\\x00", "'; DROP TABLE messages; -- ",
		"\xbf\x27", "\xe6'", strings.Repeat(`\'`, 99), "日本語"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		require.Equal(t, string(v), string(unescape(t, appendBytes(nil, v))))
		prefix := []byte("VALUES (")
		require.True(t, bytes.HasPrefix(appendBytes(prefix, v), prefix))
	})
}

func TestTheServerReadsLiteralsAsTheyWereMeantOnMySQL(t *testing.T) {
	s, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	check := func(v []byte) {
		var got []byte
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT "+string(appendBytes(nil, v))).Scan(&got))
		require.Equal(t, string(v), string(got))
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT "+string(appendHex(nil, v))).Scan(&got))
		require.Equal(t, string(v), string(got))
	}
	for i := range 256 { // every byte beside everything that could join it
		c := byte(i)
		check([]byte{c})
		check([]byte{c, '\'', c, '\\', c, 0, c})
		check([]byte{'\'', c, '\\', '\'', c})
	}
	alphabet := []byte("'\\\x00\"%_;-\n\r\x1a\xbf\x5c\xe6\x97\xf0\x9f\xff\xc0a")
	for range 300 {
		v := make([]byte, 1+rand.IntN(40))
		for i := range v {
			v[i] = alphabet[rand.IntN(len(alphabet))]
		}
		check(v)
	}
}

func TestEveryConnectionHasTheSettingsThatCorrectnessNeedsOnMySQL(t *testing.T) {
	dsn := servers.MySQL(t)
	join := "?"
	if strings.Contains(dsn, "?") {
		join = "&"
	}
	hostile := strings.Join([]string{
		"sql_mode=%27NO_BACKSLASH_ESCAPES%27", "multiStatements=true", "charset=gbk", "interpolateParams=false",
		"clientFoundRows=false", "parseTime=true",
		// The same variables by their other names, and further assignments inside a value.
		"SQL_MODE=%27%27", "session sql_mode=%27ORACLE%27", "@@session.time_zone=%27%2B05:00%27", "Autocommit=0",
		"innodb_lock_wait_timeout=50,+@@wait_timeout=9999",
		"tx_isolation=%27SERIALIZABLE%27,+tx_read_only=1",
		"character_set_client=gbk,+character_set_results=latin1,+collation_connection=gbk_chinese_ci",
		"unique_checks=0", "sql_select_limit=1", "completion_type=1", "maxAllowedPacket=1024",
	}, "&")
	s, err := OpenMySQL(t.Context(), dsn+join+hostile, Options{MaxConns: 3})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for range 3 {
		conn, err := s.db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }() // kept: each round has its own connection
		vars := map[string]string{}
		err = each(t.Context(), conn, `
SHOW SESSION VARIABLES
WHERE Variable_name IN (
    'sql_mode',
    'time_zone',
    'tx_isolation',
    'transaction_isolation',
    'character_set_client',
    'character_set_results',
    'collation_connection',
    'autocommit',
    'tx_read_only',
    'unique_checks',
    'sql_select_limit',
    'completion_type',
    'innodb_lock_wait_timeout',
    'wait_timeout'
)`, nil, func(r *sql.Rows) error {
			var name, value string
			err := r.Scan(&name, &value)
			if name == "tx_isolation" {
				name = "transaction_isolation"
			}
			vars[name] = value
			return err
		})
		require.NoError(t, err)
		require.Contains(t, vars["sql_mode"], "STRICT_TRANS_TABLES")
		require.NotContains(t, vars["sql_mode"], "NO_BACKSLASH_ESCAPES")
		require.Equal(t, "READ-COMMITTED", vars["transaction_isolation"])
		require.Equal(t, "+00:00", vars["time_zone"])
		require.Equal(t, "ON", vars["autocommit"])
		require.NotEqual(t, "ON", vars["tx_read_only"])
		require.Equal(t, "ON", vars["unique_checks"])
		require.Equal(t, "18446744073709551615", vars["sql_select_limit"])
		require.Equal(t, "NO_CHAIN", vars["completion_type"])
		require.Equal(t, "binary", vars["character_set_client"])
		require.Equal(t, "binary", vars["character_set_results"])
		require.Equal(t, "binary", vars["collation_connection"])
		require.Equal(t, "5", vars["innodb_lock_wait_timeout"])
		require.Equal(t, "60", vars["wait_timeout"], "which bounds how long locks outlive their broker")
		_, err = conn.ExecContext(t.Context(), "SELECT 1; SELECT 2")
		require.Error(t, err, "one statement at a time")
		_, err = conn.ExecContext(t.Context(), "DO LENGTH('"+strings.Repeat("x", 4096)+"')")
		require.NoError(t, err, "the server bounds a statement, not the DSN")
	}
}

// A privileged user can exclude its writes from the replicas, and a proxy can drop the settings of
// a session.
func TestASessionThatIsNotAsItWasSetIsRefusedOnMySQL(t *testing.T) {
	dsn := servers.MySQL(t)
	join := "?"
	if strings.Contains(dsn, "?") {
		join = "&"
	}
	_, err := OpenMySQL(t.Context(), dsn+join+"sql_log_bin=0", Options{})
	require.ErrorContains(t, err, `sql_log_bin "OFF" where the broker needs ON`)
	require.NotContains(t, err.Error(), dsn)

	good := map[string]string{
		"sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE", "time_zone": "+00:00", "autocommit": "ON",
		"completion_type": "NO_CHAIN", "unique_checks": "ON",
		"sql_log_bin": "ON", "sql_select_limit": "18446744073709551615", "character_set_client": "BINARY",
		"character_set_connection": "BINARY",
		"character_set_results":    "BINARY", "transaction_isolation": "READ-COMMITTED", "transaction_read_only": "OFF",
	}
	require.NoError(t, checkSession(good))
	for name, value := range map[string]string{
		"sql_mode": "STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES", "time_zone": "SYSTEM", "autocommit": "OFF",
		"completion_type": "CHAIN", "unique_checks": "OFF",
		"sql_select_limit": "1000", "character_set_client": "UTF8MB4", "character_set_connection": "GBK",
		"character_set_results": "LATIN1",
		"transaction_isolation": "REPEATABLE-READ", "tx_isolation": "REPEATABLE-READ", "transaction_read_only": "ON",
	} {
		vars := maps.Clone(good)
		vars[name] = value
		require.ErrorContains(t, checkSession(vars), name)
		if name == "sql_mode" {
			vars[name] = ""
			require.ErrorContains(t, checkSession(vars), "STRICT_TRANS_TABLES")
		}
	}
}

func TestARowThatTheServerRefusesIsFoundAmongItsNeighboursOnMySQL(t *testing.T) {
	s, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	// A rule that the package does not know of, as a later schema might have.
	_, err = s.db.ExecContext(t.Context(), `ALTER TABLE messages ADD CONSTRAINT strict CHECK (content_type <> 'refused')`)
	require.NoError(t, err)
	_, _, err = s.PutChannel(t.Context(), Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", 1<<40)
	require.NoError(t, err)
	now, err := s.NowMs(t.Context())
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return now })
	var batch []*Message
	for i := range 500 {
		m := &Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, ContentType: "text/plain"}
		if i == 123 || i == 499 {
			m.ContentType = "refused"
		}
		if i%50 == 0 {
			m.Key, m.Priority = fmt.Sprint("k", i), 3
		}
		batch = append(batch, m)
	}
	for i, err := range s.Insert(t.Context(), node, batch) {
		if i == 123 || i == 499 {
			require.ErrorIs(t, err, ErrRejected)
		} else {
			require.NoError(t, err)
		}
	}
	heads, err := s.Heads(t.Context(), 1, ident.ID{}, ident.Max(), 1000)
	require.NoError(t, err)
	require.Len(t, heads, 498)
}

func TestAStatementAboveThePacketIsSplitAndAHopelessRowRejectedOnMySQL(t *testing.T) {
	s, err := OpenMySQL(t.Context(), servers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.PutChannel(t.Context(), Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", 1<<40)
	require.NoError(t, err)
	s.packet = 40_000
	require.Equal(t, 10_000, s.MaxBatchBytes())
	now, err := s.NowMs(t.Context())
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return now })
	var batch []*Message
	for _, n := range []int{9000, 39_000, 100, 25_000, 5000, 5000} {
		batch = append(batch, &Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Payload: bytes.Repeat([]byte("'"), n)})
	}
	errs := s.Insert(t.Context(), node, batch)
	for i, err := range errs {
		if i == 1 || i == 3 { // escaping doubles them
			require.ErrorIs(t, err, ErrRejected)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestServerVersionsAreReadAndThoseWithoutSkipLockedRefused(t *testing.T) {
	for _, c := range []struct{ version, comment, want, refused string }{
		{"10.11.19-MariaDB-0+deb12u1", "Debian 12", "MariaDB 10.11.19", ""},
		{"10.6.0-MariaDB", "", "MariaDB 10.6.0", ""},
		{"11.8.2-MariaDB", "", "MariaDB 11.8.2", ""},
		{"8.0.1", "", "MySQL 8.0.1", ""},
		{"8.0.43", "MYSQL COMMUNITY SERVER - GPL", "MySQL 8.0.43", ""},
		{"8.4.0-commercial", "", "MySQL 8.4.0", ""},
		{"9", "", "MySQL 9", ""},
		{"5.5.5-10.6.1-MariaDB", "", "MariaDB 5.5.5", "too old"},
		{"10.5.9-MariaDB-1:10.5.9+maria~focal", "", "MariaDB 10.5.9", "MariaDB 10.6 or newer"},
		{"5.7.44-log", "", "MySQL 5.7.44", "MySQL 8.0.1 or newer"},
		{"8.0.0-dmr", "", "MySQL 8.0.0", "too old"},
		{"", "", "MySQL", "too old"},
		{"8.0.11-TiDB-v7.5.0", "", "TiDB v7.5.0", "is TiDB"},
		{"8.0.36", "TiDB Server (Apache License 2.0) Community Edition", "TiDB", "is TiDB"},
	} {
		got, err := product(c.version, c.comment)
		require.Equal(t, c.want, got, c.version)
		if c.refused == "" {
			require.NoError(t, err, c.version)
		} else {
			require.ErrorContains(t, err, c.refused, c.version)
			require.ErrorContains(t, err, needed)
		}
	}
}

func TestEachWeakSettingIsTold(t *testing.T) {
	require.Empty(t, weaknesses(map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON",
		"log_bin": "OFF", "sync_binlog": "0", "wsrep_on": "OFF"}))
	require.Len(t, weaknesses(map[string]string{"innodb_flush_log_at_trx_commit": "2", "innodb_doublewrite": "OFF",
		"log_bin": "ON", "sync_binlog": "0", "wsrep_on": "ON"}), 4)
}

func TestAnEndedContextStopsWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, pause(ctx, 60), context.Canceled)
}
