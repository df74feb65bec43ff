package accept

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/jsontext"
	"github.com/penstock-broker/penstock/internal/problem"
)

// A batchLine is one parsed line of a batch publish. Parsing leaves the fields of absent members
// unchanged.
type batchLine struct {
	messageID   string
	priority    int
	ttlMs       int64
	contentType string
	encoding    string // of the payload, as cleanCoding returns it
	orderingKey string
	headers     map[string]string
	consumers   []string // nil: not given
	times       times
	ownAt       bool   // the line has a ScheduledFor
	ownDelay    bool   // the line has a Delay
	payload     []byte // its own memory
	hasPayload  bool
}

// The refusals of a malformed line.
var (
	errLine = problem.New(400, "invalid_line",
		`A line must be a JSON object with "Payload" (a string) or "PayloadBase64", and optionally "MessageID", "Priority", "TTL", "ContentType", "ContentEncoding", "OrderingKey", "ScheduledFor", "Delay", "Recurrence", "Consumers" and "Headers".`)
	errSurrogate = problem.New(400, "invalid_line", `A string of the line holds half of a surrogate pair (\ud800 to \udfff), which is no character.`)
	errLineText  = problem.New(400, "invalid_line", "A string of the line is not UTF-8.")
	errRepeated  = problem.New(400, "invalid_line", "The line has a member twice.")

	errPayloadText   = problem.New(400, "invalid_payload", "Payload is not UTF-8: send such bytes as PayloadBase64.")
	errPayloadBase64 = problem.New(400, "invalid_payload", "PayloadBase64 is not standard base64 with padding.")
	errLineHeaders   = problem.New(400, "invalid_metadata_headers", "Headers must be a JSON object of strings.")
	errLineConsumers = problem.New(400, "invalid_consumers", "Consumers must be a JSON array with IDs of consumers.")
	errHeaderTwice   = problem.New(400, "invalid_metadata_headers", "Headers has a name twice; upper and lower case are the same there.")
)

// reservedHeader is the refusal of a header that a line must not have.
func reservedHeader(name string) error {
	return problem.Newf(400, "invalid_metadata_headers",
		"Headers has the name %.*q, which belongs to the broker, to the connection or to credentials; priority, message ID, content type and content encoding are members of the line.", longestQuote, name)
}

// longestQuote is the number of bytes of an unknown name that a refusal quotes.
const longestQuote = 64

// parse reads a line. It has its own JSON reader because most of a line is one long string, which
// encoding/json reads three times. Only strings with escapes go to that package. Input that other
// JSON readers may interpret differently is refused: an unknown or repeated member, or half of a
// surrogate pair.
func (l *batchLine) parse(line []byte) error {
	r := readerOf(line)
	seen := members(0)
	err := r.object(errLine, func(name []byte) error { return l.member(name, &r, &seen) })
	if err != nil {
		return err
	}
	if !r.Ends() || !l.hasPayload {
		return errLine
	}
	return nil
}

// members is a set of the members of a line.
type members uint16

// add adds a member and reports whether it was absent before.
func (m *members) add(no int) bool {
	was := *m
	*m |= 1 << no
	return was != *m
}

// lineMembers are the members of a line; a member's number is its index.
var lineMembers = [...]string{"Payload", "PayloadBase64", "MessageID", "ContentType", "Priority", "Headers", "TTL", "OrderingKey", "ScheduledFor", "Recurrence", "Consumers", "ContentEncoding", "Delay"}

