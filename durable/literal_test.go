package durable

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/internal/realservers"
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
	for _, s := range []string{"", "plain", `'`, `\`, `\'`, `'\`, "\x00", "\x00'\\\x00", "'; DROP TABLE messages; -- ", "\xbf\x27", "\xe6'", strings.Repeat(`\'`, 99), "日本語"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		require.Equal(t, string(v), string(unescape(t, appendBytes(nil, v))))
		prefix := []byte("VALUES (")
		require.True(t, bytes.HasPrefix(appendBytes(prefix, v), prefix))
	})
}

func TestTheServerReadsLiteralsAsTheyWereMeant(t *testing.T) {
	s, err := OpenMySQL(t.Context(), realservers.MySQL(t), Options{})
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

func TestEveryConnectionHasTheSettingsThatCorrectnessNeeds(t *testing.T) {
	dsn := realservers.MySQL(t)
	join := "?"
	if strings.Contains(dsn, "?") {
		join = "&"
	}
	s, err := OpenMySQL(t.Context(), dsn+join+"sql_mode=%27NO_BACKSLASH_ESCAPES%27&multiStatements=true&charset=gbk", Options{MaxConns: 3})
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
		require.Equal(t, "binary", vars["character_set_client"])
		require.Equal(t, "binary", vars["character_set_results"])
		require.Equal(t, "binary", vars["collation_connection"])
		require.Equal(t, "5", vars["innodb_lock_wait_timeout"])
		require.Equal(t, "60", vars["wait_timeout"], "which bounds how long locks outlive their broker")
		_, err = conn.ExecContext(t.Context(), "SELECT 1; SELECT 2")
		require.Error(t, err, "one statement at a time")
	}
}

func TestARowThatTheServerRefusesIsFoundAmongItsNeighbours(t *testing.T) {
	s, err := OpenMySQL(t.Context(), realservers.MySQL(t), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	// A rule that the package does not know of, as a later schema might have.
	_, err = s.db.ExecContext(t.Context(), `ALTER TABLE messages ADD CONSTRAINT picky CHECK (content_type <> 'refused')`)
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

func TestAStatementAboveThePacketIsSplitAndAHopelessRowRejected(t *testing.T) {
	s, err := OpenMySQL(t.Context(), realservers.MySQL(t), Options{})
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

func TestServerVersionsAreReadAndOldOnesRefused(t *testing.T) {
	for version, want := range map[string]string{
		"10.11.19-MariaDB-0+deb12u1":          "MariaDB 10.11.19",
		"11.8.2-MariaDB":                      "MariaDB 11.8.2",
		"5.5.5-10.6.1-MariaDB":                "",
		"8.0.43":                              "MySQL 8.0.43",
		"8.4.0-commercial":                    "MySQL 8.4.0",
		"8.0.11-TiDB-v7.5.0":                  "MySQL 8.0.11",
		"5.7.44-log":                          "",
		"10.5.9-MariaDB-1:10.5.9+maria~focal": "",
	} {
		got, err := product(version)
		require.Equal(t, want, got)
		require.Equal(t, want == "", err != nil)
	}
}

func TestEachWeakSettingIsTold(t *testing.T) {
	require.Empty(t, weaknesses(map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "log_bin": "OFF", "sync_binlog": "0", "wsrep_on": "OFF"}))
	require.Len(t, weaknesses(map[string]string{"innodb_flush_log_at_trx_commit": "2", "innodb_doublewrite": "OFF", "log_bin": "ON", "sync_binlog": "0", "wsrep_on": "ON"}), 4)
}

func TestAnEndedContextStopsWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, pause(ctx, 60), context.Canceled)
}
