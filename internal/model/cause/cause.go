// Package cause tells whether two failures have the same cause: it reduces a failure to a text without
// what differs from one job to the next, and the text to 64 bits, the fingerprint.
package cause

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// A Fingerprint is the cause of a failure. It is stored as it is.
type Fingerprint int64

// Other is the fingerprint of dead letters that have none of their own: they died before there were
// fingerprints, or when their consumer had too many groups already.
const Other Fingerprint = 0

const other = "other"

// String is the fingerprint as clients see it: 16 hexadecimal digits, or "other".
func (f Fingerprint) String() string {
	if f == Other {
		return other
	}
	text := strconv.FormatUint(uint64(f), 16)
	return strings.Repeat("0", 16-len(text)) + text
}

// Parse reads what String returns.
func Parse(text string) (f Fingerprint, ok bool) {
	if text == other {
		return Other, true
	}
	n, err := strconv.ParseUint(text, 16, 64)
	return Fingerprint(n), err == nil && len(text) == 16 && n != 0
}

// The kinds of failures that have no name of their own.
const (
	Answered = "answered" // the consumer answered
	Failed   = "failed"   // it did not, or a worker reported the failure
)

// Of returns the fingerprint of a failure: of its kind, the HTTP status, 0 for none, and the text of
// the error. It does not change with releases: dead letters keep theirs.
func Of(kind string, status int, text string) Fingerprint {
	h := fnv.New64a()
	for _, part := range []string{kind, strconv.Itoa(status), Normal(text)} {
		_, _ = h.Write(append([]byte(part), 0))
	}
	if f := Fingerprint(h.Sum64()); f != Other {
		return f
	}
	return 1
}

// OfAttempt is Of for a failed attempt.
func OfAttempt(status int, text string) Fingerprint {
	if status == 0 {
		return Of(Failed, status, text)
	}
	return Of(Answered, status, text)
}
