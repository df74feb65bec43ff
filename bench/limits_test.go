package bench

import (
	"bytes"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/servers"
)

var allStages = []string{StageClient, StageHTTP, StagePush, StageInsert, StageOutcome, StageFsync, StageRedis1,
	StageRedis10, StageRedis}

func TestLimitsMeasureEveryStageOfTheEmbeddedStores(t *testing.T) {
	var out, progress bytes.Buffer
	code := run(context.Background(), []string{"limits", "--each", "50ms", "--connections", "4", "--rows", "16"},
		&out, &progress)
	require.Equal(t, ExitOK, code, progress.String())
	for _, name := range allStages {
		require.Contains(t, out.String(), name)
	}
}

func TestLimitsMeasureEveryStageOfRealServers(t *testing.T) {
	l, err := MeasureLimits(context.Background(), LimitsConfig{
		MySQL: servers.StartMySQL(t).DSN(), Redis: servers.Redis(t), Payload: 1024, Connections: 4, Rows: 16, Writers: 2,
		Each: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	for _, name := range allStages {
		require.NotNil(t, l.Stage(name), name)
		require.Positive(t, l.Stage(name).Rate, name)
	}
	for stage, processes := range map[string][]string{StageHTTP: {"bench", "peer"}, StagePush: {"bench", "peer"},
		StageInsert: {"bench", "mysql"}, StageRedis: {"bench", "redis"}} {
		s := l.Stage(stage)
		require.ElementsMatch(t, processes, slices.Collect(maps.Keys(s.Micros)), stage)
		require.InDelta(t, s.CPUMicros, s.Micros[processes[0]]+s.Micros[processes[1]], 1e-6, stage)
	}
}

func TestARunWithLimitsTellsItsEfficiency(t *testing.T) {
	code, text, r := runBench(t, startFakeBroker(t), "run", "--messages", "200", "--connections", "2", "--with-limits",
		"--repeat", "1")
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

func TestWhatTheHostKeepsBackIsNoWorkOfThisMachine(t *testing.T) {
	m, ok := parseMachine([]byte("cpu  100 20 30 4000 500 6 7 250 0 0\ncpu0 1 2 3\n"))
	require.True(t, ok)
	require.Equal(t, machineTime{busy: 1630 * time.Millisecond, stolen: 2500 * time.Millisecond}, m)
	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8 9", "cpu  1 2 3 4 5 6 x 8 9 10"} {
		_, ok := parseMachine([]byte(bad))
		require.False(t, ok, bad)
	}
	cpu := map[string]float64{"bench": 4, "broker": 6, Disturbance: 1, Stolen: 4}
	require.InDelta(t, 10, total(cpu), 1e-9)
	x := &Result{Seconds: 10, AckedRate: 5000, DeliveredRate: 5000, CPUSeconds: cpu, Ledger: &Verdict{}}
	c := Config{Batch: 1, PushConsumers: 1, PullBatch: 1}
	var out strings.Builder
	r := &Report{Config: c, Hardware: Hardware{Cores: 2}, Results: []*Result{x},
		Efficiency: []Efficiency{Efficient(&c, x, testLimits(), 2)}}
	PrintRun(&out, r)
	PrintEfficiency(&out, r)
	require.Contains(t, out.String(), "broker 0.60 others 0.10 stolen 0.40 of 2\n")
	require.Contains(t, out.String(), "kept back 0.40 cores that had work to do")
	require.Contains(t, out.String(), "efficiency 20 %\nthe host kept back 0.40 cores: 25 % of the bound of the others\n")
	cpu[Stolen] = 0.5
	out.Reset()
	PrintRun(&out, r)
	require.NotContains(t, out.String(), "CAUTION")
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
