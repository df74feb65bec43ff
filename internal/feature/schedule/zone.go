package schedule

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for machines and images without a zone database; 450 kB

	"github.com/robfig/cron/v3"
)

// A table has cron fields and the zone whose clock they are about.
//
// Where the clock of the zone is put forward, the times in the gap do not exist: a message of such a
// time is sent once, when the gap is over. Where the clock is put back, times exist twice. A table that
// names hours sends once, at the first of both. A table of every hour goes by the clock as it runs, so
// it sends in the second pass too: its messages are as far apart as on any other day.
type table struct {
	fields    *cron.SpecSchedule
	zone      *time.Location
	everyHour bool
}

// allHours are the bits of all hours in the field of hours.
const allHours = 1<<24 - 1

func newTable(fields *cron.SpecSchedule, zone *time.Location) *table {
	return &table{fields, zone, fields.Hour&allHours == allHours}
}

// next returns the first time of the table after another one, zero if there is none.
func (t *table) next(after time.Time) time.Time {
	at := after.In(t.zone)
	if t.everyHour {
		return t.nextRunning(at)
	}
	for shown := wallClock(at); ; {
		if shown = t.fields.Next(shown); shown.IsZero() {
			return shown
		}
		// In the second pass of the clock, the first one of these times may be over.
		if first := firstAt(shown, t.zone); first.After(after) {
			return first
		}
	}
}

// nextRunning is next for a table of every hour. It goes from change to change of the clock.
func (t *table) nextRunning(at time.Time) time.Time {
	for from := wallClock(at); ; from = wallClock(at).Add(-time.Nanosecond) { // the end of a change is one of its times
		shown := t.fields.Next(from)
		if shown.IsZero() {
			return shown
		}
		_, change := at.ZoneBounds()
		if next := at.Add(shown.Sub(wallClock(at))); change.IsZero() || next.Before(change) {
			return next.UTC()
		}
		at = change
	}
}

// wallClock returns what the clock shows at a time, as a time in UTC.
func wallClock(at time.Time) time.Time {
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

// firstAt returns the first time at which the clock of a zone shows something, and the end of the gap
// where it never does.
func firstAt(shown time.Time, zone *time.Location) time.Time {
	at := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, zone)
	start, end := at.ZoneBounds()
	switch now := wallClock(at); {
	case now.After(shown): // by the offset before the gap
		return start.UTC()
	case now.Before(shown): // by the offset after the gap
		return end.UTC()
	case start.IsZero():
		return at.UTC()
	}
	_, offset := at.Zone()
	_, before := start.Add(-time.Nanosecond).In(zone).Zone()
	if first := at.Add(time.Duration(offset-before) * time.Second); first.Before(start) {
		return first.UTC()
	}
	return at.UTC()
}

// maxZone bounds the name of a zone, bytes. The longest one is shorter by half.
const maxZone = 64

// parseZone reads a name of the IANA time zone database. Names that mean another zone on another
// machine, or with leap seconds, are none.
func parseZone(name string) (*time.Location, error) {
	known := name != "" && len(name) <= maxZone && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("/_+-", c)
	})
	for _, other := range []string{"local", "localtime", "posixrules"} {
		known = known && !strings.EqualFold(name, other)
	}
	for _, folder := range []string{"posix/", "right/"} {
		known = known && !strings.HasPrefix(strings.ToLower(name), folder)
	}
	if known {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, fmt.Errorf("there is no time zone %q; the names are those of the IANA database, such as Europe/Warsaw",
		strings.ToValidUTF8(name[:min(len(name), maxZone)], ""))
}
