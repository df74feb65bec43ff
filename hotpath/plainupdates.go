package hotpath

import (
	"bytes"
	"strconv"
)

// plainUpdates reads the body of a batch update that is written as nearly all of
// them are: members by their exact names, texts of ASCII without escapes, whole
// numbers, no member twice. ok is false for everything else, right or wrong:
// encoding/json, which takes about seven times as long, judges that.
func plainUpdates(body []byte) (updates []update, ok bool) {
	r := lineReader{b: body}
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

// ends reads the end of the object around the updates.
func (r *lineReader) ends() bool {
	if !r.token('}') {
		return false
	}
	r.space()
	return r.at == len(r.b)
}

func (r *lineReader) plainUpdate() (u update, ok bool) {
	if !r.token('{') {
		return u, false
	}
	for seen := 0; ; {
		name := r.name()
		r.space()
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

// token skips white space and takes c.
func (r *lineReader) token(c byte) bool {
	r.space()
	return r.take(c)
}

// name reads the name of a member and the colon; "" when there is none.
func (r *lineReader) name() string {
	r.space()
	name, ok := r.ascii()
	if !ok || !r.token(':') {
		return ""
	}
	return name
}

// ascii reads a string of printable ASCII without escapes.
func (r *lineReader) ascii() (string, bool) {
	if !r.take('"') {
		return "", false
	}
	for i := r.at; i < len(r.b); i++ {
		switch c := r.b[i]; {
		case c == '"':
			text := r.b[r.at:i]
			r.at = i + 1
			return known(text), true
		case c < 0x20 || c >= 0x7f || c == '\\':
			return "", false
		}
	}
	return "", false
}

// known saves the memory of texts that come again and again.
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
func (r *lineReader) whole() (int64, bool) {
	start := r.at
	for r.at < len(r.b) && '0' <= r.b[r.at] && r.b[r.at] <= '9' {
		r.at++
	}
	digits := r.b[start:r.at]
	if len(digits) == 0 || len(digits) > 18 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}
