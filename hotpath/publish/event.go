package publish

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metadata"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// parseFactor is how many times the memory of an event its parsing takes, at most.
const parseFactor = 3

var errAttributeTwice = problem.New(400, "invalid_cloudevent", "CloudEvents: an attribute stands in two headers.")

// eventProblem returns the problem of an error of package cloudevents.
func eventProblem(err error) error {
	var wrong *cloudevents.Error
	switch {
	case errors.Is(err, cloudevents.ErrFormat):
		return problem.Newf(415, "unsupported_media_type", "CloudEvents: %s.", err)
	case errors.As(err, &wrong):
		return problem.Newf(400, "invalid_cloudevent", "%s", err)
	}
	return err
}

// eventMode returns how the request contains events.
func eventMode(h *fasthttp.RequestHeader) (cloudevents.Mode, error) {
	mode, err := cloudevents.ModeOf(h.ContentType())
	if err != nil || mode != cloudevents.None {
		return mode, eventProblem(err)
	}
	for name := range h.All() {
		if cloudevents.IsAttribute(name) {
			return cloudevents.Binary, nil
		}
	}
	return cloudevents.None, nil
}

// binaryEvent reads an event in binary mode. It returns its ID and the names of its headers.
func binaryEvent(h *fasthttp.RequestHeader) (id cloudevents.ID, names []string, err error) {
	attributes := map[string]string{}
	for name, value := range h.All() {
		if !cloudevents.IsAttribute(name) {
			continue
		}
		lower := strings.ToLower(string(name))
		attribute := lower[len(cloudevents.Prefix):]
		if _, twice := attributes[attribute]; twice {
			return id, nil, errAttributeTwice
		}
		if len(names) == metadata.MaxNames {
			return id, nil, metadata.ErrSize
		}
		attributes[attribute] = string(value)
		if len(value) > 0 { // an attribute is never empty
			names = append(names, lower)
		}
	}
	slices.Sort(names)
	id, err = cloudevents.ParseBinary(attributes)
	return id, names, eventProblem(err)
}

// parseEvent checks an event in JSON of a key. It takes the memory for it from the bound.
func (p *Publisher) parseEvent(k share.Key, text []byte) (cloudevents.ID, error) {
	more := int64(parseFactor * len(text))
	if !p.bytes.Take(k, more) {
		return cloudevents.ID{}, problem.ErrOverloaded
	}
	defer p.bytes.Give(k, more)
	id, err := cloudevents.Parse(text)
	return id, eventProblem(err)
}

// parseCodedEvent checks the event in JSON that is the payload of a message, once its codings are
// undone.
func (p *Publisher) parseCodedEvent(k share.Key, m *durable.Message) (cloudevents.ID, error) {
	text, held, err := p.decoded(k, m.ContentEncoding(), m.Payload)
	defer func() { p.bytes.Give(k, held) }()
	if err != nil {
		return cloudevents.ID{}, err
	}
	return p.parseEvent(k, text)
}

// event sets the properties that an event of a batch has.
func (b *batch) event(d *Draft, text []byte) (err error) {
	if len(text) > b.p.maxBody {
		return errBodyTooLarge
	}
	d.contentType, d.payload = cloudevents.StructuredType, bytes.Clone(text)
	d.event, err = b.p.parseEvent(b.key(), text)
	return err
}
