package pull

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsonread"
)

// A worker of a consumer with responses on posts its response to the message, or brings it along with
// the report of the job, as the members Response or ResponseBase64, and ResponseType. Then it is stored
// in the transaction that ends the job, so a crash leaves both or nothing.

// maxResponseType bounds a ResponseType, bytes: replies are messages, with the content type of one.
const maxResponseType = 255

var (
	errResponse = problem.New(400, "invalid_response", "Response, ResponseBase64 and ResponseType are texts, and one of "+
		"Response and ResponseBase64 has the response.")
	errResponseBase64 = problem.New(400, "invalid_response", "ResponseBase64 is no base64.")
	errResponseState  = problem.New(400, "invalid_response",
		"Response, ResponseBase64 and ResponseType go only with DELIVERED.")
	errResponseType = problem.Newf(400, "invalid_response",
		"ResponseType is a content type of at most %d bytes, without control characters.", maxResponseType)
	errResponsesOff = problem.New(400, "invalid_response",
		"The consumer has responses off, so its response is not kept. Report without one, or set responses.")
	errResponseRoom = &problem.Problem{Status: 503, Code: "overloaded", RetryAfter: 1,
		Detail: "Too many responses of the consumer wait for the store. The job was not moved; report it again."}
)

// A said is the response that a report brings along.
type said struct {
	body        []byte
	contentType string
}

// headers has the one header that a report may give its response.
func (s *said) headers(yield func(name, value []byte) bool) {
	if s.contentType != "" {
		yield([]byte("Content-Type"), []byte(s.contentType))
	}
}

// readResponse reads a member of a response. A value of another type refuses its entry, not the body.
func (u *update) readResponse(r *jsonread.Reader, member string) error {
	if r.Kind() != '"' {
		u.misread = true
		_, err := r.Value()
		return err
	}
	read, err := r.Text()
	text := string(read)
	switch member {
	case "Response":
		u.Response = &text
	case "ResponseBase64":
		u.ResponseBase64 = &text
	case "ResponseType":
		u.ResponseType = text
	}
	return err
}

// responds reports whether the entry has a member of a response.
func (u *update) responds() bool {
	return u.misread || u.Response != nil || u.ResponseBase64 != nil || u.ResponseType != ""
}

// hear takes the response that an entry brings along, if it may.
func (p *Puller) hear(ch *catalogue.Channel, k *durable.Consumer, e *update) (err error) {
	if !e.responds() {
		return nil
	}
	s := said{contentType: strings.Trim(e.ResponseType, " \t")}
	control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
	switch {
	case e.misread, (e.Response == nil) == (e.ResponseBase64 == nil):
		return errResponse
	case len(s.contentType) > maxResponseType || strings.ContainsFunc(s.contentType, control):
		return errResponseType
	case !p.responds(ch, k):
		return errResponsesOff
	case e.Response != nil:
		s.body = []byte(*e.Response)
	default:
		if s.body, err = base64.StdEncoding.DecodeString(*e.ResponseBase64); err != nil {
			return errResponseBase64
		}
	}
	e.said = &s
	return nil
}

// responds reports whether the responses of a consumer are kept.
func (p *Puller) responds(ch *catalogue.Channel, k *durable.Consumer) bool {
	return p.policies.Of(k.Policy).Responses != policy.ResponsesOff && !ident.Reserved(ch.ID)
}

// exchange returns the exchange of a delivered job whose consumer has responses on: with the response
// that its report brings along, or one that awaits it. nil: there is none.
func (m *move) exchange(attempt int, atMs int64) *durable.Exchange {
	if !m.p.responds(m.ch, m.k) {
		return nil
	}
	d := exchange.Delivery{Consumer: m.k, Policy: m.p.policies.Of(m.k.Policy), ID: m.id, Producer: true, Attempt: attempt,
		AtMs: atMs}
	if s := m.e.said; s != nil {
		return d.Responded(s.body, s.headers)
	}
	return d.Awaited()
}

// post stores the response that comes with a repeated report, unless the message has one: the report
// that ended the job brought none along, or the answer to it was lost.
func (m *move) post(ctx context.Context) error {
	if m.e.said == nil {
		return nil
	}
	err := m.p.store.PostExchange(ctx, *m.exchange(0, m.p.nowMs()))
	if errors.Is(err, durable.ErrDuplicate) {
		return nil
	}
	if err == nil {
		m.p.answered(m.k.No, m.id)
	}
	return err
}

// roomFor takes the memory of a response until it is stored. nil: it needs none.
func (p *Puller) roomFor(k *durable.Consumer, e *durable.Exchange) (*exchange.Taken, error) {
	if e == nil || len(e.Body) == 0 {
		return nil, nil
	}
	taken := p.room.Begin(k, int64(len(e.Body)), len(e.Body))
	if taken == nil {
		return nil, errResponseRoom
	}
	return taken, nil
}
