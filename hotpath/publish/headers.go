package publish

import (
	"bytes"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

var (
	errLineHeaders = problem.New(400, "invalid_metadata_headers", "Headers must be a JSON object of strings.")
	errHeaderTwice = problem.New(400, "invalid_metadata_headers", "Headers has a name twice; upper and lower case are "+
		"the same there.")
)

// reservedHeader is the refusal of a header that a line must not have.
func reservedHeader(name string) error {
	return problem.Newf(400, "invalid_metadata_headers",
		"Headers has the name %.*q, which belongs to the broker, to the connection or to credentials; priority, message "+
			"ID, content type and content encoding are members of the line.", longestQuote, name)
}

// readMetadata reads the headers that go with a message: those that the producer names, and those that
// are carried in any case.
func (d *Draft) readMetadata(h *fasthttp.RequestHeader) (err error) {
	list := h.Peek(metadata.ListHeader)
	if len(d.carried) > 0 {
		list = append(append(bytes.Clone(list), ','), strings.Join(d.carried, ",")...)
	}
	d.Headers, err = metadata.Collect(list, d.tokenHeader, metadata.Of(h))
	return err
}

func (d *Draft) setHeader(name, value string) error {
	if d.headers == nil {
		d.headers = map[string]string{}
	}
	for have := range d.headers {
		if strings.EqualFold(have, name) {
			return errHeaderTwice
		}
	}
	if len(d.headers) == metadata.MaxNames {
		return metadata.ErrSize
	}
	d.headers[name] = value
	return nil
}

// readHeaders reads an object of strings. Two names that differ only in case are refused.
func (d *Draft) readHeaders() error {
	r := &d.in
	if r.At == len(r.Text) || r.Text[r.At] != '{' {
		return errLineHeaders
	}
	d.headers = map[string]string{}
	folded := map[string]bool{}
	return r.object(errLineHeaders, func(name []byte) error {
		lower := strings.ToLower(string(name))
		if folded[lower] {
			return errHeaderTwice
		}
		if len(d.headers) == metadata.MaxNames {
			return metadata.ErrSize
		}
		if r.At == len(r.Text) || r.Text[r.At] != '"' {
			return errLineHeaders
		}
		value, err := r.word()
		folded[lower], d.headers[string(name)] = true, string(value)
		return err
	})
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
