package tracing

import (
	"bytes"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

// The headers of W3C Trace Context, and the attribute of the extension of CloudEvents that has the
// same form.
const (
	ParentHeader = "traceparent"
	StateHeader  = "tracestate"
	eventHeader  = "ce-traceparent"
)

// A Parent is a traceparent.
type Parent struct {
	Trace trace.TraceID
	Span  trace.SpanID
	Flags byte
}

// Sampled reports whether the caller has recorded its span.
func (p Parent) Sampled() bool { return p.Flags&1 != 0 }

// parentBytes is the length of a traceparent of version 00.
const parentBytes = 55

// ParseParent reads a traceparent. A malformed one is none, as W3C Trace Context demands; of a later
// version the known part is read.
func ParseParent(text []byte) (p Parent, ok bool) {
	if len(text) < parentBytes || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Parent{}, false
	}
	var version, flags [1]byte
	if !lowerHex(version[:], text[:2]) || !lowerHex(p.Trace[:], text[3:35]) || !lowerHex(p.Span[:], text[36:52]) ||
		!lowerHex(flags[:], text[53:55]) {
		return Parent{}, false
	}
	p.Flags = flags[0]
	switch {
	case version[0] == 0xff, version[0] == 0 && len(text) > parentBytes, len(text) > parentBytes &&
		text[parentBytes] != '-':
		return Parent{}, false
	case !p.Trace.IsValid(), !p.Span.IsValid():
		return Parent{}, false
	}
	return p, true
}

// lowerHex decodes digits, of which only the small letters are allowed.
func lowerHex(to, digits []byte) bool {
	for i := range to {
		hi, lo := nibble(digits[2*i]), nibble(digits[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		to[i] = hi<<4 | lo
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// Append appends the traceparent as text.
func (p Parent) Append(b []byte) []byte {
	b = hex.AppendEncode(append(b, "00-"...), p.Trace[:])
	b = hex.AppendEncode(append(b, '-'), p.Span[:])
	return hex.AppendEncode(append(b, '-'), []byte{p.Flags})
}

// line returns where the value of a header stands in stored headers, "name:value\n" each. ok is false
// where there is none. name is in small letters.
func line(headers []byte, name string) (from, to int, ok bool) {
	for at := 0; at < len(headers); {
		end := bytes.IndexByte(headers[at:], '\n')
		if end < 0 {
			end = len(headers) - at
		}
		if end > len(name) && headers[at+len(name)] == ':' && foldsTo(headers[at:at+len(name)], name) {
			return at + len(name) + 1, at + end, true
		}
		at += end + 1
	}
	return 0, 0, false
}

func foldsTo(text []byte, name string) bool {
	for i := range text {
		c := text[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// ParentOf returns the creation context in the headers of a message: its traceparent, or that of its
// CloudEvent.
func ParentOf(headers []byte) (Parent, bool) {
	for _, name := range [...]string{ParentHeader, eventHeader} {
		if from, to, ok := line(headers, name); ok {
			if p, ok := ParseParent(bytes.TrimSpace(headers[from:to])); ok {
				return p, true
			}
		}
	}
	return Parent{}, false
}

// stateOf returns the tracestate in the headers of a message.
func stateOf(headers []byte) trace.TraceState {
	if from, to, ok := line(headers, StateHeader); ok {
		if s, err := trace.ParseTraceState(string(bytes.TrimSpace(headers[from:to]))); err == nil {
			return s
		}
	}
	return trace.TraceState{}
}

// withLine returns a copy of headers in which a header has another value. It is added where it is
// missing.
func withLine(headers []byte, name string, value []byte) []byte {
	out := make([]byte, 0, len(headers)+len(name)+len(value)+2)
	if from, to, ok := line(headers, name); ok {
		out = append(append(out, headers[:from]...), value...)
		return append(out, headers[to:]...)
	}
	out = append(append(append(out, headers...), name...), ':')
	return append(append(out, value...), '\n')
}

// laterState is the member of a tracestate that marks the message of a schedule: whoever delivers it
// knows that its publish was long ago. It is what W3C Trace Context provides the header for.
const laterState = "penstock=later"

// MarkLater returns the headers of a message that a schedule sends, with a mark that it does. Headers
// that have no creation context, or the mark, are returned as they are.
func MarkLater(headers []byte) []byte {
	if _, ok := ParentOf(headers); !ok || later(headers) {
		return headers
	}
	value := []byte(laterState)
	if from, to, ok := line(headers, StateHeader); ok && to > from {
		value = append(append(value, ','), headers[from:to]...)
	}
	return withLine(headers, StateHeader, value)
}

// later reports whether the headers have the mark.
func later(headers []byte) bool {
	from, to, ok := line(headers, StateHeader)
	if !ok {
		return false
	}
	rest, ok := bytes.CutPrefix(headers[from:to], []byte(laterState))
	return ok && (len(rest) == 0 || rest[0] == ',')
}
