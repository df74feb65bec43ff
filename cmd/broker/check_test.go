package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/preflight"
	"github.com/penstock-broker/penstock/internal/test/fakemysql"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// command runs a command of the program with the settings of the world.
func (w *world) command(args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	var out, said bytes.Buffer
	c := exec.Command(os.Args[0], args...)
	c.Env = append(append(clearedEnv(), envMain+"=1"), w.env...)
	c.Stdout, c.Stderr = &out, &said
	require.NoError(w.t, c.Start())
	_ = c.Wait() // its code says it
	return c.ProcessState.ExitCode(), out.String(), said.String()
}

func TestCheckSaysWhatABrokerWouldStartOn(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for _, running := range []bool{true, false} {
			if !running {
				require.Zero(t, p.stop())
			}
			code, stdout, stderr := w.command("check", "--json", "--starting")
			require.Empty(t, stderr)
			var r preflight.Report
			require.NoError(t, json.Unmarshal([]byte(stdout), &r))
			require.Zero(t, code, stdout)
			require.True(t, r.OK)
			for _, l := range r.Lines {
				require.False(t, l.Stops, l.Text)
			}
			code, stdout, _ = w.command("check")
			require.Contains(t, []int{preflight.CodeOK, preflight.CodeMend}, code, "a server of a test may not flush")
			require.Contains(t, stdout, "ok           settings")
			require.Contains(t, stdout, "the tables have version")
		}
		w.start()
	})
}

func TestCheckExitsByWhatIsWrong(t *testing.T) {
	parallel(t)
	w := emptyWorld(t).with("BROKER_MAX_RETRIES=many", "BROKER_LISTN=x")
	code, stdout, _ := w.command("check")
	require.Equal(t, preflight.CodeMend, code)
	require.Equal(t, 2, strings.Count(stdout, "mend         settings"), stdout)
	w = emptyWorld(t).with("BROKER_REDIS_URL=redis://:s3cret@127.0.0.1:1")
	code, stdout, stderr := w.command("check")
	require.Equal(t, preflight.CodeUnreachable, code)
	require.NotContains(t, stdout+stderr, "s3cret")
	require.Empty(t, stderr, "the client of Redis is silent")
	code, _, _ = w.command("check", "--starting")
	require.Zero(t, code, "a broker starts without Redis")
	require.Equal(t, preflight.CodeUnreachable, exitStore, "the codes are those of the program")
	require.Equal(t, preflight.CodeMend, exitUsage)
}

// requireRefused starts a broker that ends with a code and a sentence.
func requireRefused(t *testing.T, w *world, want ...string) {
	t.Helper()
	p := w.launch()
	p.awaitEnd()
	require.Equal(t, exitStore, p.cmd.ProcessState.ExitCode(), p.log.String())
	for _, text := range want {
		require.Contains(t, p.log.String(), text)
	}
}

func TestABrokerRefusesServersThatTakeSkipLockedAndLockNothing(t *testing.T) {
	parallel(t)
	for version, want := range map[string]string{"8.0.11-TiDB-v7.5.0": "is TiDB",
		"10.5.9-MariaDB": "MariaDB 10.5.9 is too old", "8.0.0-dmr": "MySQL 8.0.0 is too old"} {
		fake, err := fakemysql.Start(version, map[string]string{"max_allowed_packet": "67108864"})
		require.NoError(t, err)
		w := emptyWorld(t).with("BROKER_MYSQL_DSN=" + fake.DSN())
		requireRefused(t, w, want, "use MySQL 8.0.1 or newer, or MariaDB 10.6 or newer")
		code, stdout, _ := w.command("check", "--starting")
		require.Equal(t, preflight.CodeMend, code)
		require.Contains(t, stdout, want)
		require.NoError(t, fake.Close())
	}
}

