package bench

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/realservers"
)

var allStages = []string{StageClient, StageHTTP, StagePush, StageInsert, StageOutcome, StageFsync, StageRedis1, StageRedis10, StageRedis}

func TestLimitsMeasureEveryStageOfTheEmbeddedStores(t *testing.T) {
	var out, progress bytes.Buffer
	code := run(context.Background(), []string{"limits", "--each", "50ms", "--connections", "4", "--rows", "16"}, &out, &progress)
	require.Equal(t, ExitOK, code, progress.String())
	for _, name := range allStages {
		require.Contains(t, out.String(), name)
	}
}

func TestLimitsMeasureEveryStageOfRealServers(t *testing.T) {
	l, err := MeasureLimits(context.Background(), LimitsConfig{
		MySQL: realservers.StartMySQL(t).DSN(), Redis: realservers.Redis(t), Payload: 1024, Connections: 4, Rows: 16, Writers: 2, Each: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	for _, name := range allStages {
		require.NotNil(t, l.Stage(name), name)
		require.Positive(t, l.Stage(name).Rate, name)
	}
	require.Equal(t, "bench+mysql", l.Stage(StageInsert).Processes)
	require.Equal(t, "bench+redis", l.Stage(StageRedis).Processes)
}

func TestARunWithLimitsTellsItsEfficiency(t *testing.T) {
	code, text, r := runBench(t, startFakeBroker(t), "run", "--messages", "200", "--connections", "2", "--with-limits", "--repeat", "1")
	require.Equal(t, ExitOK, code, text)
	require.Len(t, r.Efficiency, 1)
	require.Positive(t, r.Efficiency[0].Bound)
	require.Contains(t, text, "efficiency")
}

func TestCPUTimesAreReadWhateverTheProgramIsCalled(t *testing.T) {
	d, ok := parseStat([]byte("12 (a b) c) S 1 12 12 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 100 1000 10 0"))
	require.True(t, ok)
	require.Equal(t, 2*time.Second, d)
	for _, bad := range []string{"", "12", "12 (x", "1 (x) S 1 2 3", "1 (x) S a b c d e f g h i j k l m n"} {
		_, ok := parseStat([]byte(bad))
		require.False(t, ok, bad)
	}
	_, ok = Process{PID: os.Getpid()}.CPU()
	require.True(t, ok)
}

func TestTheProcessBehindAPortIsFound(t *testing.T) {
	n, err := startNoop(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	p, ok := listener("me", n.addr)
	require.True(t, ok)
	require.Equal(t, os.Getpid(), p.PID)
	_, ok = listener("far", "192.0.2.1:80")
	require.False(t, ok)
}
