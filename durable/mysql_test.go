package durable_test

import (
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/storetest"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

func TestMySQL(t *testing.T) {
	sent := listen(t, "testdata/mysql.sql", durable.UnheardMySQL)
	var dsns sync.Map // of each store, so that a second broker can reach its database
	open := func(t *testing.T) *durable.Store {
		dsn := tables.MySQL(t)
		s := sent.tap(openMySQL(t, dsn))
		dsns.Store(s, dsn)
		return s
	}
	storetest.Run(t, open, func(t *testing.T, s *durable.Store, channelNo uint32, ids ...ident.ID) func() {
		dsn, _ := dsns.Load(s)
		return holdInsert(t, dsn.(string), channelNo, ids)
	})
}

func openMySQL(t testing.TB, dsn string) *durable.Store {
	t.Helper()
	s, err := durable.OpenMySQL(t.Context(), dsn, durable.Options{MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// A message whose commit was ordered behind a raise of the clock that it did not see may lie below what scans
// have passed: they go back before the producer is answered.
func TestALateCommitOfAClusterTakesTheScansBackOnMySQL(t *testing.T) {
	t.Parallel()
	dsn := tables.MySQL(t)
	s, other := openMySQL(t, dsn), openMySQL(t, dsn)
	_, _, err := s.PutChannel(t.Context(), durable.Put{ID: "c"})
	require.NoError(t, err)
	node, err := s.LeaseNode(t.Context(), "n", time.Hour)
	require.NoError(t, err)
	ids := ident.NewGenerator(node.No, func() int64 { return time.Now().UnixMilli() })
	late := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1, Key: "a"}
	require.NoError(t, s.Insert(t.Context(), node, []*durable.Message{late})[0])
	node, err = s.RenewNode(t.Context(), node, time.Hour)
	require.NoError(t, err)
	passed := ident.AtMillis(late.ID.Millis() + 1)
	_, err = s.SaveWatermarks(t.Context(), durable.Clock{}, []durable.Settled{{ConsumerNo: 1, Through: passed}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the clock goes on, and a raise shows it
		node, err = s.RenewNode(t.Context(), node, time.Hour)
		require.NoError(t, err)
		return node.Clock.FloorMs > late.ID.Millis()+durable.MaxIDAge.Milliseconds()
	}, time.Minute, 100*time.Millisecond)

	require.NoError(t, other.Insert(t.Context(), node, []*durable.Message{late})[0], "a repeat, on one server")
	marks, err := s.Watermarks(t.Context())
	require.NoError(t, err)
	require.Equal(t, passed, marks[1])
	other.Cluster()
	require.NoError(t, other.Insert(t.Context(), node, []*durable.Message{late})[0])
	marks, err = s.Watermarks(t.Context())
	require.NoError(t, err)
	require.Equal(t, late.ID.Previous(), marks[1])
	clock, err := s.Clock(t.Context())
	require.NoError(t, err)
	require.Equal(t, node.Clock.Steps+1, clock.Steps, "each broker notices")

	timely := &durable.Message{ID: ids.Next(), ChannelNo: 1, ProducerNo: 1}
	_, err = s.SaveWatermarks(t.Context(), durable.Clock{}, []durable.Settled{{ConsumerNo: 1, After: late.ID.Previous(),
		Through: passed}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a busy machine may be late
		timely.ID = ids.Next()
		return other.Insert(t.Context(), node, []*durable.Message{timely})[0] == nil
	}, time.Minute, time.Millisecond)
}

// holdInsert inserts messages of another broker in a transaction that stays open.
func holdInsert(t *testing.T, dsn string, channelNo uint32, ids []ident.ID) (commit func()) {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	tx, err := db.Begin()
	require.NoError(t, err)
	for _, id := range ids {
		_, err := tx.Exec(`
INSERT INTO messages (channel_no, id, producer_no, priority, audience, content_type, headers, payload)
VALUES (?, ?, 1, 0, 1, '', '', '')`, channelNo, id[:])
		require.NoError(t, err)
	}
	return func() { require.NoError(t, tx.Commit()) }
}

// The sessions of a store use the binary character set. Names are text all the same: sessions
// with a character set read them as text, and the store reads names that such sessions wrote.
func TestNamesAreTextForEverybodyWhoReadsTheTablesOnMySQL(t *testing.T) {
	dsn := tables.MySQL(t)
	s := openMySQL(t, dsn)
	name := strings.Repeat("🙂", 254) + "é" // 255 characters, which is what a name may have
	_, _, err := s.PutChannel(t.Context(), durable.Put{ID: "c", Name: &name, NewToken: "t"})
	require.NoError(t, err)

	cfg, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	require.NoError(t, cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin")))
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var got string
	var characters int
	require.NoError(t, db.QueryRow(`SELECT name, CHAR_LENGTH(name) FROM channels WHERE id = 'c'`).Scan(&got, &characters))
	require.Equal(t, name, got)
	require.Equal(t, 255, characters)

	_, err = db.Exec(`UPDATE channels SET name = ? WHERE id = 'c'`, "grün")
	require.NoError(t, err)
	ch, _, err := s.PutChannel(t.Context(), durable.Put{ID: "c"}) // names nothing: keeps what is there
	require.NoError(t, err)
	require.Equal(t, "grün", ch.Name)
}

func TestSeveralBrokersMigrateAnEmptyDatabaseAtOnceOnMySQL(t *testing.T) {
	dsn := servers.MySQL(t)
	var wg sync.WaitGroup
	for range 3 {
		s, err := durable.OpenMySQL(t.Context(), dsn, durable.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		wg.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNoErrorOfOpenNamesThePassword(t *testing.T) {
	for _, dsn := range []string{
		"root:s3cret@tcp(127.0.0.1:1)/db",
		"root:s3cret@tcp(127.0.0.1:1)",
		"root:s3cret@tcp(127.0.0.1:1)/",
		"root:s3cret@tcp(127.0.0.1:1)/db?timeout=s3cret",
		"root:s3cret@tcp(127.0.0.1:1)/db?tls=s3cret",
		"root:s3cret/with?slash&s3cret=%zz@tcp(127.0.0.1:1)/db",
		"s3cret",
		"",
	} {
		_, err := durable.OpenMySQL(t.Context(), dsn, durable.Options{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestMySQLIsDescribedAndItsWeakSettingsAreTold(t *testing.T) {
	s := openMySQL(t, tables.MySQL(t))
	require.Regexp(t, `^(MariaDB|MySQL) \d+\.\d+`, s.Describe())
	for _, w := range s.Warnings() {
		require.NotContains(t, w, "innodb_flush_log_at_trx_commit", "the test server flushes each commit")
	}
}
