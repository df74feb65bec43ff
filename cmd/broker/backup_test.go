package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
	t.Parallel()
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
	t.Parallel()
	w := emptyWorld(t)
	dir := w.setting("BROKER_DATA_DIR")
	p := w.start()
	p.sample("k")
	eventually(t, "the clock in the folder", func() bool { _, err := os.Stat(filepath.Join(dir, seenFile)); return err == nil })
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
