package pages

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each measured number of the page about scale stands on the pages of measurements. What was divided from one is
// called an estimate.
func TestTheNumbersOfThePageAboutScaleAreMeasured(t *testing.T) {
	blanks := regexp.MustCompile(`\s+`)
	measured := blanks.ReplaceAllString(read(t, "docs/benchmarks.md")+read(t, "docs/tuning.md")+
		read(t, "docs/explain/where-the-time-goes.md"), " ")
	text := blanks.ReplaceAllString(read(t, "docs/explain/scale.md"), " ")
	text, model, _ := strings.Cut(text, "## A model")
	text = regexp.MustCompile(`as an estimate, \d[\d ]*`).ReplaceAllString(text, "")
	numbers := regexp.MustCompile(`\b\d{1,3}(?: \d{3})+\b|\b\d+\.\d+\b|\b\d+ (?:MB/s|MB|us)\b`).FindAllString(text, -1)
	require.Greater(t, len(numbers), 10)
	for _, n := range numbers {
		require.True(t, strings.Contains(measured, n) || strings.Contains(measured, strings.TrimSuffix(n, " us")), n)
	}
	require.Contains(t, text, "49.2 us of CPU in the broker, 28.5 in MariaDB, 7.7 in Redis")
	require.Contains(t, measured, "| the broker | 15 560 | 0.97 | 49.2 | 28.5 | 7.7 |")

	// The model predicts what it did not see within 20 %.
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(strings.ReplaceAll(text, " ", ""), 64)
		require.NoError(t, err)
		return n
	}
	rows := regexp.MustCompile(`\| (\d[\d ]+) \| (\d[\d ]+) \| (\d\.\d\d) \|`).FindAllStringSubmatch(model, -1)
	require.Len(t, rows, 6)
	for _, row := range rows {
		require.InDelta(t, 1, number(row[3]), 0.2, row[0])
		// The rates are medians of turns, and this is the median of their ratios.
		require.InDelta(t, number(row[2])/number(row[1]), number(row[3]), 0.1, row[0])
	}
}
