package pull

import (
	"bytes"
	"strconv"

	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// plainUpdates is the fast parser for the usual form of a batch update: exact member names, ASCII
// strings without escapes, whole numbers, no repeated member. ok is false for any other body, valid
// or not. anyUpdates, which takes about four times as long, then reads it.
func plainUpdates(body []byte) (updates []update, ok bool) {
	r := plainReader{jsontext.Cursor{Text: body}}
	if !r.token('{') || r.name() != "Updates" || !r.token('[') {
		return nil, false
	}
	updates = make([]update, 0, min(bytes.Count(body, []byte{'{'}), maxUpdates+1))
	if r.token(']') {
		return updates, r.ends()
	}
	for {
		u, ok := r.plainUpdate()
		if !ok || len(updates) > maxUpdates {
			return nil, false
		}
		updates = append(updates, u)
		if r.token(']') {
			return updates, r.ends()
		}
		if !r.token(',') {
			return nil, false
		}
	}
}

// A plainReader reads the tokens of a usual batch update.
type plainReader struct{ jsontext.Cursor }

// ends reads the end of the enclosing object and of the body.
func (r *plainReader) ends() bool {
	if !r.token('}') {
		return false
	}
	return r.Ends()
}

func (r *plainReader) plainUpdate() (u update, ok bool) {
	if !r.token('{') {
		return u, false
	}
	for seen := 0; ; {
		name := r.name()
		r.Space()
		member := 0
		switch name {
		case "ID":
			member = 1
			u.ID, ok = r.ascii()
		case "Lease":
			member = 2
			u.Lease, ok = r.ascii()
		case "NextState":
			member = 4
			u.NextState, ok = r.ascii()
		case "IncrementalTimeout":
			member = 8
			u.IncrementalTimeout, ok = r.whole()
		case "Timeout":
			member = 32
			u.Timeout, ok = r.whole()
		case "Delay":
			member = 16
			u.Delay, ok = r.whole()
		default:
			return u, false
		}
		if !ok || seen&member != 0 {
			return u, false
		}
		seen |= member
		if r.token('}') {
			return u, true
		}
		if !r.token(',') {
			return u, false
		}
	}
}

// token skips white space and takes c if it is next.
func (r *plainReader) token(c byte) bool {
	r.Space()
	return r.Take(c)
}

// name reads a member name and its colon. It returns "" if there is none.
func (r *plainReader) name() string {
	r.Space()
	name, ok := r.ascii()
	if !ok || !r.token(':') {
		return ""
	}
	return name
}

// ascii reads a string of printable ASCII without escapes.
func (r *plainReader) ascii() (string, bool) {
	if !r.Take('"') {
		return "", false
	}
	for i := r.At; i < len(r.Text); i++ {
		switch c := r.Text[i]; {
		case c == '"':
			text := r.Text[r.At:i]
			r.At = i + 1
			return known(text), true
		case c < 0x20 || c >= 0x7f || c == '\\':
			return "", false
		}
	}
	return "", false
}

// known returns a constant for frequent texts, which saves an allocation.
func known(b []byte) string {
	switch string(b) {
	case "ID":
		return "ID"
	case "Lease":
		return "Lease"
	case "NextState":
		return "NextState"
	case "DELIVERED":
		return "DELIVERED"
	}
	return string(b)
}

// whole reads a number of up to 18 digits without sign, fraction or exponent.
func (r *plainReader) whole() (int64, bool) {
	start := r.At
	for r.At < len(r.Text) && '0' <= r.Text[r.At] && r.Text[r.At] <= '9' {
		r.At++
	}
	digits := r.Text[start:r.At]
	if len(digits) == 0 || len(digits) > 18 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}
