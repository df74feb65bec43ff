// Package coding knows the headers of HTTP that say what a payload is (RFC 9110, 8). It checks the
// value of a Content-Encoding and undoes it within bounds, whole or as a stream.
package coding

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// Header is the header with the codings of a payload, in the order in which they were applied.
const Header = "Content-Encoding"

// described are the headers that say what a payload is, besides its type and its codings: RFC 9110, 8;
// RFC 9530; RFC 6266.
var described = [...]string{"Content-Language", "Content-Location", "Content-Disposition", "Content-Digest",
	"Repr-Digest", "Content-MD5", "Digest"}

// Describes returns the usual spelling of the name of a header that describes a payload, "" for one
// that does not.
func Describes[T string | []byte](name T) string {
	if len(name) < len("Digest") || name[0]|0x20 != 'c' && name[0]|0x20 != 'r' && name[0]|0x20 != 'd' {
		return ""
	}
	for _, d := range described {
		if len(d) == len(name) && strings.EqualFold(d, string(name)) {
			return d
		}
	}
	return ""
}

// MostDecoded bounds what a filter, or a comparison, decodes of one payload, bytes.
const MostDecoded = 16 << 20

const (
	// maxValue is the longest value that is taken, bytes, and maxCodings the most codings that are
	// undone.
	maxValue   = 255
	maxCodings = 3
	// maxWindow is the window that a decoder of zstd must have, and need not exceed (RFC 9659).
	maxWindow = 8 << 20
)

// The errors of this package.
var (
	ErrSyntax   = errors.New("coding: the value must be a list of content codings of at most 255 bytes")
	ErrUnknown  = errors.New("coding: only gzip, deflate, br and zstd are decoded, at most three of them")
	ErrBroken   = errors.New("coding: the payload is not coded as its Content-Encoding says")
	ErrTooLarge = errors.New("coding: the decoded payload is too large")
)

// Clean returns a value of Content-Encoding without blanks, empty elements and identity, which is no
// coding: "" where nothing is left. The error is ErrSyntax.
func Clean(value string) (string, error) {
	if len(value) > maxValue {
		return "", ErrSyntax
	}
	var codings []string
	for part := range strings.SplitSeq(value, ",") {
		switch part = strings.Trim(part, " \t"); {
		case part == "" || strings.EqualFold(part, "identity"):
		case !isToken(part):
			return "", ErrSyntax
		default:
			codings = append(codings, part)
		}
	}
	return strings.Join(codings, ", "), nil
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// Decode undoes the codings of a value that Clean returned. Neither the result nor what it is made of
// has more than most bytes: beyond that the error is ErrTooLarge. The other errors are ErrUnknown and
// ErrBroken.
func Decode(value string, body []byte, most int) ([]byte, error) {
	if value == "" {
		return body, nil
	}
	r, err := NewReader(value, bytes.NewReader(body), int64(most))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
