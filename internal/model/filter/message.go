package filter

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cel.dev/cel-go/interpreter"

	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// maxParsed bounds the memory that a parsed payload takes, by an estimate that is never too low.
const maxParsed = 64 << 20

// A Message is what filters see of one message. It parses the payload, and reads the headers, when
// the first filter asks, and once. It is not safe for concurrent use.
type Message struct {
	Payload     []byte
	Headers     []byte // "name:value\n" each
	Priority    int
	ContentType string
	Producer    string
	Encoding    string // content codings of the payload, "" for none
	// Attributes is set for a CloudEvent in structured mode: its attributes are headers, too.
	Attributes bool

	parsed   bool
	tooLarge bool
	payload  any
	headers  map[string]string
}

// ResolveName implements interpreter.Activation.
func (m *Message) ResolveName(name string) (any, bool) {
	switch name {
	case "payload":
		return m.json(), true
	case "headers":
		if m.headers == nil {
			m.readHeaders()
		}
		return m.headers, true
	case "priority":
		return m.Priority, true
	case "contentType":
		return jsontext.HeaderText(m.ContentType), true
	case "producer":
		return m.Producer, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (*Message) Parent() interpreter.Activation { return nil }

// json returns the parsed payload, nil for one that is not JSON once its codings are undone.
func (m *Message) json() any {
	if !m.parsed {
		m.parsed = true
		text, err := coding.Decode(m.Encoding, m.Payload, coding.MostDecoded)
		m.tooLarge = errors.Is(err, coding.ErrTooLarge) || weight(text) > maxParsed
		if err == nil && !m.tooLarge {
			m.payload, _ = decode(text)
		}
	}
	return m.payload
}

// weight bounds the memory of parsed JSON from above, bytes: a map with one member takes about 400,
// and a number in a list 24 and its share of the free places. Where numbers are read exactly, their
// texts take 32 more.
func weight(text []byte) int {
	texts := 0
	if longNumbers(text) {
		texts = 32 * (bytes.Count(text, []byte{','}) + bytes.Count(text, []byte{'['}))
	}
	return texts + 2*len(text) + 64*(bytes.Count(text, []byte{','})+bytes.Count(text, []byte{'['})) + 400*bytes.Count(text,
		[]byte{'{'})
}

func (m *Message) readHeaders() {
	m.headers = map[string]string{}
	if m.Attributes {
		event, _ := m.json().(map[string]any)
		for name, value := range event {
			if text, ok := attribute(value); ok && name != "data" && name != "data_base64" {
				m.headers[cloudevents.Prefix+name] = text
			}
		}
	}
	for line := range strings.Lines(string(m.Headers)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); ok {
			name = strings.ToLower(name)
			if strings.HasPrefix(name, cloudevents.Prefix) {
				value = cloudevents.Unescape(value)
			}
			m.headers[name] = jsontext.HeaderText(value)
		}
	}
	const dataType = cloudevents.Prefix + "datacontenttype"
	if _, has := m.headers[dataType]; !has && !m.Attributes && m.headers[cloudevents.Prefix+"specversion"] != "" {
		m.headers[dataType] = jsontext.HeaderText(m.ContentType)
	}
}

// attribute returns the value of an attribute of an event in JSON as its header has it.
func attribute(value any) (text string, ok bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), true
	case bool, int64, uint64:
		return fmt.Sprint(value), true
	}
	return "", false
}
