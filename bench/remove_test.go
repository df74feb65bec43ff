package bench

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// said runs a command and returns its code, what it printed to stdout, and to stderr.
func said(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var out, progress bytes.Buffer
	code := run(context.Background(), args, &out, &progress)
	return code, out.String(), progress.String()
}

func TestBenchAlonePrintsItsCommands(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"--help"}, {"-h"}} {
		code, out, progress := said(t, args...)
		require.Equal(t, ExitOK, code)
		require.Empty(t, progress)
		for _, command := range []string{"run", "publish", "find-max", "limits", "compare", "steps", "model", "chaos"} {
			require.Contains(t, out, "\n  "+command+" ")
		}
	}
	for command, flag := range map[string]string{"run": "--url", "publish": "--url", "find-max": "--p99",
		"limits": "--each", "compare": "--least", "steps": "Usage", "model": "--check", "chaos": "--minutes"} {
		code, out, progress := said(t, command, "--help")
		require.Equal(t, ExitOK, code, command)
		require.Empty(t, progress, command)
		require.Contains(t, out, "Usage: bench "+command)
		require.Contains(t, out, flag)
		code, out, progress = said(t, command, "--nosuch")
		require.Equal(t, ExitUsage, code, command)
		require.Empty(t, out, command)
		require.Equal(t, "bench: unknown flag \"--nosuch\"; bench "+command+" --help lists the flags\n", progress)
	}
	code, out, progress := said(t, "publsh")
	require.Equal(t, ExitUsage, code)
	require.Empty(t, out)
	require.Equal(t, "bench: unknown command \"publsh\"; did you mean publish? bench --help lists the commands\n",
		progress)
	_, _, progress = said(t, "run", "--conections", "3")
	require.Contains(t, progress, "did you mean --connections?")
}

func TestAURLWithoutABrokerIsToldWithinThreeSeconds(t *testing.T) {
	require.Less(t, answersWithin, 3*time.Second, "a slow machine adds its own time")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, in the kernel, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	dripping := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}))
	defer dripping.Close()
	another := httptest.NewServer(http.NotFoundHandler())
	defer another.Close()
	always := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer always.Close()
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, `{"Version":"v1"}`)
	}))
	defer starting.Close()
	for url, want := range map[string]string{
		"http://127.0.0.1:1": "nothing answers at http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: " +
			"connection refused",
		"http://" + silent.Addr().String(): "no answer from http://",
		dripping.URL:                       "no answer from http://",
		another.URL:                        "is no Penstock: GET /version is 404",
		always.URL:                         "is no Penstock: GET /version is 200",
		starting.URL:                       "is not ready: status 503",
	} {
		for _, command := range []string{"run", "publish", "find-max"} {
			code, out, progress := said(t, command, "--url", url)
			require.Equal(t, ExitCannotStart, code)
			require.Empty(t, out)
			require.Contains(t, progress, want)
			require.Equal(t, 1, strings.Count(progress, "\n"), progress)
		}
	}
}

func TestARunRemovesWhatItMadeInABrokerThatRunsOn(t *testing.T) {
	args := []string{"--connections", "2", "--channels", "2", "--push-consumers", "2", "--pull-workers", "1"}
	for name, command := range map[string][]string{
		"run": {"run", "--messages", "20", "--repeat", "2"}, "publish": {"publish", "--messages", "20"},
		"find-max": {"find-max", "--duration", "50ms", "--warmup", "0", "--max-steps", "2", "--start", "400"},
	} {
		f := startFakeBroker(t)
		_, _, progress := said(t, append(append(command, "--url", f.url), args...)...)
		require.Empty(t, f.left(), name)
		require.Contains(t, progress, "of this run are removed", name)
		require.Positive(t, f.taken(), name)
	}
}

// What a broker without the routes of DELETE keeps is named, with commands that remove it.
func TestWhatARunCannotRemoveIsNamedWithItsCommands(t *testing.T) {
	f := startFakeBroker(t)
	f.noDelete = true
	code, _, progress := said(t, "run", "--url", f.url, "--messages", "20", "--connections", "2", "--channels", "2",
		"--push-consumers", "2", "--pull-workers", "1", "--repeat", "2", "--admin-token", "bench-secret")
	require.Equal(t, ExitOK, code, progress)
	require.Len(t, f.left(), 2*(1+2+2*3))
	require.Contains(t, progress, "because they could not be removed: it runs without BROKER_ALLOW_DELETE=true.")
	require.NotContains(t, progress, "bench-secret")
	f.mu.Lock()
	f.noDelete = false
	f.mu.Unlock()
	_, commands, ok := strings.Cut(progress, "BROKER_ALLOW_DELETE=true:\n")
	require.True(t, ok, progress)
	shell := exec.Command("bash", "-e", "-c", commands)
	shell.Env = append(os.Environ(), "NO_PROXY=*", "TOKEN=x")
	out, err := shell.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, f.left(), commands)
}

func TestARunThatIsInterruptedRemovesWhatItMade(t *testing.T) {
	f := startFakeBroker(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan string)
	go func() {
		var out, progress bytes.Buffer
		_ = run(ctx, []string{"run", "--url", f.url, "--duration", "1m", "--connections", "2"}, &out, &progress)
		done <- progress.String()
	}()
	require.Eventually(t, func() bool { return f.taken() > 10 }, time.Minute, 5*time.Millisecond)
	cancel(signalled{syscall.SIGINT})
	progress := <-done
	require.Contains(t, progress, "of this run are removed")
	require.Empty(t, f.left())
}

func TestARunThatCouldMakeNothingLeavesNothing(t *testing.T) {
	f := startFakeBroker(t)
	f.refused = true
	code, _, progress := said(t, "run", "--url", f.url, "--messages", "20")
	require.Equal(t, ExitCannotStart, code)
	require.Contains(t, progress, "status 401")
	require.NotContains(t, progress, "remove")
}
