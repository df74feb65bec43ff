package apitype

import (
	"errors"
	"regexp"
	"time"
)

// millis is RFC 3339 with milliseconds, the precision that the store keeps.
const millis = "2006-01-02T15:04:05.000Z07:00"

// A Time is a time in the JSON of messages and jobs: RFC 3339 in UTC, with milliseconds.
type Time struct{ time.Time }

// MarshalJSON writes t in UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(millis) + `"`), nil
}

// rfc3339 is the form of RFC 3339. time.Parse also takes a decimal comma, an hour of one digit and
// offsets of a day.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

var errTime = errors.New("no RFC 3339 time")

// ParseTime reads a time of a request: RFC 3339, with capital letters and an offset.
func ParseTime(text string) (time.Time, error) {
	if !rfc3339.MatchString(text) {
		return time.Time{}, errTime
	}
	return time.Parse(time.RFC3339Nano, text)
}
