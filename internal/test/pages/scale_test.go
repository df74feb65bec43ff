package pages

import (
	"regexp"
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
	text, _, _ = strings.Cut(text, "## Measure yours")
	text = regexp.MustCompile(`as an estimate, \d[\d ]*`).ReplaceAllString(text, "")
	numbers := regexp.MustCompile(`\b\d{1,3}(?: \d{3})+\b|\b\d+\.\d+\b|\b\d+ (?:MB/s|MB|us)\b`).FindAllString(text, -1)
	require.Greater(t, len(numbers), 10)
	for _, n := range numbers {
		require.True(t, strings.Contains(measured, n) || strings.Contains(measured, strings.TrimSuffix(n, " us")), n)
	}
	require.Contains(t, text, "49.2 us of CPU in the broker, 28.5 in MariaDB, 7.7 in Redis")
	require.Contains(t, measured, "| the broker | 15 560 | 0.97 | 49.2 | 28.5 | 7.7 |")
}
