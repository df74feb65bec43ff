package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABrokerIsStartedLoadedStoppedAndRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("BROKER_LISTEN", "127.0.0.1:1") // of another broker: must not leak into ours
	var out, progress bytes.Buffer
	code := run(context.Background(), []string{"run", "--broker-binary", os.Args[0], "--messages", "100", "--connections",
		"2", "--broker-env", "BENCH_TEST=serve"}, &out, &progress)
	require.Equal(t, ExitOK, code, progress.String())
	require.Contains(t, out.String(), "ledger 1: 100 sent, 100 acked")
	require.Regexp(t, `CPU in cores: bench [0-9.]+ broker [0-9.]+`, out.String())
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAScrapeThatFailsFailsTheRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	code := run(context.Background(), []string{"run", "--broker-binary", os.Args[0], "--duration", "300ms", "--warmup",
		"0s", "--connections", "2", "--scrape", "10ms", "--broker-env", "BENCH_TEST=serve"}, &out, &progress)
	require.NotEqual(t, ExitOK, code)
	require.Contains(t, progress.String(), "/metrics answers 404")
}

func TestARunWithTracesFailsWhereTheBrokerSendsNone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	args := []string{"run", "--broker-binary", os.Args[0], "--messages", "100", "--connections", "2", "--broker-env",
		"BENCH_TEST=serve", "--traced"}
	require.Equal(t, ExitOK, run(context.Background(), append(args, "0"), &out, &progress), progress.String())
	require.NotEqual(t, ExitOK, run(context.Background(), append(args, "0.01"), &out, &progress))
	require.Contains(t, progress.String(), "the broker sent no traces")
	require.NotEqual(t, ExitOK, run(context.Background(), append(args, "1.5"), &out, &progress))
	require.Contains(t, progress.String(), "--traced wants a share from 0 to 1")
}

func TestABrokerThatDoesNotStartIsQuoted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	code := run(context.Background(), []string{"run", "--broker-binary", os.Args[0], "--messages", "100"}, &out, &progress)
	require.Equal(t, ExitCannotStart, code)
	require.Contains(t, progress.String(), "BROKER_NONSENSE is not a setting")
}

func TestABrokerThatDiesUnderLoadLeavesAnUnprovenLedgerNotACrash(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c := Config{Connections: 2, Payload: 100, ContentType: "text/plain", Quiet: 5e8, Priority: "0", Channels: 1, Batch: 1,
		PushConsumers: 1, PullBatch: 1, Sink: "ok",
		Duration: 6e9, Drain: 200e6, Timeout: 1e9, Repeat: 1, Binary: os.Args[0], BrokerEnv: list{"BENCH_TEST=serve"}}
	require.NoError(t, c.validate())
	b, err := OpenBroker(context.Background(), &c)
	require.NoError(t, err)
	killed := false
	x, err := measureOnce(context.Background(), &c, b, func(l Live) {
		if !killed {
			killed = true
			require.NoError(t, b.cmd.Process.Kill())
		}
	})
	require.NoError(t, err)
	require.True(t, killed)
	require.NotNil(t, x.Ledger)
	require.Zero(t, x.Ledger.Corrupted)
	require.Positive(t, x.ErrorCount())
	require.ErrorContains(t, b.Close(), "ended by itself")
}
