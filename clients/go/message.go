package penstock

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Message is what a producer publishes. Only the payload is needed.
type Message struct {
	// ID is unique in the channel: 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -. "": the client makes one, so that a
	// publish whose answer is lost can be repeated.
	ID              string
	Payload         []byte
	ContentType     string // "": application/octet-stream
	ContentEncoding string // codings that the payload has, such as gzip
	Priority        int    // 0 to 1023, higher first
	Task            string // what kind of job it is, up to 128 bytes without commas
	OrderingKey     string // messages of a key go one at a time to consumers with ordered=true
	TTL             time.Duration
	Consumers       []string          // whom it is for; empty: every consumer of the channel
	Headers         map[string]string // metadata, which the consumers get

	At         time.Time     // when it is sent; zero: now
	Delay      time.Duration // or how much later it is sent
	Recurrence string        // sent again and again: R5/2026-12-01T00:00:00Z/PT1H, or cron:30 9 * * 1-5
}

// A Job is a message that workers of every client understand: JSON with the members task, args, kwargs and
// meta, and the task in the header X-Broker-Task.
type Job struct {
	Task   string
	Args   []any
	Kwargs map[string]any
	Meta   map[string]any

	ID          string // of the message; "": the client makes one
	Priority    int
	OrderingKey string
	TTL         time.Duration
	At          time.Time
	Delay       time.Duration
	Headers     map[string]string
}

// message is the job as a message.
func (j *Job) message() (Message, error) {
	if j.Task == "" {
		return Message{}, fmt.Errorf("penstock: a job needs a task")
	}
	envelope := struct {
		Task   string         `json:"task"`
		Args   []any          `json:"args"`
		Kwargs map[string]any `json:"kwargs"`
		Meta   map[string]any `json:"meta"`
	}{j.Task, j.Args, j.Kwargs, j.Meta}
	if envelope.Args == nil {
		envelope.Args = []any{}
	}
	if envelope.Kwargs == nil {
		envelope.Kwargs = map[string]any{}
	}
	if envelope.Meta == nil {
		envelope.Meta = map[string]any{}
	}
	payload, err := plainJSON(envelope)
	if err != nil {
		return Message{}, fmt.Errorf("penstock: job %q: %w", j.Task, err)
	}
	return Message{ID: j.ID, Payload: payload, ContentType: "application/json", Priority: j.Priority, Task: j.Task,
		OrderingKey: j.OrderingKey, TTL: j.TTL, At: j.At, Delay: j.Delay, Headers: j.Headers}, nil
}

// plainJSON is JSON without escapes for HTML and without a line end.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// newID returns a random ID (UUID version 7: they ascend with time), which has no form of the broker's own.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	ms := time.Now().UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// header adds the message, without its payload, to the headers of a request.
func (m *Message) header(h http.Header) error {
	set := func(name, value string) {
		if value != "" {
			h[http.CanonicalHeaderKey(name)] = []string{value}
		}
	}
	set("X-Broker-Message-ID", m.ID)
	set("Content-Type", m.ContentType)
	set("Content-Encoding", m.ContentEncoding)
	set("X-Broker-Task", m.Task)
	set("X-Broker-Ordering-Key", m.OrderingKey)
	set("X-Broker-Consumers", strings.Join(m.Consumers, ","))
	set("X-Broker-Recurrence", m.Recurrence)
	if m.Priority != 0 {
		set("X-Broker-Message-Priority", strconv.Itoa(m.Priority))
	}
	if m.TTL != 0 {
		set("X-Broker-Message-TTL", m.TTL.String())
	}
	if m.Delay != 0 {
		set("X-Broker-Delay", m.Delay.String())
	}
	if !m.At.IsZero() {
		set("X-Broker-Scheduled-For", m.At.UTC().Format(time.RFC3339Nano))
	}
	names := slices.Sorted(maps.Keys(m.Headers))
	for _, name := range names {
		if _, twice := h[http.CanonicalHeaderKey(name)]; twice {
			return fmt.Errorf("penstock: the metadata header %q is one that the client sets", name)
		}
		h[http.CanonicalHeaderKey(name)] = []string{m.Headers[name]}
	}
	set("X-Broker-Metadata-Headers", strings.Join(names, ","))
	return nil
}

// line is the message as a line of a batch.
func (m *Message) line() ([]byte, error) {
	line := struct {
		MessageID       string            `json:",omitempty"`
		Priority        int               `json:",omitempty"`
		TTL             string            `json:",omitempty"`
		ContentType     string            `json:",omitempty"`
		ContentEncoding string            `json:",omitempty"`
		OrderingKey     string            `json:",omitempty"`
		Task            string            `json:",omitempty"`
		ScheduledFor    string            `json:",omitempty"`
		Delay           string            `json:",omitempty"`
		Recurrence      string            `json:",omitempty"`
		Consumers       []string          `json:",omitempty"`
		Headers         map[string]string `json:",omitempty"`
		Payload         *string           `json:",omitempty"`
		PayloadBase64   string            `json:",omitempty"`
	}{MessageID: m.ID, Priority: m.Priority, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
		OrderingKey: m.OrderingKey, Task: m.Task, Recurrence: m.Recurrence, Consumers: m.Consumers, Headers: m.Headers}
	if m.TTL != 0 {
		line.TTL = m.TTL.String()
	}
	if m.Delay != 0 {
		line.Delay = m.Delay.String()
	}
	if !m.At.IsZero() {
		line.ScheduledFor = m.At.UTC().Format(time.RFC3339Nano)
	}
	if text := string(m.Payload); utf8.ValidString(text) {
		line.Payload = &text
	} else {
		line.PayloadBase64 = base64.StdEncoding.EncodeToString(m.Payload)
	}
	return plainJSON(line)
}
