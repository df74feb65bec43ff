package rawhttp

import "strconv"

// A Template is the part of a request that does not change: everything before
// Content-Length. It may be used by many goroutines.
type Template struct{ head []byte }

// NewTemplate prepares requests to a path. fields are names and values in turn; they must not
// contain CR or LF.
func NewTemplate(method, path, host string, fields ...string) *Template {
	b := make([]byte, 0, 256)
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	for i := 0; i+1 < len(fields); i += 2 {
		b = append(b, fields[i]...)
		b = append(b, ": "...)
		b = append(b, fields[i+1]...)
		b = append(b, "\r\n"...)
	}
	return &Template{head: b}
}

// AppendHead appends the unchanging part to b; further fields may follow.
func (t *Template) AppendHead(b []byte) []byte { return append(b, t.head...) }

// AppendField appends one header field.
func AppendField(b []byte, name string, value []byte) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// AppendLength ends the headers; the body of that many bytes must follow.
func AppendLength(b []byte, bodyBytes int) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(bodyBytes), 10)
	return append(b, "\r\n\r\n"...)
}

// AppendEnd ends the headers of a request without a body.
func AppendEnd(b []byte) []byte { return append(b, "\r\n"...) }
