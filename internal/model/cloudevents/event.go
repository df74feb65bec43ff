package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// An event is an event without its form.
type event struct {
	attributes map[string]string // all but datacontenttype
	mediaType  string            // of the data, as mime.ParseMediaType returns it; empty: none
	data       []byte
	hasData    bool
}

// ParseBinary checks the attributes of an event in binary mode, by their names without ce-. The
// values are those of the headers.
func ParseBinary(headers map[string]string) (ID, error) {
	e := fromHeaders(headers)
	if err := check(e.attributes); err != nil {
		return ID{}, err
	}
	return ID{Source: e.attributes["source"], ID: e.attributes["id"]}, nil
}

// Parse checks an event as JSON.
func Parse(text []byte) (ID, error) {
	e, err := parse(text)
	if err != nil {
		return ID{}, err
	}
	return ID{e.attributes["source"], e.attributes["id"], e.attributes["traceparent"]}, nil
}

// A Message is a stored message that contains an event.
type Message struct {
	ContentType string
	Headers     map[string]string // names in lower case
	Payload     []byte
}

// Equal reports whether two messages contain the same attributes and data, whatever the modes. Data
// in JSON is equal if only white space differs.
func Equal(a, b Message) bool {
	x, err := a.event()
	if err != nil {
		return false
	}
	y, err := b.event()
	return err == nil && maps.Equal(x.attributes, y.attributes) && x.mediaType == y.mediaType && sameData(x, y)
}

func sameData(x, y *event) bool {
	if bytes.Equal(x.data, y.data) {
		return true
	}
	if !isJSON(x.mediaType) {
		return false
	}
	// Decoded values would take many times the memory of the text.
	var a, b bytes.Buffer
	return json.Compact(&a, x.data) == nil && json.Compact(&b, y.data) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

func isJSON(mediaType string) bool {
	return mediaType == "application/json" || mediaType == "text/json" || strings.HasSuffix(mediaType, "+json")
}

func (m *Message) event() (*event, error) {
	if mode, err := ModeOf(m.ContentType); err == nil && mode == Structured {
		return parse(m.Payload)
	}
	attributes := map[string]string{}
	for name, value := range m.Headers {
		if IsAttribute([]byte(name)) {
			attributes[name[len(Prefix):]] = value
		}
	}
	e := fromHeaders(attributes)
	e.data, e.hasData = m.Payload, len(m.Payload) > 0
	e.setType(m.ContentType)
	return e, nil
}

// fromHeaders returns the event of binary mode without its data. Values are percent-encoded there.
func fromHeaders(headers map[string]string) *event {
	e := &event{attributes: make(map[string]string, len(headers))}
	for name, value := range headers {
		e.attributes[name] = Unescape(value)
	}
	return e
}

// Unescape returns the value of an attribute whose header has s in binary mode: without double quotes
// around it, and without percent-encoding. What is none stays.
func Unescape(s string) string {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = unquote(s[1 : len(s)-1])
	}
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if high, low := hex(s[i+1]), hex(s[i+2]); high >= 0 && low >= 0 {
				out = append(out, byte(high<<4|low))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// unquote removes the backslashes of a quoted string (RFC 9110, 5.6.4).
func unquote(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		out = append(out, s[i])
	}
	return string(out)
}

func hex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

func (e *event) setType(contentType string) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind = strings.ToLower(contentType)
	}
	e.mediaType = kind
	if kind == "application/octet-stream" && !e.hasData { // what the broker takes for an absent one
		e.mediaType = ""
	}
}

// maxAttributes bounds names and values of the attributes of one event, in bytes. The specification
// asks intermediaries for events of 64 KiB in all. Each member costs memory and time.
const maxAttributes = 64 << 10

var errAttributes = refuse("the attributes have more than 64 KiB.")

var errNotJSON = refuse("the event is not one JSON object.")

// parse reads an event as JSON. It refuses what JSON readers may read in two ways.
func parse(text []byte) (*event, error) {
	if !utf8.Valid(text) {
		return nil, refuse("the event is not UTF-8.")
	}
	r := jsonread.OpenCarried(text)
	defer r.Close()
	e := &event{attributes: map[string]string{}}
	seen := map[string]bool{}
	contentType, size := "", 0
	err := r.Object(func(member []byte) error {
		name := string(member)
		if seen[name] {
			return refuse("the event has a member twice.")
		}
		seen[name] = true
		value, err := r.Value()
		if err != nil {
			return err
		}
		if name != "data" && name != "data_base64" {
			if size += len(name) + len(value); size > maxAttributes {
				return errAttributes
			}
		}
		return e.member(name, value, &contentType)
	})
	if err == nil {
		err = r.End()
	}
	var wrong *jsonread.Error
	if errors.As(err, &wrong) {
		return nil, errNotJSON
	}
	if err != nil {
		return nil, err
	}
	if seen["data"] && seen["data_base64"] {
		return nil, refuse("the event has both data and data_base64.")
	}
	if err := check(e.attributes); err != nil {
		return nil, err
	}
	e.finish(contentType, seen["data"])
	return e, nil
}

// member reads a member of an event as JSON.
func (e *event) member(name string, value []byte, contentType *string) error {
	switch name {
	case "data":
		e.data, e.hasData = value, true
		return nil
	case "data_base64":
		if value[0] != '"' {
			return refuse("data_base64 must be a string.")
		}
		text, err := jsonread.Unquote(value)
		if err == nil {
			e.data, err = base64.StdEncoding.AppendDecode(nil, text)
		}
		if err != nil {
			return refuse("data_base64 is not base64.")
		}
		e.hasData = true
		return nil
	}
	if string(value) == "null" {
		return nil
	}
	text, ok, err := attribute(value)
	if err != nil {
		return refuse("the attribute %.64q has half of a surrogate pair.", name)
	}
	if !ok || value[0] != '"' && (name == "datacontenttype" || isText(name)) {
		return refuse("the attribute %.64q must be a string, an integer or true or false, and a string where the "+
			"specification says so.", name)
	}
	if name == "datacontenttype" {
		if hasControls(text) {
			return refuse("the attribute %.64q has control characters.", name)
		}
		*contentType = text
		return nil
	}
	e.attributes[name] = text
	return nil
}

// isText reports whether an attribute of the specification is a string.
func isText(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "dataschema":
		return true
	}
	return false
}

// attribute returns the canonical text of the value of an attribute.
func attribute(value []byte) (text string, ok bool, err error) {
	switch c := value[0]; {
	case c == '"':
		unquoted, err := jsonread.Unquote(value)
		return string(unquoted), true, err
	case c == 't' || c == 'f':
		return string(value), true, nil
	case c == '-' || c >= '0' && c <= '9':
		return string(value), !bytes.ContainsAny(value, ".eE"), nil
	}
	return "", false, nil
}

// finish sets the type of the data, and takes a JSON string for the text in it where the data is not
// JSON.
func (e *event) finish(contentType string, inJSON bool) {
	switch {
	case contentType == "" && inJSON:
		contentType = "application/json"
	case contentType == "" && e.hasData:
		contentType = "application/octet-stream"
	}
	if contentType != "" {
		e.setType(contentType)
	}
	if inJSON && !isJSON(e.mediaType) && e.data[0] == '"' {
		if text, err := jsonread.Unquote(e.data); err == nil { // else it has half of a surrogate pair
			e.data = text
		}
	}
}