func (l *batchLine) member(name []byte, r *lineReader, seen *members) error {
	no := 0
	for no < len(lineMembers) && lineMembers[no] != string(name) {
		no++
	}
	switch {
	case no == len(lineMembers):
		return unknownMember(string(name))
	case !seen.add(no):
		return errRepeated
	case no > 1 && r.null():
		return nil
	}
	var err error
	switch lineMembers[no] {
	case "Payload", "PayloadBase64":
		if l.hasPayload {
			return errLine
		}
		l.hasPayload = true
		l.payload, err = r.payload(no == 1)
	case "MessageID":
		if l.messageID, err = r.word(); err == nil && l.messageID != "" {
			err = checkID(l.messageID)
		}
	case "ContentType":
		if l.contentType, err = r.word(); err == nil {
			err = checkContentType(l.contentType)
		}
	case "ContentEncoding":
		if l.encoding, err = r.word(); err == nil {
			l.encoding, err = cleanCoding(l.encoding)
		}
	case "OrderingKey":
		if l.orderingKey, err = r.word(); err == nil && l.orderingKey != "" {
			err = checkOrderingKey(l.orderingKey)
		}
	case "Priority":
		l.priority, err = r.priority()
	case "TTL":
		l.ttlMs, err = r.ttl()
	case "ScheduledFor":
		l.times.at, err = r.word()
		l.ownAt = true
	case "Delay":
		err = r.delay(l)
	case "Recurrence":
		l.times.recurrence, err = r.word()
	case "Headers":
		l.headers, err = r.headers()
	case "Consumers":
		l.consumers, err = r.names()
	}
	return err
}

// unknownMember refuses a member that would have no effect.
func unknownMember(name string) error {
	meant := ""
	if best := problem.Nearest(name, lineMembers[:]); best != "" {
		meant = " Did you mean " + best + "?"
	}
	return problem.Newf(400, "invalid_line", "A line has no member %q.%s", name[:min(len(name), longestQuote)], meant)
}

// A lineReader reads JSON from memory.
type lineReader struct{ jsontext.Cursor }

func readerOf(line []byte) lineReader { return lineReader{jsontext.Cursor{Text: line}} }

func (r *lineReader) null() bool {
	if bytes.HasPrefix(r.Text[r.At:], []byte("null")) {
		r.At += 4
		return true
	}
	return false
}

// object reads an object. It calls member with the name of each member, and member reads the value.
// notOne is the error for a value that is not an object.
func (r *lineReader) object(notOne error, member func(name []byte) error) error {
	if r.Space(); !r.Take('{') {
		return notOne
	}
	if r.Space(); r.Take('}') {
		return nil
	}
	for {
		name, err := r.text()
		if err != nil {
			return err
		}
		if r.Space(); !r.Take(':') {
			return notOne
		}
		r.Space()
		if err := member(name); err != nil {
			return err
		}
		if r.Space(); r.Take('}') {
			return nil
		}
		if !r.Take(',') {
			return notOne
		}
		r.Space()
	}
}

// text reads a string. A string without escapes is not checked for UTF-8, and the result is then a
// part of the line.
func (r *lineReader) text() ([]byte, error) {
	if !r.Take('"') {
		return nil, errLine
	}
	start := r.At
	end := bytes.IndexByte(r.Text[start:], '"')
	if end < 0 {
		return nil, errLine
	}
	plain := r.Text[start : start+end]
	if bytes.IndexByte(plain, '\\') < 0 {
		r.At = start + end + 1
		for _, c := range plain {
			if c < 0x20 {
				return nil, errLine
			}
		}
		return plain, nil
	}
	for i := start; i < len(r.Text); i++ {
		switch r.Text[i] {
		case '\\':
			i++
		case '"':
			raw := r.Text[start-1 : i+1]
			if !utf8.Valid(raw) {
				return nil, errLineText // encoding/json would replace invalid UTF-8
			}
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return nil, errLine
			}
			if !jsontext.Paired(raw) { // encoding/json would also replace half of a surrogate pair
				return nil, errSurrogate
			}
			r.At = i + 1
			return []byte(text), nil
		}
	}
	return nil, errLine
}

// word reads a string and requires UTF-8.
func (r *lineReader) word() (string, error) {
	text, err := r.text()
	if err == nil && !utf8.Valid(text) {
		err = errLineText
	}
	return string(text), err
}

