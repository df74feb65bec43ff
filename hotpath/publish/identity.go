package publish

import (
	"bytes"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/cloudevents"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// ReplayedHeader is true in an answer to a repeat of a message that is stored already.
const ReplayedHeader = "Idempotent-Replayed"

const keyHeader = "Idempotency-Key"

var (
	errMessageID = problem.New(400, "invalid_message_id",
		`A message ID must be 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -, and neither "." nor "..".`)
	errMadeID = problem.New(400, "invalid_message_id", "The message ID has the form of an ID that the broker "+
		"makes: 20 characters of 0-9 a-v, alone or after \"dead.\". Only the broker gives such IDs; choose another, for "+
		"example one with a hyphen.")
	errLongID = problem.Newf(400, "invalid_message_id", "In a channel with identity=producer a message ID has at "+
		"most %d bytes.", durable.MaxProducerID)
	errKey = problem.New(400, "invalid_idempotency_key",
		`Idempotency-Key must occur once, and be 1 to 255 visible ASCII characters, in double quotes or without.`)
	errIdentities = problem.New(400, "invalid_idempotency_key", "The request has both X-Broker-Message-ID and "+
		"Idempotency-Key; send one of them.")
	errLinesID  = problem.New(400, "invalid_message_id", "In a batch each line has its own MessageID.")
	errBatchKey = problem.New(400, "invalid_idempotency_key", "A batch has no Idempotency-Key: each line has its own "+
		"MessageID.")
)

func (d *Draft) setID(text []byte) error {
	if len(text) > 0 {
		if err := checkID(string(text)); err != nil {
			return err
		}
	}
	d.messageID = string(text)
	return nil
}

// readKey reads an Idempotency-Key. The message ID was read before.
func (d *Draft) readKey(h *fasthttp.RequestHeader) (err error) {
	key := h.Peek(keyHeader)
	switch {
	case key == nil:
		return nil
	case d.messageID != "" && len(key) > 0:
		return errIdentities
	case len(h.PeekAll(keyHeader)) > 1:
		return errKey
	}
	d.idempotencyKey, err = parseKey(key)
	return err
}

// eventKey returns the Key of a CloudEvent.
func eventKey(id cloudevents.ID, ch *catalogue.Channel, producer *durable.Producer) string {
	var no uint32
	if ch.Intake.Identity == policy.IdentityProducer {
		no = producer.No
	}
	return durable.EventKey(no, id.Source, id.ID)
}

// KeyOf returns the Key of a message with that ID of its producer, "" for none.
func KeyOf(id string, ch *catalogue.Channel, producer *durable.Producer) (string, error) {
	if id == "" {
		return "", nil
	}
	err := checkID(id)
	switch {
	case err != nil:
		return "", err
	case ch.Intake.Identity != policy.IdentityProducer:
		return id, nil
	case len(id) > durable.MaxProducerID:
		return "", errLongID
	}
	return durable.ProducerKey(producer.No, id), nil
}

// checkID refuses what a producer may not give a message as its ID: no way in takes another check.
func checkID(id string) error {
	switch {
	case !ident.ValidName(id):
		return errMessageID
	case ident.Made(id):
		return errMadeID
	}
	return nil
}

// parseKey reads an Idempotency-Key: a string of RFC 8941, or the same without quotes.
func parseKey(b []byte) (string, error) {
	if len(b) > 0 && b[0] == '"' {
		if len(b) < 2 || b[len(b)-1] != '"' {
			return "", errKey
		}
		b = b[1 : len(b)-1]
		if bytes.IndexByte(b, '\\') >= 0 {
			out := make([]byte, 0, len(b))
			for i := 0; i < len(b); i++ {
				if b[i] == '\\' {
					if i++; i == len(b) || b[i] != '"' && b[i] != '\\' {
						return "", errKey
					}
				} else if b[i] == '"' {
					return "", errKey
				}
				out = append(out, b[i])
			}
			b = out
		} else if bytes.IndexByte(b, '"') >= 0 {
			return "", errKey
		}
	}
	if len(b) == 0 || len(b) > 255 {
		return "", errKey
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return "", errKey
		}
	}
	return string(b), nil
}

// repeated returns the stored message that a message repeats, and the status of the answer, where
// the repeat is no error: the first answer again for an Idempotency-Key, and 200 in a channel that
// acknowledges duplicates.
func repeated(msg *durable.Message, in policy.Intake, err error) (stored durable.Message, status int) {
	var dup *durable.DuplicateError
	if !errors.As(err, &dup) {
		return *msg, 0
	}
	stored = durable.Message{ID: dup.ID, Key: msg.Key}
	switch {
	case msg.Idempotent():
		return stored, fasthttp.StatusCreated
	case in.Duplicates == policy.Acknowledge:
		return stored, fasthttp.StatusOK
	}
	return stored, 0
}

// appendScheduledURL appends the path of a schedule.
func appendScheduledURL(b []byte, channelID string, m *durable.Message) []byte {
	b = append(b, "/channel/"...)
	b = append(b, channelID...)
	b = append(b, "/scheduled-message/"...)
	return m.AppendPathID(b)
}

// appendMessageURL appends the path of a message.
func appendMessageURL(b []byte, channelID string, m *durable.Message) []byte {
	b = append(b, "/channel/"...)
	b = append(b, channelID...)
	b = append(b, "/message/"...)
	return m.AppendPathID(b)
}
