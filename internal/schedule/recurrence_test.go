package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return v
}

// times returns the first times of a recurrence that a broker serves without delay.
func times(t *testing.T, text string, n int) (all []string) {
	t.Helper()
	r, err := Parse(text)
	require.NoError(t, err, text)
	no, due, ok := 0, r.First(at(t, "2026-11-30T10:07:00Z")), true
	for ok && len(all) < n {
		all = append(all, due.UTC().Format(time.RFC3339Nano))
		no, due, ok = r.Next(no, due, due.Add(5*time.Millisecond))
	}
	return all
}

func TestTimesOfARecurrence(t *testing.T) {
	for text, want := range map[string][]string{
		"R3/2026-12-01T00:00:00+01:00/PT1H":  {"2026-11-30T23:00:00Z", "2026-12-01T00:00:00Z", "2026-12-01T01:00:00Z"},
		"R1/2026-12-01T00:00:00Z/P1Y":        {"2026-12-01T00:00:00Z"},
		"R/2026-12-31T08:00:00Z/P1M":         {"2026-12-31T08:00:00Z", "2027-01-31T08:00:00Z", "2027-02-28T08:00:00Z", "2027-03-31T08:00:00Z"},
		"R4/2028-02-29T00:00:00Z/P1Y":        {"2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z", "2030-02-28T00:00:00Z", "2031-02-28T00:00:00Z"},
		"R3/2026-12-01T00:00:00Z/P1DT12H":    {"2026-12-01T00:00:00Z", "2026-12-02T12:00:00Z", "2026-12-04T00:00:00Z"},
		"R2/2026-12-01T00:00:00Z/P2W":        {"2026-12-01T00:00:00Z", "2026-12-15T00:00:00Z"},
		"R3/2026-12-01T00:00:00.25Z/PT1.5S":  {"2026-12-01T00:00:00.25Z", "2026-12-01T00:00:01.75Z", "2026-12-01T00:00:03.25Z"},
		"R2/2026-12-01T00:00:00Z/P1Y2M3DT4H": {"2026-12-01T00:00:00Z", "2028-02-04T04:00:00Z"},
		"cron:*/15 * * * *":                  {"2026-11-30T10:15:00Z", "2026-11-30T10:30:00Z", "2026-11-30T10:45:00Z", "2026-11-30T11:00:00Z"},
		"cron:7 10 * * *":                    {"2026-11-30T10:07:00Z", "2026-12-01T10:07:00Z"},
		"cron: 0 9 * * MON-FRI":              {"2026-12-01T09:00:00Z", "2026-12-02T09:00:00Z", "2026-12-03T09:00:00Z", "2026-12-04T09:00:00Z", "2026-12-07T09:00:00Z"},
		"cron:0 0 29 2 *":                    {"2028-02-29T00:00:00Z"},
	} {
		require.Equal(t, want, times(t, text, max(len(want), 1)), text)
	}
	require.Len(t, times(t, "R3/2026-12-01T00:00:00Z/PT1H", 10), 3)
}

func TestMissedTimes(t *testing.T) {
	now := at(t, "2026-12-01T10:30:00Z")
	for text, want := range map[string]struct {
		no   int
		next string
	}{
		"R100/2026-12-01T00:00:00Z/PT1H": {1, "2026-12-01T01:00:00Z"}, // all are sent
		"R/2026-12-01T00:00:00Z/PT1H":    {11, "2026-12-01T11:00:00Z"},
		"R/2026-12-01T00:00:00Z/PT1S":    {37801, "2026-12-01T10:30:01Z"},
		"R/2010-01-31T00:00:00Z/P1M":     {203, "2026-12-31T00:00:00Z"},
	} {
		r, err := Parse(text)
		require.NoError(t, err)
		no, next, ok := r.Next(0, r.First(now), now)
		require.True(t, ok)
		require.Equal(t, want.no, no, text)
		require.Equal(t, want.next, next.Format(time.RFC3339Nano), text)
	}
	r, err := Parse("cron:0 * * * *")
	require.NoError(t, err)
	_, next, ok := r.Next(4, at(t, "2026-12-01T03:00:00Z"), now)
	require.True(t, ok)
	require.Equal(t, "2026-12-01T11:00:00Z", next.Format(time.RFC3339))
}

func TestTextsThatAreNoRecurrence(t *testing.T) {
	const start = "2026-12-01T00:00:00Z"
	for _, text := range []string{
		"", "R", "R/", "R//", "R3", "R3/" + start, "R3//PT1H", "/" + start + "/PT1H", "3/" + start + "/PT1H", "r3/" + start + "/PT1H",
		"R0/" + start + "/PT1H", "R-1/" + start + "/PT1H", "R+1/" + start + "/PT1H", "R1000001/" + start + "/PT1H", "R99999999999999999999/" + start + "/PT1H",
		"R3/" + start + "/PT1H/x", "R3/" + start + "/" + start, "R3/2026-12-01/PT1H", "R3/2026-12-01T00:00:00/PT1H", "R3/0001-01-01T00:00:00Z/PT1H",
		"R3/2026-12-01T00:00:00,5Z/PT1H", "R3/2026-12-01T00:00:00+24:00/PT1H",
		"R3/" + start + "/", "R3/" + start + "/P", "R3/" + start + "/PT", "R3/" + start + "/PT0S", "R3/" + start + "/PT0.9S", "R3/" + start + "/PT0.5H",
		"R3/" + start + "/P1.5M", "R3/" + start + "/-PT1H", "R3/" + start + "/PT-1H", "R3/" + start + "/P11Y", "R3/" + start + "/PT" + strings.Repeat("9", 100) + "H",
		"R3/" + start + "/P" + strings.Repeat("9", 30) + "Y", "R3/" + start + "/PT1E3S", "R3/" + start + "/1H",
		"cron:", "cron:* * * *", "cron:* * * * * *", "cron:60 * * * *", "cron:*/0 * * * *", "cron:@hourly", "cron:TZ=UTC", "cron:CRON_TZ=UTC * * * * *", "cron:0 0 31 2 *",
		"cron:a b c d e", "CRON:* * * * *", "* * * * *", strings.Repeat("R", 300), "cron:" + strings.Repeat("* ", 300),
	} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

// No text makes the parsers panic, and what they take has a next time.
func FuzzParse(f *testing.F) {
	f.Add("R5/2026-12-01T00:00:00Z/PT1H")
	f.Add("cron:*/5 1-3 1,2 * MON")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
		due := r.First(now)
		if _, next, ok := r.Next(0, due, now); ok && !next.After(due) {
			t.Fatalf("%q: %v is not after %v", text, next, due)
		}
	})
}
