package publish

import (
	"bytes"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Headers of a request that say what its payload is belong to the message: its Content-Type, its
// Content-Encoding, and those that describe it, which are metadata without being named as such.

var (
	errCoding = problem.New(400, "invalid_content_encoding",
		"The content encoding must be a list of content codings, such as gzip, of at most 255 bytes.")
	errUndecodable = problem.New(400, "invalid_content_encoding",
		"The broker must read events in JSON, and decodes gzip, deflate, br and zstd, at most three of them.")
	errNotCoded = problem.New(400, "invalid_content_encoding",
		"The broker must read events in JSON, and the body is not coded as its Content-Encoding says.")
	errDecodedLarge = problem.New(413, "body_too_large", "The decoded body is larger than this broker accepts.")
)

// codingOf returns the content codings of the body of a request, "" if it has none.
func codingOf(h *fasthttp.RequestHeader) (string, error) {
	lines := h.PeekAll(coding.Header)
	if len(lines) == 0 {
		return "", nil
	}
	return cleanCoding(string(bytes.Join(lines, []byte{','})))
}

func (d *Draft) setEncoding(text []byte) (err error) {
	d.encoding, err = cleanCoding(string(text))
	return err
}

func (d *Draft) readEncoding(h *fasthttp.RequestHeader) (err error) {
	d.encoding, err = codingOf(h)
	return err
}

func cleanCoding(value string) (string, error) {
	value, err := coding.Clean(value)
	if err != nil {
		return "", errCoding
	}
	return value, nil
}

// errCoded refuses a body of lines: they are stored apart, and none could keep its codings.
var errCoded = problem.New(415, "unsupported_media_type", "The lines are stored as single messages, which cannot "+
	"keep the Content-Encoding of the whole body: send it uncoded, or code payloads and say so in the member "+
	"ContentEncoding.")

// uncoded refuses a request of lines whose body has a content coding.
func uncoded(h *fasthttp.RequestHeader) error {
	value, err := codingOf(h)
	if err == nil && value != "" {
		err = errCoded
	}
	return err
}

// descriptions returns the names of the headers of a request that describe its payload.
func descriptions(h *fasthttp.RequestHeader) (names []string) {
	for name := range h.All() {
		if d := coding.Describes(name); d != "" {
			names = append(names, d)
		}
	}
	return append(names, traceHeaders(h)...)
}

// traceHeaders returns the names of the headers of a request that say in which trace it is made. They
// go with its messages without being listed, unless they are too long: then they are left out, and the
// request is not refused for what its producer may not know of.
func traceHeaders(h *fasthttp.RequestHeader) (names []string) {
	parent := h.Peek(tracing.ParentHeader)
	if len(parent) == 0 || len(parent) > mostTraceHeader {
		return nil
	}
	names = append(names, tracing.ParentHeader)
	if len(h.Peek(tracing.StateHeader)) <= mostTraceHeader {
		names = append(names, tracing.StateHeader)
	}
	return names
}

// mostTraceHeader is the longest header that is carried without being listed, bytes: twice what W3C Trace
// Context wants of a tracestate.
const mostTraceHeader = 1 << 10

// decoded undoes the codings of a body that the broker must read. The caller gives the held bytes of
// the result back, also after an error.
func (p *Publisher) decoded(k share.Key, value string, body []byte) (text []byte, held int64, err error) {
	if value == "" {
		return body, 0, nil
	}
	if held = int64(p.maxBody); !p.bytes.Take(k, held) {
		return nil, 0, problem.ErrOverloaded
	}
	text, err = coding.Decode(value, body, p.maxBody)
	switch {
	case errors.Is(err, coding.ErrTooLarge):
		err = errDecodedLarge
	case errors.Is(err, coding.ErrUnknown):
		err = errUndecodable
	case err != nil:
		err = errNotCoded
	}
	if unused := held - int64(len(text)); unused > 0 {
		p.bytes.Give(k, unused)
		held -= unused
	}
	return text, held, err
}

// decodedBatch reads a batch of events whose codings are undone: the events are stored apart, so they
// cannot keep them. It is bounded as the payload of one message.
func (p *Publisher) decodedBatch(rc *fasthttp.RequestCtx, k share.Key, value string) (text []byte, held int64,
	err error) {
	body, taken, err := intake.Read(rc, p.bytes, k, p.maxBody)
	defer func() { p.bytes.Give(k, taken) }()
	if err != nil {
		return nil, 0, err
	}
	return p.decoded(k, value, body)
}
