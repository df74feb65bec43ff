package bench

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// modelReport writes the report of a run on a machine where each unit has a cost that is known.
func modelReport(t *testing.T, push, batch, payload int) string {
	c := Config{PushConsumers: push, Batch: batch, Payload: payload}
	micros := map[string]float64{}
	for process, of := range map[string][]float64{"broker": {20, 5, 30, 1, 2}, "mysqld": {0, 12, 9, 3, 0},
		"redis": {0, 0, 6, 0, 0}} {
		for i, n := range amounts(&c) {
			micros[process] += n * of[i]
		}
	}
	const cores, used, seconds = 2, 0.9, 10
	rate := used * cores * 1e6 / (micros["broker"] + micros["mysqld"] + micros["redis"])
	x := &Result{Seconds: seconds, Messages: int64(rate * seconds), AckedRate: rate, PayloadBytes: payload,
		CPUSeconds: map[string]float64{Stolen: 3}}
	for process, us := range micros {
		x.CPUSeconds[process] = us * rate * seconds / 1e6
	}
	file := filepath.Join(t.TempDir(), "run.json")
	r := &Report{Format: reportFormat, Hardware: Hardware{Cores: cores}, Config: c, Results: []*Result{x, x}}
	require.NoError(t, r.Write(file))
	return fmt.Sprintf("%d-%d-%d=%s", push, batch, payload, file)
}

func TestAModelFindsTheCostsAndPredictsOtherRates(t *testing.T) {
	fit := []string{modelReport(t, 0, 1, 1024), modelReport(t, 0, 100, 1024), modelReport(t, 1, 1, 1024),
		modelReport(t, 3, 1, 1024), modelReport(t, 0, 1, 8192), modelReport(t, 1, 1, 8192)}
	var out bytes.Buffer
	args := append([]string{"--within", "0.02", "--check", modelReport(t, 5, 10, 4096), "--check",
		modelReport(t, 2, 1, 512), "--rate", "1000000", "--push-consumers", "2", "--batch", "100", "--payload",
		"2048"}, fit...)
	code, err := modelCommand(t.Context(), args, &out, nil)
	require.NoError(t, err)
	require.Equal(t, ExitOK, code, out.String())
	require.Regexp(t, `a push job +30\.\d\d +9\.\d\d`, out.String())
	require.Regexp(t, `a KiB of a push job +(1\.9|2\.0)\d +0\.\d\d`, out.String())
	require.Contains(t, out.String(), "the largest difference of a check is 0 %")
	// 20/100 + 5 + 2*30 + 2*1 + 4*2 = 75.2 us; 12 + 2*9 + 2*3 = 36 us
	require.Regexp(t, `take cores: 75\.\d of broker, 3[56]\.\d of mysqld, 12\.0 of redis`, out.String())

	// A run that costs other than the model says.
	wrong := modelReport(t, 1, 1, 1024)
	r, err := readReports(wrong[len("1-1-1024="):])
	require.NoError(t, err)
	r.Results[0].AckedRate *= 2
	r.Results[1].AckedRate *= 2
	file := filepath.Join(t.TempDir(), "wrong.json")
	require.NoError(t, r.Write(file))
	args = append([]string{"--within", "0.2", "--check", "wrong=" + file}, fit...)
	code, err = modelCommand(t.Context(), args, &out, nil)
	require.NoError(t, err)
	require.Equal(t, ExitUnmet, code)
}

func TestAModelNeedsRunsThatTellTheCostsApart(t *testing.T) {
	one := modelReport(t, 1, 1, 1024)
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "model needs reports"},
		{[]string{"run.json"}, "is not NAME=FILE"},
		{[]string{one}, "do not tell the costs apart"},
		{[]string{one, modelReport(t, 2, 1, 1024), modelReport(t, 3, 1, 1024), modelReport(t, 0, 1, 1024),
			modelReport(t, 1, 2, 1024)}, "do not tell the costs apart"}, // bodies of one size
		{[]string{one, strings.Replace(one, "=", "="+one[strings.Index(one, "=")+1:]+",", 1)}, "has 4 turns"},
		{[]string{"--batch", "0", one}, "--batch: at least 1"},
		{[]string{"--check", "x", one}, "is not NAME=FILE"},
	} {
		code, err := modelCommand(t.Context(), c.args, &bytes.Buffer{}, nil)
		require.ErrorContains(t, err, c.says)
		require.Equal(t, ExitUsage, code)
	}
}

func TestAModelHasNoNegativeCosts(t *testing.T) {
	// The best fit without the bound is 3 and -1.
	x, ok := leastSquares([][]float64{{1, 2}, {0.5, 0.5}, {0.4, 0.2}}, []float64{1, 1, 1})
	require.True(t, ok)
	for _, v := range x {
		require.GreaterOrEqual(t, v, 0.0)
	}
	require.Positive(t, x[0])
}
