package durable

import (
	"bytes"
	"strings"

	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/tool/coding"
)

// OrderingHeader is the header with the ordering key of a message. It is the first of the
// message's headers, so a message without a key costs nothing.
const OrderingHeader = "X-Broker-Ordering-Key"

var orderingPrefix = []byte(OrderingHeader + ":")

// OrderingLine returns the headers with an ordering key in front.
func OrderingLine(key string, headers []byte) []byte {
	line := make([]byte, 0, len(orderingPrefix)+len(key)+1+len(headers))
	line = append(append(append(line, orderingPrefix...), key...), '\n')
	return append(line, headers...)
}

// Keyed reports whether the message has an ordering key.
func (m *Message) Keyed() bool { return bytes.HasPrefix(m.Headers, orderingPrefix) }

// OrderingKey returns the ordering key, nil if the message has none.
func (m *Message) OrderingKey() []byte {
	rest, ok := bytes.CutPrefix(m.Headers, orderingPrefix)
	if !ok {
		return nil
	}
	key, _, _ := bytes.Cut(rest, []byte{'\n'})
	return key
}

// Metadata returns the headers without the ordering key. A Content-Encoding is the first of them.
func (m *Message) Metadata() []byte {
	if !m.Keyed() {
		return m.Headers
	}
	_, rest, _ := bytes.Cut(m.Headers, []byte{'\n'})
	return rest
}

// encodingPrefix begins the header with the content codings of a payload. It is the first of the
// message's headers behind the ordering key, so a message without codings costs nothing.
var encodingPrefix = []byte(coding.Header + ":")

// EncodingLine returns headers without an ordering key with the Content-Encoding of the payload in
// front; the headers alone where it is "".
func EncodingLine(value string, headers []byte) []byte {
	if value == "" {
		return headers
	}
	line := make([]byte, 0, len(encodingPrefix)+len(value)+1+len(headers))
	line = append(append(append(line, encodingPrefix...), value...), '\n')
	return append(line, headers...)
}

// ContentEncoding returns the content codings of the payload, "" if it has none.
func (m *Message) ContentEncoding() string {
	rest, ok := bytes.CutPrefix(m.Metadata(), encodingPrefix)
	if !ok {
		return ""
	}
	value, _, _ := bytes.Cut(rest, []byte{'\n'})
	return string(value)
}

// TaskHeader is the header with the task of a message, for which claims of pull workers may ask. It
// stands behind the ordering key and the codings, so a message without a task costs nothing.
const TaskHeader = "X-Broker-Task"

var taskPrefix = []byte(TaskHeader + ":")

// TaskLine returns headers, which have neither an ordering key nor codings, with the task in front; the
// headers alone where it is "".
func TaskLine(task string, headers []byte) []byte {
	if task == "" {
		return headers
	}
	line := make([]byte, 0, len(taskPrefix)+len(task)+1+len(headers))
	line = append(append(append(line, taskPrefix...), task...), '\n')
	return append(line, headers...)
}

// Task returns the task of the message, "" if it has none.
func (m *Message) Task() string {
	headers := m.Metadata()
	if bytes.HasPrefix(headers, encodingPrefix) {
		_, headers, _ = bytes.Cut(headers, []byte{'\n'})
	}
	rest, ok := bytes.CutPrefix(headers, taskPrefix)
	if !ok {
		return ""
	}
	task, _, _ := bytes.Cut(rest, []byte{'\n'})
	return string(task)
}

// WithoutTask returns headers, which have neither an ordering key nor codings, without the task.
func WithoutTask(headers []byte) []byte {
	if !bytes.HasPrefix(headers, taskPrefix) {
		return headers
	}
	_, rest, _ := bytes.Cut(headers, []byte{'\n'})
	return rest
}

// sameEvent reports whether a stored message and m have the same CloudEvent. Its mode, its codings,
// its priority and other metadata may differ. Payloads that cannot be decoded are compared as they are.
func sameEvent(stored, m *Message) bool {
	if stored.Key != m.Key || stored.ProducerNo != m.ProducerNo {
		return false
	}
	was, is := stored.ContentEncoding(), m.ContentEncoding()
	x, errX := coding.Decode(was, stored.Payload, coding.MostDecoded)
	y, errY := coding.Decode(is, m.Payload, coding.MostDecoded)
	if errX != nil || errY != nil {
		if was != is {
			return false
		}
		x, y = stored.Payload, m.Payload
	}
	return cloudevents.Equal(stored.asEvent(x), m.asEvent(y))
}

// asEvent returns the event of a message whose decoded payload is payload.
func (m *Message) asEvent(payload []byte) cloudevents.Message {
	headers := map[string]string{}
	for line := range strings.SplitSeq(string(m.Headers), "\n") {
		name, value, _ := strings.Cut(line, ":")
		headers[strings.ToLower(name)] = value
	}
	return cloudevents.Message{ContentType: m.ContentType, Headers: headers, Payload: payload}
}
