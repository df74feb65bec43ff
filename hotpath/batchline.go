package hotpath

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// A batchLine is one line of a batch publish, read. Absent members keep the
// values it had before.
type batchLine struct {
	messageID   string
	priority    int
	contentType string
	headers     map[string]string
	payload     []byte // its own memory
	hasPayload  bool
}

// errLine refuses a line that is not a JSON object of the known members.
var errLine = problem.New(400, "invalid_line",
	`A line must be a JSON object with "Payload" (a string) or "PayloadBase64", and optionally "MessageID", "Priority", "ContentType" and "Headers".`)

// parse reads a line. It is a JSON reader of its own because most of a line is
// one long string, which encoding/json walks three times; whatever is not plain
// is handed to that package. Unknown members are refused: a misspelt one would
// otherwise change what is delivered.
func (l *batchLine) parse(line []byte) error {
	r := lineReader{b: line}
	r.space()
	if !r.take('{') {
		return errLine
	}
	r.space()
	if r.take('}') {
		return errLine // no payload
	}
	for {
		name, err := r.text()
		if err != nil {
			return errLine
		}
		r.space()
		if !r.take(':') {
			return errLine
		}
		r.space()
		if err := l.member(string(name), &r); err != nil {
			return err
		}
		r.space()
		if r.take('}') {
			break
		}
		if !r.take(',') {
			return errLine
		}
		r.space()
	}
	if r.space(); r.at != len(r.b) || !l.hasPayload {
		return errLine
	}
	return nil
}

func (l *batchLine) member(name string, r *lineReader) error {
	if name != "Payload" && name != "PayloadBase64" && r.null() {
		return nil
	}
	switch name {
	case "Payload", "PayloadBase64":
		text, err := r.text()
		if err != nil || l.hasPayload {
			return errLine
		}
		l.hasPayload = true
		if name == "Payload" {
			if !utf8.Valid(text) {
				return problem.New(400, "invalid_payload", "Payload is not UTF-8: send such bytes as PayloadBase64.")
			}
			l.payload = append([]byte{}, text...)
			return nil
		}
		l.payload = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Strict().Decode(l.payload, text)
		if err != nil {
			return problem.New(400, "invalid_payload", "PayloadBase64 is not standard base64 with padding.")
		}
		l.payload = l.payload[:n]
	case "MessageID":
		text, err := r.text()
		if err != nil {
			return errLine
		}
		l.messageID = string(text)
		if l.messageID != "" && !ident.ValidName(l.messageID) {
			return errMessageID
		}
	case "ContentType":
		text, err := r.text()
		if err != nil {
			return errLine
		}
		l.contentType = string(text)
		return checkContentType(l.contentType)
	case "Priority":
		n, err := strconv.Atoi(string(r.scalar()))
		if err != nil || n < 0 || n > redisq.MaxPriority {
			return errPriority
		}
		l.priority = n
	case "Headers":
		raw, err := r.object()
		if err != nil || json.Unmarshal(raw, &l.headers) != nil {
			return problem.New(400, "invalid_metadata_headers", "Headers must be a JSON object of strings.")
		}
	default:
		return problem.Newf(400, "invalid_line", "A line has no member %q.", name)
	}
	return nil
}

// A lineReader reads JSON from memory.
type lineReader struct {
	b  []byte
	at int
}

var errSyntax = errors.New("hotpath: not JSON")

func (r *lineReader) space() {
	for r.at < len(r.b) && (r.b[r.at] == ' ' || r.b[r.at] == '\t' || r.b[r.at] == '\r' || r.b[r.at] == '\n') {
		r.at++
	}
}

func (r *lineReader) take(c byte) bool {
	if r.at < len(r.b) && r.b[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *lineReader) null() bool {
	if bytes.HasPrefix(r.b[r.at:], []byte("null")) {
		r.at += 4
		return true
	}
	return false
}

// text reads a string. The result is part of the line unless it had escapes.
func (r *lineReader) text() ([]byte, error) {
	if !r.take('"') {
		return nil, errSyntax
	}
	start := r.at
	end := bytes.IndexByte(r.b[start:], '"')
	if end < 0 {
		return nil, errSyntax
	}
	plain := r.b[start : start+end]
	if bytes.IndexByte(plain, '\\') < 0 {
		r.at = start + end + 1
		for _, c := range plain {
			if c < 0x20 {
				return nil, errSyntax
			}
		}
		return plain, nil
	}
	for i := start; i < len(r.b); i++ {
		switch r.b[i] {
		case '\\':
			i++
		case '"':
			raw := r.b[start-1 : i+1]
			if !utf8.Valid(raw) {
				return nil, errSyntax // encoding/json would replace what is no UTF-8
			}
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return nil, errSyntax
			}
			r.at = i + 1
			return []byte(text), nil
		}
	}
	return nil, errSyntax
}

// scalar reads up to the next delimiter.
func (r *lineReader) scalar() []byte {
	start := r.at
	for r.at < len(r.b) && bytes.IndexByte([]byte(",} \t\r\n"), r.b[r.at]) < 0 {
		r.at++
	}
	return r.b[start:r.at]
}

// object reads an object of strings as raw JSON.
func (r *lineReader) object() ([]byte, error) {
	start := r.at
	if !r.take('{') {
		return nil, errSyntax
	}
	for r.at < len(r.b) {
		switch r.b[r.at] {
		case '"':
			if _, err := r.text(); err != nil {
				return nil, err
			}
		case '}':
			r.at++
			return r.b[start:r.at], nil
		default:
			r.at++
		}
	}
	return nil, errSyntax
}
