package rawhttp

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrMalformed means that an answer is not valid HTTP/1.1.
var ErrMalformed = errors.New("rawhttp: malformed response")

// A head has the parsed fields of status line and headers.
type head struct {
	status  int
	length  int // of the body; lengthChunked, lengthUntilClose
	close   bool
	retry   int // seconds of Retry-After, 0 when absent or a date
	headers []byte
}

// Values of length for a head without a Content-Length.
const (
	lengthChunked    = -1
	lengthUntilClose = -2
)

// maxHeadBytes bounds status line and headers.
const maxHeadBytes = 64 << 10

var headEnd = []byte("\r\n\r\n")

// parseHead reads one head from the start of b. n is its length including the empty line, 0 if b
// does not contain the whole head yet.
func parseHead(b []byte) (h head, n int, err error) {
	end := bytes.Index(b, headEnd)
	if end < 0 {
		if len(b) > maxHeadBytes {
			return h, 0, ErrMalformed
		}
		return h, 0, nil
	}
	n = end + len(headEnd)
	var ok bool
	if h.status, ok = parseStatus(b[:end]); !ok {
		return h, 0, ErrMalformed
	}
	h.close = b[7] == '0'
	h.length = lengthUntilClose
	line := bytes.IndexByte(b[:n], '\n') + 1
	h.headers = b[line : end+2]
	seen := false
	for rest := h.headers; len(rest) > 0; {
		eol := bytes.IndexByte(rest, '\n')
		field := rest[:eol+1]
		rest = rest[eol+1:]
		name, value, ok := splitField(field)
		if !ok {
			return h, 0, ErrMalformed
		}
		switch {
		case foldEqual(name, "content-length"):
			length, ok := parseLength(value)
			if !ok || seen && length != h.length {
				return h, 0, ErrMalformed
			}
			seen = true
			if h.length != lengthChunked {
				h.length = length
			}
		case foldEqual(name, "transfer-encoding"):
			if !foldEqual(value, "chunked") {
				return h, 0, ErrMalformed
			}
			h.length = lengthChunked
		case foldEqual(name, "connection"):
			h.close = h.close && !foldEqual(value, "keep-alive") || foldEqual(value, "close")
		case foldEqual(name, "retry-after"):
			if s, err := strconv.Atoi(string(value)); err == nil && s > 0 {
				h.retry = min(s, 3600)
			}
		}
	}
	if seen && h.length == lengthChunked { // two lengths of one body: request smuggling
		return h, 0, ErrMalformed
	}
	if h.status < 200 || h.status == 204 || h.status == 304 {
		h.length = 0
	}
	return h, n, nil
}

// parseStatus reads the status of a head: HTTP/1.1 NNN, where the reason may be absent
// together with its space.
func parseStatus(b []byte) (status int, ok bool) {
	if len(b) < 12 || string(b[:7]) != "HTTP/1." || b[7] != '0' && b[7] != '1' || b[8] != ' ' {
		return 0, false
	}
	for _, c := range b[9:12] {
		if c < '0' || c > '9' {
			return 0, false
		}
		status = status*10 + int(c-'0')
	}
	return status, status >= 100 && (len(b) == 12 || b[12] == ' ' || b[12] == '\r')
}

// splitField cuts "name: value\r\n".
func splitField(field []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(field, ':')
	if colon < 1 || field[len(field)-1] != '\n' {
		return nil, nil, false
	}
	if c := field[colon-1]; c == ' ' || c == '\t' || field[0] == ' ' || field[0] == '\t' {
		return nil, nil, false
	}
	return field[:colon], bytes.TrimSpace(field[colon+1:]), true
}

// foldEqual compares with a lower-case name.
func foldEqual(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// parseLength reads a Content-Length: digits only, below a terabyte.
func parseLength(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 12 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
