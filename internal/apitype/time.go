package apitype

import "time"

// millis is RFC 3339 with milliseconds, the precision that the store keeps.
const millis = "2006-01-02T15:04:05.000Z07:00"

// A Time is a time in the JSON of messages and jobs: RFC 3339 in UTC, with milliseconds.
type Time struct{ time.Time }

// MarshalJSON writes t in UTC with milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(millis) + `"`), nil
}
