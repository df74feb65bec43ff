package egress

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Dates as PHP, Python, Ruby, JavaScript, Java, Go and mail programs write them.
func TestARetryAfterIsADateInTheFormsThatServersSend(t *testing.T) {
	at := time.Date(2026, 1, 5, 15, 4, 5, 0, time.UTC)
	for _, text := range []string{
		"Mon, 05 Jan 2026 15:04:05 GMT", "Mon, 05 Jan 2026 15:04:05 +0000", "Mon, 5 Jan 2026 15:04:05 -0000",
		"Mon, 05 Jan 2026 16:04:05 +0100",
		"Mon, 05 Jan 2026 10:04:05 EST", "05 Jan 2026 15:04:05 UTC", "Mon, 05 Jan 2026 15:04:05 UT",
		"Mon, 05 Jan 2026 15:04:05", "Mon, 05 Jan 26 15:04:05 +0000",
		"Monday, 05-Jan-26 15:04:05 GMT", "Monday, 05-Jan-2026 15:04:05 UTC", "Mon, 05-Jan-2026 15:04:05 GMT",
		"Monday, 05-Jan-26 15:04:05 +0000",
		"Mon Jan  5 15:04:05 2026", "Mon Jan 5 2026 15:04:05 GMT+0000 (Coordinated Universal Time)",
		"Mon Jan 05 15:04:05 UTC 2026", "Mon Jan 5 15:04:05 +0000 2026",
		"2026-01-05T15:04:05Z", "2026-01-05T15:04:05.000Z", "2026-01-05T15:04:05+00:00", "2026-01-05T16:04:05+0100",
		"2026-01-05T15:04:05",
		"2026-01-05 15:04:05", "2026-01-05 15:04:05 UTC", "2026-01-05 15:04:05 +0000", "2026-01-05 15:04:05 +0000 UTC",
		"mon, 05 jan 2026 15:04:05 gmt",
	} {
		require.Equal(t, time.Minute, ParseRetryAfter(text, at.Add(-time.Minute), time.Hour), text)
		require.Zero(t, ParseRetryAfter(text, at.Add(time.Minute), time.Hour), text)
		require.Equal(t, time.Hour, ParseRetryAfter(text, at.AddDate(0, 0, -1), time.Hour), text)
	}
	for _, text := range []string{"", "soon", "Mon, 05 Jan 2026", "Mon, 35 Jan 2026 15:04:05 +0000", "05/01/2026 15:04:05",
		"Mon, 05 Jan 2026 15:04:05 XYZ", "-5", "1e3", "1,5", "NaN",
		strings.Repeat("Mon ", 1000), "2026-01-05T15:04:05Z2026", "(", "+00:00", "Z"} {
		require.EqualValues(t, -1, ParseRetryAfter(text, at, time.Hour), text)
	}
}

// What has one meaning is taken, however it is written; what has two, or none, is not.
func TestARetryAfterOfSecondsMayHaveAFractionAUnitOrQuotes(t *testing.T) {
	now := time.Date(2026, 1, 5, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"5.0": 5 * time.Second, "5.": 5 * time.Second, "4.2": 5 * time.Second, "0.001": time.Second, ".5": time.Second,
		"0.0": 0, "007": 7 * time.Second,
		"5s": 5 * time.Second, "5 s": 5 * time.Second, "5S": 5 * time.Second, "4.5s": 5 * time.Second,
		"5 sec": 5 * time.Second, "5 Seconds": 5 * time.Second, "1 second": time.Second,
		"1m": time.Minute, "1m30s": 90 * time.Second, "500ms": 500 * time.Millisecond, "1h": time.Hour, "1d": time.Hour,
		`"5"`: 5 * time.Second, `'5'`: 5 * time.Second, `" 5 "`: 5 * time.Second, `"5.0"`: 5 * time.Second,
		`"Mon, 05 Jan 2026 15:05:05 GMT"`: time.Minute,
		"3600.0":                          time.Hour, "3601.5": time.Hour, "1e": -1, strings.Repeat("9", 40) +
			".5s": time.Hour, "99999999999999h": -1,
		"5 10": -1, "5, 10": -1, "5;10": -1, "1.2.3": -1, ".": -1, "s": -1, `""`: -1, `"`: -1, `"5`: -1, `"5'`: -1, "-5s": -1,
		"-5.0": -1, "5 x": -1, "5 minutes ago": -1, "٥s": -1, "1_000": -1,
	} {
		require.Equal(t, want, ParseRetryAfter(text, now, time.Hour), text)
	}
}
