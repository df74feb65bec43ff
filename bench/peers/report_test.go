package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/bench"
)

func made(subject string, round int, acked, delivered float64) *sample {
	return &sample{Subject: subject, Publishers: 64, Round: round, Version: subject + " 1.0", Held: 0, Result: &bench.Result{
		Seconds: 10, Messages: 1_000_000, AckedRate: acked, DeliveredRate: delivered,
		Ack: bench.Latency{P50: 1.23, P99: 4.56}, Delivery: bench.Latency{P50: 7.89, P99: 123.4},
		CPUSeconds: map[string]float64{"bench": 10, "broker": 20, "mysql": 5, bench.Disturbance: 1},
		Ledger:     &bench.Verdict{Acked: 100, Expected: 100, Delivered: 100},
	}}
}

func TestTheTableHasMediansAndRatiosOfTheSameRound(t *testing.T) {
	t.Parallel()
	r := &report{Runs: []*sample{
		made("penstock", 1, 100, 90), made("rabbitmq-quorum", 1, 50, 30),
		made("rabbitmq-quorum", 2, 40, 40), made("penstock", 2, 200, 200),
		made("penstock", 3, 150, 150), made("rabbitmq-quorum", 3, 150, 150),
	}}
	var out strings.Builder
	printReport(&out, r)
	text := out.String()
	require.Contains(t, text, "| Penstock | yes, group commit | 150 (100..200) | 150 (90..200) | 1.00 | 1.00 | 1.2 / 4.6 | 7.9 / 123 | 0.0 % | 25 | 10 | 3 |")
	// By round: 100/50, 200/40, 150/150 and 90/30, 200/40, 150/150.
	require.Contains(t, text, "| 50 (40..150) | 40 (30..150) | 2.00 | 3.00 |")
	require.NotContains(t, text, "Not proven")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			require.Equal(t, 13, strings.Count(line, "|"), line)
		}
	}
}

func TestADisturbedRoundHasAStar(t *testing.T) {
	t.Parallel()
	x := made("penstock", 1, 1, 1)
	x.Result.CPUSeconds[bench.Disturbance] = 4
	var out strings.Builder
	printReport(&out, &report{Runs: []*sample{x}})
	require.Contains(t, out.String(), `| 1\* |`)
	require.Contains(t, x.line(), "CAUTION")
}

func TestARunThatFailedIsListedAndNotInTheTable(t *testing.T) {
	t.Parallel()
	r := &report{Runs: []*sample{made("penstock", 1, 1, 1), {Subject: "nats-always", Publishers: 64, Round: 1, Failure: "it would not start"}}}
	var out strings.Builder
	printReport(&out, r)
	require.Contains(t, out.String(), "nats-always: it would not start")
	require.NotContains(t, out.String(), "| NATS JetStream, `sync_interval: always` |")
	require.Equal(t, exitCannot, r.verdict())
}

func TestPendingDeliveriesThatNobodyCountedAreNotProven(t *testing.T) {
	t.Parallel()
	x := made("penstock", 1, 1, 1)
	x.Held, x.Result.Ledger.Pending = -1, 7
	require.Contains(t, x.doubt(), "7 deliveries still pending")
}

func TestTheReportIsWrittenAsJSON(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.json")
	require.NoError(t, (&report{Format: 1, Runs: []*sample{made("penstock", 1, 1, 1)}}).write(file))
	require.FileExists(t, file)
}
