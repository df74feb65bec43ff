package bench

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A row has the rates beside those of the first row, in pairs of turns, and what a message cost.
func TestStepsAreComparedWithTheFirst(t *testing.T) {
	turn := func(rate, cpu float64) *Result {
		return &Result{Seconds: 1, Messages: int64(rate), AckedRate: rate, DeliveredRate: rate / 2,
			CPUSeconds: map[string]float64{"broker": cpu, Stolen: 1}, Switches: map[string]float64{"broker": rate / 4}}
	}
	var out bytes.Buffer
	require.NoError(t, printSteps([]step{
		{"floor", []*Result{turn(1000, 0.1), turn(500, 0.05), turn(800, 0.08)}},
		{"broker", []*Result{turn(500, 0.1), turn(300, 0.06), turn(480, 0.096)}},
	}, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	require.NotContains(t, lines[0], Stolen)
	require.Equal(t, []string{"floor", "800", "1.00", "400", "1.00", "100.0", "0.25"}, strings.Fields(lines[1])[:7])
	require.Equal(t, []string{"broker", "480", "0.60", "240", "0.60", "200.0", "0.25"}, strings.Fields(lines[2])[:7])
}

func TestStepsWantNamedReports(t *testing.T) {
	for _, args := range [][]string{{}, {"report.json"}, {"a=" + t.TempDir() + "/none.json"}} {
		code, err := stepsCommand(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{})
		require.Error(t, err, args)
		require.Equal(t, ExitUsage, code)
	}
}

func TestSwitchesAreOfBothKinds(t *testing.T) {
	require.EqualValues(
		t, 12, switchesIn([]byte("Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n")))
	if n, ok := (Process{"self", os.Getpid()}).Switches(); ok {
		require.Positive(t, n)
	}
}
