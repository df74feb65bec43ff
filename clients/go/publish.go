package penstock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// A Receipt says that the broker has a message.
type Receipt struct {
	MessageID string
	Location  string // path of the message, of the scheduled message, or of the receipt of a journal
	Ack       string // what the broker promises: durable, journal or replicated
	Duplicate bool   // an earlier copy of this request had stored it
	// Nobody: the message has no job, because the channel has no consumer, or their filters leave it out.
	Nobody bool
}

// Publish stores a message and returns when the broker has it on disk. With At, Delay or Recurrence it is a
// scheduled message. The request is repeated with the same ID where its outcome is unknown; *Error
// afterwards: with Status 0 or 503 outcome_unknown the message may be stored, and a Publish with the same
// ID finds out.
//
// The producer and the channel are made where management is open. A channel without consumers takes
// messages, too: they have no jobs.
func (c *Client) Publish(ctx context.Context, channel string, m Message) (Receipt, error) {
	return c.publish(ctx, role{channel: channel}, m)
}

// Enqueue publishes a job to a queue: consumer q of channel q, which are made where management is open.
func (c *Client) Enqueue(ctx context.Context, queue string, j Job) (Receipt, error) {
	m, err := j.message()
	if err != nil {
		return Receipt{}, err
	}
	return c.publish(ctx, role{channel: queue, makeConsumer: queue}, m)
}

func (c *Client) publish(ctx context.Context, r role, m Message) (done Receipt, err error) {
	if m.ID == "" {
		m.ID = newID()
	}
	err = again(ctx, c.o.Tries, func() error {
		return c.act(ctx, r, func(h http.Header) error {
			if err := m.header(h); err != nil {
				return err
			}
			q := call{method: http.MethodPost, path: channelPath(r.channel) + "/broadcast", header: h, body: m.Payload}
			a, err := c.once(ctx, q)
			done, err = receipt(q, m.ID, a, err)
			return err
		})
	})
	return done, err
}

// receipt reads the answer to a publish. Answers without a Location are none of a broker.
func receipt(q call, id string, a *answer, err error) (Receipt, error) {
	e := (*Error)(nil)
	if errors.As(err, &e) && e.Code == "duplicate_message_id" {
		return Receipt{MessageID: id, Location: e.location, Duplicate: true}, nil
	}
	if err != nil {
		return Receipt{}, err
	}
	r := Receipt{MessageID: id, Location: a.header.Get("Location"), Ack: a.header.Get("X-Broker-Ack"),
		Duplicate: a.status == http.StatusOK, Nobody: a.header.Get("X-Broker-Recipients") == "0"}
	if !strings.HasPrefix(r.Location, "/") {
		return Receipt{}, q.failed(fmt.Errorf("the answer %d has no Location of a broker", a.status))
	}
	return r, nil
}
