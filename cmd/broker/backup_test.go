package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/tables"
)

// backup runs broker backup.
func (w *world) backup(args ...string) (code int, said string) {
	w.t.Helper()
	var out bytes.Buffer
	c := exec.Command(os.Args[0], append([]string{"backup"}, args...)...)
	c.Env = append(append(clearedEnv(), envMain+"=1"), w.env...)
	c.Stdout, c.Stderr = &out, &out
	require.NoError(w.t, c.Start())
	_ = c.Wait()
	return c.ProcessState.ExitCode(), out.String()
}

func TestABackupOfARunningBrokerIsRestoredInANewFolder(t *testing.T) {
	parallel(t)
	w := embeddedWorld(t)
	p := w.start()
	p.sample("k")
	p.put("/channel/c")
	require.Equal(t, 201, p.broadcast("before", "X-Broker-Message-ID", "before").status)
	dir := t.TempDir()
	file := filepath.Join(dir, "penstock.db")
	code, said := w.backup(file)
	require.Zero(t, code, said)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoFileExists(t, file+".part")
	code, said = w.backup(file)
	require.Equal(t, exitStore, code)
	require.Contains(t, said, "exists already")
	code, _ = w.backup()
	require.Equal(t, exitUsage, code)
	require.Equal(t, 201, p.broadcast("after", "X-Broker-Message-ID", "after").status)
	p.kill()

	restored := w.start("BROKER_DATA_DIR=" + dir)
	require.Equal(t, 200, restored.do("GET", "/channel/c/message/before", "").status)
	require.Equal(t, 404, restored.do("GET", "/channel/c/message/after", "").status)
	require.NotContains(t, restored.do("GET", "/readyz", "").body, "Warning", "a new folder knows nothing newer")
}

// A database without what was committed last is no silent start.
func TestAStoreThatLostItsWriteAheadLogSaysSoUntilAnOperatorHasSeenIt(t *testing.T) {
	parallel(t)
	w := emptyWorld(t)
	dir := w.setting("BROKER_DATA_DIR")
	p := w.start()
	p.sample("k")
	eventually(t, "the clock in the folder", func() bool {
		_, err := os.Stat(filepath.Join(dir, seenFile))
		return err == nil
	})
	require.NotContains(t, p.do("GET", "/readyz", "").body, "Warning")
	p.kill()
	require.NoError(t, os.Truncate(filepath.Join(dir, "penstock.db-wal"), 0))
	for range 2 {
		p = w.start()
		require.Contains(t, p.do("GET", "/readyz", "").body, "OLDER THAN ITS FOLDER")
		require.Zero(t, p.stop())
	}
	require.NoError(t, os.Remove(filepath.Join(dir, wentBackFile)))
	p = w.start()
	require.NotContains(t, p.do("GET", "/readyz", "").body, "Warning")
	require.Zero(t, p.stop())
}

// A MySQL database that was emptied, or is another one, starts silently no more than an embedded one.
func TestAnEmptyDatabaseThatRedisKnowsBetterIsToldReal(t *testing.T) {
	parallel(t)
	w := realWorld(t).with("BROKER_DATA_DIR=" + t.TempDir())
	p := w.start()
	s := p.stage(t, "k")
	s.publish("acknowledged")
	require.NotContains(t, p.do("GET", "/readyz", "").body, "Warning")
	o, err := redis.ParseURL(w.redis.URL())
	require.NoError(t, err)
	client := redis.NewClient(o)
	defer client.Close()
	eventually(t, "Redis to remember a state", func() bool {
		seen, err := client.HGet(t.Context(), "p1:history", "seen").Result()
		return err == nil && !strings.HasSuffix(seen, " 0")
	})
	require.Zero(t, p.stop())
	p = w.start("BROKER_MYSQL_DSN=" + tables.MySQL(t))
	require.Contains(t, p.do("GET", "/readyz", "").body, "MESSAGES THAT WERE ACKNOWLEDGED MAY BE MISSING")
	require.Contains(t, p.log.String(), "NOT IN THE STATE THAT REDIS REMEMBERS")
	require.Zero(t, p.stop())
}

// The journal of a broker that was killed while MySQL was away waits for its own store.
func TestMySQLIsAwayAndTheJournalOfAnotherStoreIsTold(t *testing.T) {
	parallel(t)
	w, _ := journalWorld(t)
	p := w.start()
	p.journalled()
	w.mysql.Pause()
	require.Equal(t, 202, p.broadcast("in the journal").status)
	p.kill()
	w.mysql.Resume()
	other := realWorld(t)
	q := other.start("BROKER_DATA_DIR=" + w.setting("BROKER_DATA_DIR"))
	require.Contains(t, q.do("GET", "/readyz", "").body, "BELONGS TO ANOTHER STORE")
	require.Zero(t, q.stop())
	p = w.start()
	require.NotContains(t, p.do("GET", "/readyz", "").body, "Warning")
	p.requireEachOnce("in the journal")
	require.Zero(t, p.stop())
}
