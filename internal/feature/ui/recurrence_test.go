package ui

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAScheduleIsSaidInWords(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "cron:0 8 * * *": "each day at 08:00 UTC", "cron:30 9 * * 1-5": "Monday to Friday at 09:30 UTC",
		"cron:TZ=Europe/Warsaw 5 23 * * 0":      "each Sunday at 23:05 in Europe/Warsaw",
		"cron:CRON_TZ=Europe/Warsaw 5 23 * * *": "each day at 23:05 in Europe/Warsaw",
		"cron:* * * * *":                        "each minute", "cron:*/15 * * * *": "each 15 minutes",
		"cron:7 * * * *":               "each hour at minute 7",
		"cron:0 0 1 * *":               "on day 1 of each month at 00:00 UTC",
		"R5/2026-12-01T00:00:00Z/PT1H": "5 times, each PT1H from 2026-12-01T00:00:00Z",
		"R/2026-12-01T00:00:00Z/P1D":   "each P1D from 2026-12-01T00:00:00Z, without end",
		"cron:*/7 * * * *":             "cron:*/7 * * * *", // not each 7 minutes: the hour ends it
		"cron:0 8 1 * 1":               "cron:0 8 1 * 1",
		"cron:0 8 * 2 *":               "cron:0 8 * 2 *",
		"cron:0 8 * * 5-1":             "cron:0 8 * * 5-1",
		"cron:0 +8 * * *":              "cron:0 +8 * * *",
		"cron:TZ=Europe/Warsaw":        "cron:TZ=Europe/Warsaw",
		"cron:0,30 8 * * *":            "cron:0,30 8 * * *",
		"something else <b>":           "something else <b>",
	} {
		require.Equal(t, want, recurs(text), text)
	}
}
