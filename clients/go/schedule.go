package penstock

import (
	"context"
	"net/http"
	"time"
)

// A Scheduled is a message that is sent at its time: Publish with At, Delay or Recurrence makes one, and the
// Location of its Receipt is its path.
type Scheduled struct {
	ID, MessageID, Payload, ContentType string
	Priority                            int
	Status                              string     // SCHEDULED, or DISPATCHED after the last message
	DispatchSchedule                    *time.Time // of the next message
	DispatchedAt                        *time.Time // of the last one
	Recurrence                          string
	Occurrence                          int    // number of the next message of a recurrence
	Reason                              string // why it waits longer
	MessageURL                          string
	Headers                             map[string]string
}

// Scheduled reads a scheduled message of this producer. location is that of its Receipt.
func (c *Client) Scheduled(ctx context.Context, channel, location string) (s Scheduled, err error) {
	err = c.scheduled(ctx, channel, call{method: http.MethodGet, path: location}, nil, &s)
	return s, err
}

// Reschedule changes a scheduled message that waits: what is zero in m stays. An *Error with the code
// already_dispatched: its time has come.
func (c *Client) Reschedule(ctx context.Context, channel, location string, m Message) (s Scheduled, err error) {
	m.ID = ""
	err = c.scheduled(ctx, channel, call{method: http.MethodPut, path: location, body: m.Payload}, &m, &s)
	return s, err
}

// Unschedule deletes a scheduled message before its time. A recurrence ends. One that is not there any more,
// as after a lost answer, is no error.
func (c *Client) Unschedule(ctx context.Context, channel, location string) error {
	err := c.scheduled(ctx, channel, call{method: http.MethodDelete, path: location}, nil, nil)
	if CodeOf(err) == "scheduled_message_not_found" {
		return nil
	}
	return err
}

func (c *Client) scheduled(ctx context.Context, channel string, q call, m *Message, to any) error {
	return again(ctx, c.o.Tries, func() error {
		return c.act(ctx, role{channel: channel}, func(h http.Header) error {
			if m != nil {
				if err := m.header(h); err != nil {
					return err
				}
			}
			q.header = h
			a, err := c.once(ctx, q)
			if err == nil && to != nil {
				err = q.decode(a, to)
			}
			return err
		})
	})
}
