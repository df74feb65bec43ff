package policy

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The page for owners of consumers has the same table as answer.go: each status means what its
// row says.
func TestThePageSaysWhatAnAnswerMeans(t *testing.T) {
	page, err := os.ReadFile("../../../docs/delivery.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "## What an answer means\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(section, -1)
	require.Len(t, rows, 8, section) // with the head and the line under it

	some := installed
	some.RetryOn, err = parseRetryOn("404")
	require.NoError(t, err)
	means := map[int]string{}
	for _, row := range rows[2:] {
		for _, text := range regexp.MustCompile(`\b\d(\d\d|xx)\b`).FindAllString(row[1], -1) {
			first, last := statuses(t, text)
			for status := first; status <= last; status++ {
				means[status] += row[2] + "; "
			}
		}
		if row[1] == "another status" {
			for status := 400; status < 600; status++ {
				if means[status] == "" {
					means[status] = row[2]
				}
			}
		}
	}
	for status := 200; status < 600; status++ {
		text := means[status]
		all := installed.Judge(Answer{Status: status, Complete: true, RetryAfter: time.Second}, 1)
		named := some.Judge(Answer{Status: status, Complete: true, RetryAfter: time.Second}, 1)
		require.Equal(t, strings.Contains(text, "delivered"), all.Meaning == Delivered, "%d: %s", status, text)
		require.Equal(t, strings.Contains(text, "`GONE`"), all.Meaning == Gone, "%d: %s", status, text)
		require.Equal(t, strings.Contains(text, "no job of the consumer is sent"), all.Hold > 0, "%d: %s", status, text)
		if strings.Contains(text, "failure") || strings.Contains(text, "retried") {
			require.Equal(t, Retry, all.Meaning, "%d: %s", status, text)
			require.Equal(t, strings.Contains(text, "always retried") || status == 404, named.Meaning == Retry, "%d: %s",
				status, text)
			require.Equal(t, !strings.Contains(text, "always retried") && status != 404, named.Meaning == Rejected, "%d: %s",
				status, text)
		}
	}
	require.Contains(t, rows[len(rows)-2][1], "no complete answer")
	require.Equal(t, Retry, some.Judge(Answer{}, 1).Meaning)
}

// statuses are the first and the last of a code or a class.
func statuses(t *testing.T, text string) (first, last int) {
	if class, ok := strings.CutSuffix(text, "xx"); ok {
		n, err := strconv.Atoi(class)
		require.NoError(t, err)
		return n * 100, n*100 + 99
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n, n
}
