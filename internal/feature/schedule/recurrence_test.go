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
		"R3/2026-12-01T00:00:00+01:00/PT1H": {"2026-11-30T23:00:00Z", "2026-12-01T00:00:00Z", "2026-12-01T01:00:00Z"},
		"R1/2026-12-01T00:00:00Z/P1Y":       {"2026-12-01T00:00:00Z"},
		"R/2026-12-31T08:00:00Z/P1M": {"2026-12-31T08:00:00Z", "2027-01-31T08:00:00Z", "2027-02-28T08:00:00Z",
			"2027-03-31T08:00:00Z"},
		"R4/2028-02-29T00:00:00Z/P1Y": {"2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z", "2030-02-28T00:00:00Z",
			"2031-02-28T00:00:00Z"},
		"R3/2026-12-01T00:00:00Z/P1DT12H": {"2026-12-01T00:00:00Z", "2026-12-02T12:00:00Z", "2026-12-04T00:00:00Z"},
		"R2/2026-12-01T00:00:00Z/P2W":     {"2026-12-01T00:00:00Z", "2026-12-15T00:00:00Z"},
		"R3/2026-12-01T00:00:00.25Z/PT1.5S": {"2026-12-01T00:00:00.25Z", "2026-12-01T00:00:01.75Z",
			"2026-12-01T00:00:03.25Z"},
		"R2/2026-12-01T00:00:00Z/P1Y2M3DT4H": {"2026-12-01T00:00:00Z", "2028-02-04T04:00:00Z"},
		"cron:*/15 * * * *": {"2026-11-30T10:15:00Z", "2026-11-30T10:30:00Z", "2026-11-30T10:45:00Z",
			"2026-11-30T11:00:00Z"},
		"cron:7 10 * * *": {"2026-11-30T10:07:00Z", "2026-12-01T10:07:00Z"},
		"cron: 0 9 * * MON-FRI": {"2026-12-01T09:00:00Z", "2026-12-02T09:00:00Z", "2026-12-03T09:00:00Z",
			"2026-12-04T09:00:00Z", "2026-12-07T09:00:00Z"},
		"cron:0 0 29 2 *": {"2028-02-29T00:00:00Z"},
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
		"", "R", "R/", "R//", "R3", "R3/" + start, "R3//PT1H", "/" + start + "/PT1H", "3/" + start + "/PT1H",
		"r3/" + start + "/PT1H",
		"R0/" + start + "/PT1H", "R-1/" + start + "/PT1H", "R+1/" + start + "/PT1H", "R1000001/" + start + "/PT1H",
		"R99999999999999999999/" + start + "/PT1H",
		"R3/" + start + "/PT1H/x", "R3/" + start + "/" + start, "R3/2026-12-01/PT1H", "R3/2026-12-01T00:00:00/PT1H",
		"R3/0001-01-01T00:00:00Z/PT1H",
		"R3/2026-12-01T00:00:00,5Z/PT1H", "R3/2026-12-01T00:00:00+24:00/PT1H",
		"R3/" + start + "/", "R3/" + start + "/P", "R3/" + start + "/PT", "R3/" + start + "/PT0S", "R3/" + start + "/PT0.9S",
		"R3/" + start + "/PT0.5H",
		"R3/" + start + "/P1.5M", "R3/" + start + "/-PT1H", "R3/" + start + "/PT-1H", "R3/" + start + "/P11Y", "R3/" + start +
			"/PT" + strings.Repeat("9", 100) + "H",
		"R3/" + start + "/P" + strings.Repeat("9", 30) + "Y", "R3/" + start + "/PT1E3S", "R3/" + start + "/1H",
		"cron:", "cron:* * * *", "cron:* * * * * *", "cron:60 * * * *", "cron:*/0 * * * *", "cron:@hourly", "cron:TZ=UTC",
		"cron:TZ=UTC @hourly", "cron:TZ=UTC * * * *", "cron:0 0 31 2 *",
		"cron:tz=UTC * * * * *", "cron:TZ=UTC TZ=UTC * * * * *", "cron:* * * * * TZ=UTC", "cron:TZ= UTC * * * * *",
		"cron:TZ= * * * * *", "cron:XTZ=UTC * * * * *",
		"cron:TZ=Europe/Warszawa * * * * *", "cron:TZ=Local * * * * *", "cron:TZ=local * * * * *",
		"cron:TZ=localtime * * * * *", "cron:TZ=posixrules * * * * *",
		"cron:TZ=right/Europe/Warsaw * * * * *", "cron:TZ=posix/Europe/Warsaw * * * * *",
		"cron:TZ=../Europe/Warsaw * * * * *", "cron:TZ=Europe/../../etc/localtime * * * * *",
		"cron:TZ=/etc/localtime * * * * *", "cron:TZ=/Europe/Warsaw * * * * *", "cron:TZ=Europe\\Warsaw * * * * *",
		"cron:TZ=Europe * * * * *", "cron:TZ=zone.tab * * * * *",
		"cron:TZ=Europe/Warsaw\x00 * * * * *", "cron:TZ=" + strings.Repeat("x", 100) + " * * * * *",
		"cron:TZ=+02:00 * * * * *", "cron:TZ=Europe/Warsaw 0 0 31 2 *",
		"cron:a b c d e", "CRON:* * * * *", "* * * * *", strings.Repeat("R", 300), "cron:" + strings.Repeat("* ", 300),
	} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

