//go:build unix

package servers

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMySQL(t *testing.T, dsn string) *sql.DB {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func openRedis(t *testing.T, url string) *redis.Client {
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestEachTestHasAnEmptyDatabaseOnTheSharedServer(t *testing.T) {
	first, second := openMySQL(t, MySQL(t)), openMySQL(t, MySQL(t))
	_, err := first.Exec("CREATE TABLE t (a INT PRIMARY KEY)")
	require.NoError(t, err)

	var tables int
	require.NoError(
		t, second.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables))
	require.Zero(t, tables)
}

func TestTheDatabaseOfATestIsDroppedWhenItEnds(t *testing.T) {
	var name string
	t.Run("user", func(t *testing.T) {
		require.NoError(t, openMySQL(t, MySQL(t)).QueryRow("SELECT DATABASE()").Scan(&name))
	})
	var left int
	require.NoError(t, openMySQL(t, MySQL(t)).QueryRow("SELECT COUNT(*) FROM information_schema.schemata WHERE "+
		"schema_name = ?", name).Scan(&left))
	require.Zero(t, left)
}

func TestPrivateMySQLFlushesEachCommit(t *testing.T) {
	var flush int
	s := StartMySQL(t)
	require.NoError(t, openMySQL(t, s.DSN()).QueryRow("SELECT @@innodb_flush_log_at_trx_commit").Scan(&flush))
	require.Equal(t, 1, flush)
}

func TestMySQLKeepsWhatItCommittedOverKillAndRestart(t *testing.T) {
	s := StartMySQL(t)
	db := openMySQL(t, s.DSN())
	_, err := db.Exec("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=InnoDB")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO t VALUES (7)")
	require.NoError(t, err)

	port := s.Port()
	s.Kill()
	require.Error(t, db.Ping())
	s.Restart()
	require.Equal(t, port, s.Port())

	var a int
	require.NoError(t, db.QueryRow("SELECT a FROM t").Scan(&a))
	require.Equal(t, 7, a)
}

func TestAPausedMySQLDoesNotAnswerUntilItResumes(t *testing.T) {
	s := StartMySQL(t)
	db := openMySQL(t, s.DSN())
	require.NoError(t, db.Ping())

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(ctx, "DO 1")
	require.Error(t, err)

	s.Resume()
	_, err = db.Exec("DO 1")
	require.NoError(t, err)
}

func TestTheSharedRedisRefusesToBeFlushed(t *testing.T) {
	p, err := sharedRedis() // the one of this process, whatever the environment names
	require.NoError(t, err)
	c := openRedis(t, redisURL(p.port))
	require.ErrorContains(t, c.FlushAll(t.Context()).Err(), "unknown command")
	require.ErrorContains(t, c.FlushDB(t.Context()).Err(), "unknown command")
}

func TestTheSharedRedisAnswers(t *testing.T) {
	require.NoError(t, openRedis(t, Redis(t)).Ping(t.Context()).Err())
}

func TestAPrivateRedisForgetsEverythingOverKillAndRestart(t *testing.T) {
	s := StartRedis(t)
	c := openRedis(t, s.URL())
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())

	s.Kill()
	require.Error(t, c.Ping(t.Context()).Err())
	s.Restart()
	require.ErrorIs(t, c.Get(t.Context(), "k").Err(), redis.Nil)
}

func TestARedisWithAnAppendOnlyFileKeepsItsDataOverRestart(t *testing.T) {
	s := StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	c := openRedis(t, s.URL())
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())

	for _, end := range []func(){s.Kill, s.Stop, func() {}} {
		end()
		s.Restart()
		require.Equal(t, "v", c.Get(t.Context(), "k").Val())
	}
}

func TestAPausedRedisCanBeStopped(t *testing.T) {
	s := StartRedis(t)
	s.Pause()
	s.Stop()
	require.Error(t, openRedis(t, s.URL()).Ping(t.Context()).Err())
}

func TestAServerThatCannotStartShowsItsLog(t *testing.T) {
	_, err := startRedis([]string{"--no-such-option", "1"})
	require.ErrorContains(t, err, "ended while starting")
	require.ErrorContains(t, err, "no-such-option")
}

func TestAMissingProgramIsExplained(t *testing.T) {
	_, err := findBinary("no-such-program")
	require.ErrorContains(t, err, "`make test` installs it")
}
