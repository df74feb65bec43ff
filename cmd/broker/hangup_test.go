//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAHangupReopensTheLog(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	file := filepath.Join(dir, "broker.log")
	require.NoError(t, os.WriteFile(file, []byte("from before\n"), 0o600))
	require.NoError(t, os.Chmod(file, 0o644))
	p := embeddedWorld(t).start("BROKER_LOG_FILE=" + file)
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
		return string(text)
	}
	require.Contains(t, read(file), "from before")
	eventually(t, "the last line of the start", func() bool { return strings.Contains(read(file), "broker is ready") })

	// As programs do that rotate logs; the second kind makes the new file itself.
	require.NoError(t, os.Rename(file, file+".1"))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "the log has a new file", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "reopened")
	})
	require.NotContains(t, read(file), "broker is ready")
	require.NoError(t, os.Rename(file, file+".2"))
	require.NoError(t, os.WriteFile(file, []byte("made by logrotate\n"), 0o600))
	require.NoError(t, os.Chmod(file, 0o666))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "the log goes on in that file", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "reopened")
	})
	require.Contains(t, read(file), "made by logrotate")
	require.Equal(t, exitClean, p.stop())
	require.Contains(t, read(file), "stopped")
	require.NotContains(t, read(file+".2"), "stopped")
}

func TestAHangupWithoutALogFileIsPassedOver(t *testing.T) {
	p := embeddedWorld(t).start()
	for range 3 {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	}
	require.Equal(t, 200, p.do("GET", "/livez", "").status)
	require.Equal(t, exitClean, p.stop())
}

// A server of MySQL that accepts and says nothing holds a start back for seconds.
func TestAHangupDuringTheStartKillsNothing(t *testing.T) {
	for _, command := range []string{"serve", "migrate"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var out syncBuffer
		cmd := exec.Command(os.Args[0], command)
		cmd.Env = append(clearedEnv(), envMain+"=1", "BROKER_MYSQL_DSN=u:s3cret@tcp("+l.Addr().String()+")/db",
			"BROKER_REDIS_URL=redis://127.0.0.1:1")
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
		conn, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, l.Close()) // another attempt is refused
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		require.NoError(t, conn.Close())
		_ = cmd.Wait()
		require.Equal(t, exitStore, cmd.ProcessState.ExitCode(), "%s: -1 is a signal\n%s", command, out.String())
		require.NotContains(t, out.String(), "s3cret")
	}
}
