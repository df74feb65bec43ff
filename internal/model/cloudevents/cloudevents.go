// Package cloudevents knows CloudEvents 1.0 over HTTP: it recognises the mode of a request, checks
// the attributes of an event, and compares events.
package cloudevents

import (
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Mode is how an HTTP request contains events.
type Mode uint8

// The modes of the HTTP protocol binding.
const (
	None       Mode = iota // no event
	Binary                 // attributes in headers that begin with ce-, data in the body
	Structured             // one event as JSON
	Batch                  // an array of events as JSON
)

// StructuredType is the media type of one event as JSON.
const StructuredType = "application/cloudevents+json"

const (
	batchType  = "application/cloudevents-batch+json"
	typePrefix = "application/cloudevents"
)

// Prefix begins the header of each attribute in binary mode.
const Prefix = "ce-"

// ErrFormat is the error of events in another format.
var ErrFormat = errors.New("events are taken as application/cloudevents+json or application/cloudevents-batch+json " +
	"in UTF-8, or in binary mode")

// An Error says what is wrong with an event. Its text never has a value of the event.
type Error struct{ Problem string }

func (e *Error) Error() string { return "CloudEvents: " + e.Problem }

// ModeOf returns the mode that a content type names: Structured, Batch, or None. The error is
// ErrFormat.
func ModeOf[T string | []byte](contentType T) (Mode, error) {
	if len(contentType) < len(typePrefix) || !strings.EqualFold(string(contentType[:len(typePrefix)]), typePrefix) {
		return None, nil
	}
	kind, params, err := mime.ParseMediaType(string(contentType))
	if charset := params["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return None, ErrFormat
	}
	switch kind {
	case StructuredType:
		return Structured, nil
	case batchType:
		return Batch, nil
	}
	return None, ErrFormat
}

// IsAttribute reports whether a header has an attribute of an event in binary mode.
func IsAttribute(header []byte) bool {
	return len(header) > len(Prefix) && header[0]|0x20 == 'c' && header[1]|0x20 == 'e' && header[2] == '-'
}

func refuse(format string, args ...any) error {
	return &Error{fmt.Sprintf(format, args...)}
}

// required are the attributes that each event has.
var required = []string{"specversion", "id", "source", "type"}

// check checks the attributes of an event.
func check(attributes map[string]string) error {
	for _, name := range required {
		if attributes[name] == "" {
			return refuse("the event has no %s.", name)
		}
	}
	if v := attributes["specversion"]; v != "1.0" {
		return refuse("the specversion must be 1.0.")
	}
	for name, value := range attributes {
		if !validName(name) {
			return refuse("the name of an attribute must consist of a-z and 0-9.")
		}
		if hasControls(value) {
			return refuse("the attribute %.64q has control characters.", name)
		}
	}
	if t, ok := attributes["time"]; ok {
		if _, err := apitype.ParseTime(t); err != nil {
			return refuse("time must be a time of RFC 3339.")
		}
	}
	return nil
}

// hasControls reports whether a text has U+0000 to U+001F or U+007F to U+009F, which no attribute has.
func hasControls(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

func validName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// An ID is what makes an event distinct: two events with equal IDs are the same one.
type ID struct {
	Source, ID  string
	Traceparent string // the attribute of that name of an event in JSON, as it stands; no part of the identity
}
