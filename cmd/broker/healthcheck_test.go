package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAHealthCheckAsksTheBrokerOfItsSettings(t *testing.T) {
	p := embeddedWorld(t).start()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.base, "http://"))
	require.NoError(t, err)
	check := func(env ...string) (int, string) {
		cmd := exec.Command(os.Args[0], "healthcheck")
		cmd.Env = append(append(clearedEnv(), envMain+"=1"), env...)
		out, err := cmd.CombinedOutput()
		require.NotNil(t, cmd.ProcessState, err)
		return cmd.ProcessState.ExitCode(), string(out)
	}
	file := filepath.Join(t.TempDir(), "listen")
	require.NoError(t, os.WriteFile(file, []byte("127.0.0.1:"+port+"\n"), 0o600))
	for _, env := range [][]string{
		{"BROKER_LISTEN=127.0.0.1:" + port},
		{"BROKER_LISTEN=0.0.0.0:" + port}, // no admin token is needed to ask
		{"BROKER_LISTEN=:" + port, "BROKER_ADMIN_TOKEN_FILE=/not/there"},
		{"BROKER_LISTEN=[::]:" + port, "HTTP_PROXY=http://127.0.0.1:1"},
		{"BROKER_LISTEN_FILE=" + file},
	} {
		code, out := check(env...)
		require.Equal(t, exitClean, code, "%v: %s", env, out)
		require.Contains(t, out, "ready")
	}
	require.Equal(t, exitClean, p.stop())
	code, out := check("BROKER_LISTEN=127.0.0.1:" + port)
	require.Equal(t, exitUsage, code, out)
	code, out = check("BROKER_LISTEN=nonsense")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "BROKER_LISTEN")
}

func TestABrokerThatIsNotWellFailsItsHealthCheck(t *testing.T) {
	status, body := 503, `{"code":"store_unreachable"}`
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	env := []string{"BROKER_LISTEN=" + server.Listener.Addr().String()}
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, healthcheck(env, false, &stdout, &stderr))
	require.Equal(t, "/readyz", asked)
	require.Contains(t, stderr.String(), "503")
	require.Contains(t, stderr.String(), "store_unreachable")
	status = 302
	require.Equal(t, 1, healthcheck(env, false, &stdout, &stderr), "a redirect is no answer")
	status, body = 200, ""
	require.Equal(t, 0, healthcheck(env, true, &stdout, &stderr))
	require.Equal(t, "/livez", asked)
}