// timesAfter returns the first times of a recurrence after one.
func timesAfter(t *testing.T, text, from string, n int) (all []string) {
	t.Helper()
	r, err := Parse(text)
	require.NoError(t, err, text)
	due := at(t, from)
	for len(all) < n {
		_, due, _ = r.Next(0, due, due)
		all = append(all, due.Format(time.RFC3339))
	}
	return all
}

// Where the clock of the zone changes, a message of a fixed time is sent once: in the gap when it is
// over, of two passes in the first. A table of every hour goes on at its pace.
func TestTimesOfAZone(t *testing.T) {
	for _, c := range []struct {
		text, from string
		want       []string
	}{
		{"cron:TZ=Europe/Warsaw 0 8 * * *", "2026-03-27T12:00:00Z", []string{"2026-03-28T07:00:00Z", "2026-03-29T06:00:00Z",
			"2026-03-30T06:00:00Z"}},
		{"cron:CRON_TZ=Europe/Warsaw 0 8 * * *", "2026-10-23T12:00:00Z", []string{"2026-10-24T06:00:00Z",
			"2026-10-25T07:00:00Z", "2026-10-26T07:00:00Z"}},
		{"cron:TZ=Asia/Kolkata 0 0 1 * *", "2026-01-15T00:00:00Z", []string{"2026-01-31T18:30:00Z", "2026-02-28T18:30:00Z"}},
		// 02:00 to 03:00 does not exist on 2026-03-29 and 2027-03-28.
		{"cron:TZ=Europe/Warsaw 30 2 * * *", "2026-03-28T00:00:00Z", []string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z",
			"2026-03-30T00:30:00Z"}},
		{"cron:TZ=Europe/Warsaw 30 2 * * *", "2027-03-27T00:00:00Z", []string{"2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z",
			"2027-03-29T00:30:00Z"}},
		{"cron:TZ=Europe/Warsaw 15,30 2,3 * * *", "2026-03-29T00:30:00Z", []string{"2026-03-29T01:00:00Z",
			"2026-03-29T01:15:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:15:00Z"}},
		{"cron:TZ=Europe/Warsaw 0 2,3 * * *", "2026-03-29T00:30:00Z", []string{"2026-03-29T01:00:00Z",
			"2026-03-30T00:00:00Z"}},
		{"cron:TZ=Europe/Warsaw */30 * * * *", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30:00Z",
			"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"}},
		{"cron:TZ=Europe/Warsaw 30 * * * *", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z",
			"2026-03-29T02:30:00Z"}},
		// 02:00 to 03:00 comes twice on 2026-10-25 and 2027-10-31.
		{"cron:TZ=Europe/Warsaw 30 2 * * *", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z",
			"2026-10-26T01:30:00Z"}},
		{"cron:TZ=Europe/Warsaw 30 2 * * *", "2027-10-30T12:00:00Z", []string{"2027-10-31T00:30:00Z",
			"2027-11-01T01:30:00Z"}},
		// from the second pass
		{"cron:TZ=Europe/Warsaw 30 2 * * *", "2026-10-25T01:10:00Z", []string{"2026-10-26T01:30:00Z"}},
		{"cron:TZ=Europe/Warsaw 0 2,3 * * *", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z",
			"2026-10-26T01:00:00Z"}},
		{"cron:TZ=Europe/Warsaw */15 * * * *", "2026-10-25T00:40:00Z", []string{"2026-10-25T00:45:00Z",
			"2026-10-25T01:00:00Z", "2026-10-25T01:15:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:45:00Z",
			"2026-10-25T02:00:00Z"}},
		{"cron:TZ=Europe/Warsaw 30 * * * *", "2026-10-25T00:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z",
			"2026-10-25T02:30:00Z"}},
		// Half an hour: 02:00 to 02:30 does not exist on 2026-10-04, 01:30 to 02:00 comes twice on 2026-04-05.
		{"cron:TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z",
			"2026-10-04T15:15:00Z"}},
		{"cron:TZ=Australia/Lord_Howe 30 2 * * *", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z",
			"2026-10-04T15:30:00Z"}},
		{"cron:TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45:00Z",
			"2026-04-05T15:15:00Z"}},
		{"cron:TZ=Australia/Lord_Howe */15 * * * *", "2026-04-04T14:30:00Z", []string{"2026-04-04T14:45:00Z",
			"2026-04-04T15:00:00Z", "2026-04-04T15:15:00Z", "2026-04-04T15:30:00Z"}},
		// Midnight that does not exist, and a day that does not.
		{"cron:TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00:00Z",
			"2018-11-05T02:00:00Z"}},
		{"cron:TZ=Pacific/Apia 0 9 30 12 *", "2011-12-01T00:00:00Z", []string{"2011-12-30T10:00:00Z",
			"2012-12-29T19:00:00Z"}},
	} {
		require.Equal(t, c.want, timesAfter(t, c.text, c.from, len(c.want)), "%s from %s", c.text, c.from)
	}
	r, err := Parse("cron:TZ=Europe/Warsaw 30 2 * * *")
	require.NoError(t, err)
	require.Equal(t, "2026-03-29T01:00:00Z", r.First(at(t, "2026-03-29T01:00:00Z")).Format(time.RFC3339),
		"the end of the gap itself")
}