// payload reads a payload into its own memory.
func (r *lineReader) payload(inBase64 bool) ([]byte, error) {
	text, err := r.text()
	switch {
	case err != nil:
		return nil, err
	case !inBase64 && !utf8.Valid(text):
		return nil, errPayloadText
	case !inBase64:
		return append([]byte{}, text...), nil
	}
	// The decoder ignores line breaks, which can occur here only through escapes.
	if bytes.ContainsAny(text, "\r\n") {
		return nil, errPayloadBase64
	}
	payload := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(payload, text)
	if err != nil {
		return nil, errPayloadBase64
	}
	return payload[:n], nil
}

// priority reads a non-negative integer in JSON syntax: no sign, no leading zeros.
func (r *lineReader) priority() (int, error) {
	digits := r.number()
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, errPriority
	}
	return parsePriority(digits)
}

// number reads up to the end of a number, which it does not check.
func (r *lineReader) number() []byte {
	start := r.At
	for r.At < len(r.Text) && bytes.IndexByte([]byte(",} \t\r\n"), r.Text[r.At]) < 0 {
		r.At++
	}
	return r.Text[start:r.At]
}

// delay reads a string with a delay, or whole seconds as a number.
func (r *lineReader) delay(l *batchLine) error {
	if r.At < len(r.Text) && r.Text[r.At] == '"' {
		text, err := r.word()
		if err == nil {
			err = l.setDelay(text)
		}
		return err
	}
	digits := r.number()
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return errLine
	}
	return l.setDelay(string(digits))
}

// setDelay gives the line a delay. An empty one is none, not even that of the request.
func (l *batchLine) setDelay(text string) (err error) {
	l.ownDelay, l.times.delay = true, 0
	if text != "" {
		l.times.delay, err = errLineTimes.parseDelay(text)
	}
	return err
}

// plan returns the times of the line. Its own time counts instead of a delay of the request, and its
// own delay instead of a time of the request.
func (l *batchLine) plan() (t times, err error) {
	t = l.times
	switch {
	case l.ownAt && l.ownDelay:
		return t, errLineTimes.two()
	case l.ownAt:
		t.delay = 0
	case l.ownDelay:
		t.at = ""
	}
	return t, nil
}

// ttl reads a string with a duration.
func (r *lineReader) ttl() (int64, error) {
	text, err := r.text()
	if err != nil || len(text) == 0 {
		return 0, errLineTTL
	}
	return parseTTL(text, errLineTTL)
}

// names reads a list of IDs.
func (r *lineReader) names() ([]string, error) {
	if !r.Take('[') {
		return nil, errLineConsumers
	}
	names := []string{}
	if r.Space(); r.Take(']') {
		return names, nil
	}
	for {
		if r.Space(); r.At == len(r.Text) || r.Text[r.At] != '"' {
			return nil, errLineConsumers
		}
		name, err := r.word()
		if err != nil {
			return nil, err
		}
		if names = append(names, name); len(names) > mostNames {
			return nil, errManyConsumers
		}
		if r.Space(); r.Take(']') {
			return names, nil
		}
		if !r.Take(',') {
			return nil, errLineConsumers
		}
	}
}

// headers reads an object of strings. Two names that differ only in case are refused.
func (r *lineReader) headers() (map[string]string, error) {
	headers, folded := map[string]string{}, map[string]bool{}
	if r.At == len(r.Text) || r.Text[r.At] != '{' {
		return nil, errLineHeaders
	}
	err := r.object(errLineHeaders, func(name []byte) error {
		lower := strings.ToLower(string(name))
		if folded[lower] {
			return errHeaderTwice
		}
		if len(headers) == metadata.MaxNames {
			return metadata.ErrSize
		}
		if r.At == len(r.Text) || r.Text[r.At] != '"' {
			return errLineHeaders
		}
		value, err := r.word()
		folded[lower], headers[string(name)] = true, value
		return err
	})
	return headers, err
}

// checkLineHeaders refuses header names that a broadcast leaves out: in a line, the client has
// written them explicitly.
func checkLineHeaders(headers map[string]string, tokenHeader string) error {
	for name := range headers {
		if metadata.Reserved(name, tokenHeader) {
			return reservedHeader(name)
		}
	}
	return nil
}
