package schedule

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/sosodev/duration"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Bounds of a recurrence.
const (
	// MaxText is the longest text of a recurrence, bytes.
	MaxText = 255
	// MaxCount is the largest number of messages of a recurrence that has one.
	MaxCount = 1_000_000
	// shortest is the shortest interval of a recurrence.
	shortest = time.Second
	// Horizon is how far ahead the first message, and the next one, may be.
	Horizon = 10 * 366 * 24 * time.Hour
)

const cronPrefix = "cron:"

// The reasons why a text is no recurrence.
var (
	errForm = errors.New("it must be R with a count or none, start and duration, such as " +
		"R5/2026-12-01T00:00:00Z/PT1H, or cron: with five fields")
	errCount    = errors.New("its count must be from 1 to " + strconv.Itoa(MaxCount) + ", or absent")
	errStart    = errors.New("its start must be an RFC 3339 time with an offset, from 1970 on")
	errDuration = errors.New("its duration must be an ISO 8601 duration in whole units, of which only the seconds may " +
		"have a fraction")
	errInterval = errors.New("its interval must be from 1 s to ten years")
	errCron     = errors.New("cron: must have five fields, in UTC or after TZ= with a zone and a blank: minute 0-59, " +
		"hour 0-23, day of month 1-31, month 1-12, day of week 0-6 from Sunday on")
	errNever = errors.New("the time of its fields never comes")
)

// A Recurrence says when the messages of one schedule are due. It is immutable.
type Recurrence struct {
	start time.Time
	every interval
	count int    // 0: without end
	cron  *table // nil: start and every count
}

// An interval has calendar units apart from exact time: a month has no fixed length.
type interval struct {
	months, days int
	exact        time.Duration
}

// Parse reads a repeating interval of ISO 8601 or, after "cron:", the five fields of a cron table.
func Parse(text string) (*Recurrence, error) {
	if len(text) > MaxText {
		return nil, errForm
	}
	if fields, ok := strings.CutPrefix(text, cronPrefix); ok {
		return parseCron(fields)
	}
	return parseInterval(text)
}

// parseCron reads the fields, with the zone before them: TZ= or CRON_TZ=, as the tables of cron have it.
func parseCron(text string) (*Recurrence, error) {
	fields, zone := strings.Fields(text), time.UTC
	if len(fields) > 0 {
		name, ok := strings.CutPrefix(strings.TrimPrefix(fields[0], "CRON_"), "TZ=")
		if ok {
			var err error
			if zone, err = parseZone(name); err != nil {
				return nil, err
			}
			fields = fields[1:]
		}
	}
	if len(fields) != 5 || strings.ContainsRune(strings.Join(fields, ""), '=') { // the parser knows TZ= in any field
		return nil, errCron
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(fields,
		" "))
	if err != nil {
		return nil, errCron
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, errCron
	}
	spec.Location = time.UTC // of the clock that the table reads
	if spec.Next(time.Now().UTC()).IsZero() {
		return nil, errNever
	}
	return &Recurrence{cron: newTable(spec, zone)}, nil
}

func parseInterval(text string) (*Recurrence, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "R") {
		return nil, errForm
	}
	r := &Recurrence{}
	if digits := parts[0][1:]; digits != "" {
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil || n < 1 || n > MaxCount {
			return nil, errCount
		}
		r.count = int(n)
	}
	start, err := apitype.ParseTime(parts[1])
	if err != nil || start.Year() < 1970 || start.Year() > 9999 {
		return nil, errStart
	}
	r.start = start.UTC().Truncate(time.Millisecond)
	if r.every, err = parseDuration(parts[2]); err != nil {
		return nil, err
	}
	if d := r.at(1).Sub(r.start); d < shortest || d > Horizon {
		return nil, errInterval
	}
	return r, nil
}

func parseDuration(text string) (interval, error) {
	d, err := duration.Parse(text)
	if err != nil || d.Negative || strings.ContainsAny(text, "+-eE") {
		return interval{}, errDuration
	}
	for _, whole := range []float64{d.Years, d.Months, d.Weeks, d.Days, d.Hours, d.Minutes} {
		if whole != math.Trunc(whole) {
			return interval{}, errDuration
		}
	}
	for _, of := range []float64{d.Years * 12, d.Months, d.Weeks * 7, d.Days, d.Hours / 24, d.Minutes / 1440,
		d.Seconds / 86400} {
		if !(of <= Horizon.Hours()/24) { // also not a number
			return interval{}, errInterval
		}
	}
	exact := time.Duration(d.Hours)*time.Hour + time.Duration(d.Minutes)*time.Minute +
		time.Duration(math.Round(d.Seconds*1000))*time.Millisecond
	return interval{months: int(d.Years)*12 + int(d.Months), days: int(d.Weeks)*7 + int(d.Days), exact: exact}, nil
}

// at returns the time of message n of an interval, from 0. The day of a month that the month does
// not have is its last day; the next month has the day of the start again.
func (r *Recurrence) at(n int) time.Time {
	t := r.start
	if r.every.months != 0 {
		first := time.Date(t.Year(), t.Month()+time.Month(n*r.every.months), 1, t.Hour(), t.Minute(), t.Second(),
			t.Nanosecond(), time.UTC)
		last := first.AddDate(0, 1, -1).Day()
		t = first.AddDate(0, 0, min(t.Day(), last)-1)
	}
	return t.AddDate(0, 0, n*r.every.days).Add(time.Duration(n) * r.every.exact)
}

// First returns the time of the first message. Of cron fields it is the first one from a time on.
func (r *Recurrence) First(from time.Time) time.Time {
	if r.cron != nil {
		return r.cron.next(from.UTC().Add(-time.Nanosecond))
	}
	return r.start
}

// Cron reports whether there is a recurrence, and it has cron fields and no start of its own.
func (r *Recurrence) Cron() bool { return r != nil && r.cron != nil }

// Next returns number and time of the message after message no, which was due at a time. ok is
// false after the last one. Messages that were missed are all sent where the recurrence has a
// count. Without a count the next one is in the future: those in between are left out.
func (r *Recurrence) Next(no int, due, now time.Time) (nextNo int, next time.Time, ok bool) {
	nextNo = no + 1
	switch {
	case r.cron != nil:
		if now.After(due) {
			due = now
		}
		next = r.cron.next(due)
		return nextNo, next, !next.IsZero()
	case r.count > 0:
		if nextNo >= r.count {
			return 0, time.Time{}, false
		}
	default:
		nextNo = r.after(nextNo, now)
	}
	next = r.at(nextNo)
	return nextNo, next, next.Year() <= 9999
}

// after returns the number of the first message from n on that is due after now.
func (r *Recurrence) after(n int, now time.Time) int {
	if r.every.months == 0 { // each day of UTC has 24 hours
		step := time.Duration(r.every.days)*24*time.Hour + r.every.exact
		n = max(n, int(now.Sub(r.start)/step))
	}
	for !r.at(n).After(now) {
		n++
	}
	return n
}