// In every zone, a day by day table sends once for each day that the zone has, and one of each quarter
// of an hour every quarter of an hour.
func TestNoTimeOfAZoneIsSkippedOrDoubled(t *testing.T) {
	for _, zone := range []string{"Europe/Warsaw", "America/New_York", "Australia/Lord_Howe", "America/St_Johns",
		"Africa/Casablanca", "Pacific/Chatham", "Asia/Kathmandu", "Antarctica/Troll", "America/Santiago", "UTC"} {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, clock := range []string{"0 0", "30 2", "15 1", "59 23", "0 3"} {
			r, err := Parse("cron:TZ=" + zone + " " + clock + " * * *")
			require.NoError(t, err)
			due := at(t, "2026-01-01T12:00:00Z")
			day := due.In(loc).YearDay()
			if r.First(due).In(loc).YearDay() != day {
				day++
			}
			for range 700 {
				due = r.First(due.Add(time.Millisecond))
				require.Equal(t, time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly),
					due.In(loc).Format(time.DateOnly), "%s %s", zone, clock)
				day++
			}
		}
		r, err := Parse("cron:TZ=" + zone + " */15 * * * *")
		require.NoError(t, err)
		due := at(t, "2026-01-01T00:00:00Z")
		for range 2 * 366 * 96 {
			_, next, ok := r.Next(0, due, due)
			require.True(t, ok)
			if next.Sub(due) != 15*time.Minute {
				t.Fatalf("%s: %v after %v", zone, next, due)
			}
			due = next
		}
	}
}

// No text makes the parsers panic, and what they take has a next time.
func FuzzParse(f *testing.F) {
	f.Add("R5/2026-12-01T00:00:00Z/PT1H")
	f.Add("cron:*/5 1-3 1,2 * MON")
	f.Add("cron:TZ=Australia/Lord_Howe 30 2 5 4 *")
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
