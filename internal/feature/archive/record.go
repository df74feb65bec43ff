package archive

import (
	"strings"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
)

// A Record is a message in the archive: a line of JSON.
type Record struct {
	ID          ident.ID     `json:"ID"`        // of the broker
	MessageID   string       `json:"MessageID"` // of the producer, or the same
	Channel     string       `json:"Channel"`
	Producer    string       `json:"Producer"`
	ReceivedAt  apitype.Time `json:"ReceivedAt"`
	Priority    int          `json:"Priority"`
	TTLMs       int64        `json:"TTLMs,omitempty"`
	ContentType string       `json:"ContentType"`
	// Headers are the metadata of the message, with X-Broker-Ordering-Key and Content-Encoding.
	Headers map[string]string `json:"Headers,omitempty"`
	Jobs    []Job             `json:"Jobs,omitempty"`
	// One of the two is the payload: Base64 is one that is not UTF-8.
	Payload string `json:"Payload,omitempty"`
	Base64  []byte `json:"PayloadBase64,omitempty"`
}

// A Job is how the job of one consumer ended.
type Job struct {
	Consumer   string       `json:"Consumer"`
	State      string       `json:"State"` // "DELIVERED" or "DEAD"
	At         apitype.Time `json:"At"`
	Attempts   int          `json:"Attempts"`
	StatusCode int          `json:"StatusCode,omitempty"` // last HTTP status
	Worker     string       `json:"Worker,omitempty"`
	Error      string       `json:"Error,omitempty"` // of a dead one
}

// recordOf returns the line of a message. The consumers are in the order of their states; one whose job is
// neither delivered nor dead has none.
func recordOf(m *durable.Message, channel, producer string, consumers []string, states []durable.JobState) Record {
	r := Record{ID: m.ID, MessageID: jsontext.HeaderText(m.PublicID()), Channel: channel, Producer: producer,
		ReceivedAt: apitype.Time{Time: m.ID.Time()}, Priority: m.Priority, TTLMs: m.TTLMs,
		ContentType: jsontext.HeaderText(m.ContentType)}
	for line := range strings.Lines(string(m.Headers)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); ok {
			if r.Headers == nil {
				r.Headers = map[string]string{}
			}
			r.Headers[name] = jsontext.HeaderText(value)
		}
	}
	if utf8.Valid(m.Payload) {
		r.Payload = string(m.Payload)
	} else {
		r.Base64 = m.Payload
	}
	for i, s := range states {
		j := Job{Consumer: consumers[i], At: timeOf(s.ChangedMs), Attempts: s.Attempts, StatusCode: s.StatusCode,
			Worker: s.Worker, Error: s.Error}
		switch s.Status {
		case durable.Delivered:
			j.State = "DELIVERED"
		case durable.Dead:
			j.State = "DEAD"
		default:
			continue
		}
		r.Jobs = append(r.Jobs, j)
	}
	return r
}

// Body returns the payload.
func (r *Record) Body() []byte {
	if r.Base64 != nil {
		return r.Base64
	}
	return []byte(r.Payload)
}
