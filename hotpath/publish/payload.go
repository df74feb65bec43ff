package publish

import (
	"bytes"
	"encoding/base64"
	"errors"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

var (
	errPayloadText   = problem.New(400, "invalid_payload", "Payload is not UTF-8: send such bytes as PayloadBase64.")
	errPayloadBase64 = problem.New(400, "invalid_payload", "PayloadBase64 is not standard base64 with padding.")
	errTwoPayloads   = problem.New(400, "invalid_payload", "The row has a Payload and a PayloadBase64.")
)

func (d *Draft) setText(text []byte) error {
	if d.hasPayload {
		return errTwoPayloads
	}
	d.hasPayload, d.payload = true, append([]byte{}, text...)
	return nil
}

func (d *Draft) setBase64(text []byte) error {
	if d.hasPayload {
		return errTwoPayloads
	}
	if bytes.ContainsAny(text, "\r\n") { // the decoder ignores them
		return errPayloadBase64
	}
	d.hasPayload, d.payload = true, make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(d.payload, text)
	if err != nil {
		return errPayloadBase64
	}
	d.payload = d.payload[:n]
	return nil
}

// readText reads a Payload, into the memory that it is kept in.
func (d *Draft) readText() error {
	quoted, err := d.in.quoted()
	if d.hasPayload {
		return errLine
	}
	if err != nil {
		return err
	}
	text, err := unquote(quoted)
	switch {
	case errors.Is(err, errLineText), err == nil && !utf8.Valid(text):
		return errPayloadText
	case err != nil:
		return err
	case len(text) == len(quoted)-2: // a part of the line
		text = append([]byte{}, text...)
	}
	d.hasPayload, d.payload = true, text
	return nil
}

// readBase64 reads a PayloadBase64.
func (d *Draft) readBase64() error {
	text, err := d.in.text()
	switch {
	case d.hasPayload:
		return errLine
	case err != nil:
		return err
	}
	return d.setBase64(text)
}