func TestABrokerRefusesARedisThatDropsKeysAndNoticesOneThatBegins(t *testing.T) {
	parallel(t)
	server := servers.StartRedis(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
	w := emptyWorld(t).with("BROKER_REDIS_URL=" + server.URL())
	requireRefused(t, w, "set maxmemory-policy noeviction", "allkeys-lru", "BROKER_REDIS_URL")
	a := admin(t, server)
	policy := func(value string) {
		require.NoError(t, a.ConfigSet(t.Context(), "maxmemory-policy", value).Err())
	}
	policy("noeviction")
	p := w.start()
	require.Zero(t, p.gauge(t, "penstock_redis_evicts"))
	policy("volatile-lru")
	eventually(t, "the change to be noticed", func() bool { return p.gauge(t, "penstock_redis_evicts") == 1 })
	policy("noeviction")
	eventually(t, "its end", func() bool { return p.gauge(t, "penstock_redis_evicts") == 0 })
	require.Equal(t, 1, strings.Count(p.log.String(), "Redis drops keys of the queue"))
	require.Contains(t, p.log.String(), "Redis no longer drops keys")
	require.Zero(t, p.stop())
}

// A Redis that was away at the start is looked at when it is there.
func TestARedisThatComesLateAndDropsKeysEndsTheBroker(t *testing.T) {
	parallel(t)
	server := servers.StartRedis(t, "--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
	server.Stop()
	p := emptyWorld(t).with("BROKER_REDIS_URL=" + server.URL()).start()
	server.Restart()
	p.awaitEnd()
	require.NotZero(t, p.cmd.ProcessState.ExitCode())
	require.Contains(t, p.log.String(), "set maxmemory-policy noeviction")
}

// A program of an older release is started on tables that a newer one has made.
func TestTablesOfANewerReleaseEndEachCommandWithBothVersions(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		exec := w.storeExec(t)
		exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
		known := "versions up to " + strconv.FormatInt(durable.KnownSchema(), 10)
		requireRefused(t, w, "they have version 9999", known, "run the release that made them")
		code, _, stderr := w.command("migrate")
		require.Equal(t, exitStore, code)
		require.Contains(t, stderr, "version 9999")
		require.Contains(t, stderr, known)
		code, stdout, _ := w.command("check", "--starting")
		require.Equal(t, preflight.CodeMend, code)
		require.Contains(t, stdout, "version 9999")
		exec(`DELETE FROM goose_db_version WHERE version_id = 9999`)
		w.start()
	})
}

// A program with one base of its tables is started on those of a build from before the first version.
func TestTablesFromBeforeTheFirstVersionEndEachCommandWithWhatToDo(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		exec := w.storeExec(t)
		exec(`UPDATE goose_db_version SET version_id = 48 WHERE version_id > 0`)
		requireRefused(t, w, "they have version 48", "start the build of commit dc2e5c56 on them once", "version 50")
		code, _, stderr := w.command("migrate")
		require.Equal(t, exitStore, code)
		require.Contains(t, stderr, "they have version 48")
		require.Contains(t, stderr, "start the build of commit dc2e5c56")
		code, stdout, _ := w.command("check", "--starting")
		require.Equal(t, preflight.CodeMend, code)
		require.Contains(t, stdout, "start the build of commit dc2e5c56")
		if w.setting("BROKER_MYSQL_DSN") == "" {
			file := filepath.Join(t.TempDir(), "copy.db")
			code, said := w.backup(file)
			require.Zero(t, code, said)
			code, _, stderr = w.command("restore", "--force", file)
			require.Equal(t, exitStore, code)
			require.Contains(t, stderr, "start the build of commit dc2e5c56")
		}
		exec(`DELETE FROM goose_db_version WHERE version_id > 0`)
		for v := int64(50); v <= durable.KnownSchema(); v++ {
			exec(fmt.Sprintf(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, 1)`, v))
		}
		w.start()
	})
}

// storeExec returns what sends statements to the store of a world.
func (w *world) storeExec(t *testing.T) func(text string, args ...any) {
	t.Helper()
	driver, at := "sqlite", filepath.Join(w.setting("BROKER_DATA_DIR"), "penstock.db")
	if dsn := w.setting("BROKER_MYSQL_DSN"); dsn != "" {
		driver, at = "mysql", dsn
	}
	return func(text string, args ...any) {
		t.Helper()
		db, err := sql.Open(driver, at)
		require.NoError(t, err)
		defer db.Close()
		_, err = db.ExecContext(t.Context(), text, args...)
		require.NoError(t, err)
	}
}
