package penstock

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// mostResponse bounds the JSON of a response that goes along with a report, bytes.
const mostResponse = 64 << 10

// A response is the part of an update that says what the response to the message is.
type response struct {
	Response       *string `json:",omitempty"`
	ResponseBase64 *string `json:",omitempty"`
	ResponseType   string  `json:",omitempty"`
	size           int
}

// bytes returns about how much JSON a response takes; 0 of none.
func (r *response) bytes() int {
	if r == nil {
		return 0
	}
	return r.size
}

// responseOf returns a response, nil where it is too large for a report.
func responseOf(contentType string, body []byte) (*response, error) {
	if len(body) > mostResponse {
		return nil, nil
	}
	r, text := &response{ResponseType: contentType}, string(body)
	if r.Response = &text; !utf8.Valid(body) {
		text = base64.StdEncoding.EncodeToString(body)
		r.Response, r.ResponseBase64 = nil, &text
	}
	encoded, err := plainJSON(text)
	if err != nil || len(encoded) > mostResponse {
		return nil, err
	}
	r.size = len(encoded) + len(contentType)
	return r, nil
}

// Respond sets the response of the queue's consumer to the message, which must have responses on. The broker
// stores it with the report, once the handler has returned nil; the last call before that counts. A response
// whose JSON is larger than 64 KiB is posted at once, as is one after the handler has returned: the first
// response that the broker has counts.
func (d *Delivery) Respond(ctx context.Context, contentType string, body []byte) error {
	if len(contentType) > 255 || strings.ContainsFunc(contentType, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return errors.New("penstock: a content type has at most 255 bytes and no control characters")
	}
	r, err := responseOf(contentType, body)
	if err != nil {
		return err
	}
	w := d.worker
	w.leases.mu.Lock()
	set := r != nil && !d.reported
	if set {
		d.response = r
	}
	w.leases.mu.Unlock()
	if set {
		return nil
	}
	err = w.c.Respond(ctx, w.channel, w.consumer, d.MessageID, contentType, body)
	if CodeOf(err) == "response_exists" { // of an earlier attempt, or the answer to this one was lost
		return nil
	}
	return err
}
