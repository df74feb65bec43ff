package penstock

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// ErrNoResponse: the message of a request is stored, and no consumer has responded in time. Responses reads
// what comes later.
var ErrNoResponse = errors.New("penstock: the message is stored, and there is no response yet")

// A Response is what a consumer has answered to a message.
type Response struct {
	MessageID  string
	ConsumerID string
	// ARRIVED, DELIVERED_TO_RECEIVER, RESPONSE_RECEIVED_FROM_RECEIVER, RESPONSE_DELIVERED_TO_SENDER or FAILED
	State       string
	Status      int // of the consumer's answer; 0: none
	Headers     map[string]string
	ContentType string
	Body        []byte
	Truncated   bool   // the body was longer than the consumer's responseMaxBytes
	Reason      string // of FAILED
}

// Request publishes a message and waits for the first response, up to 60 s (wait 0: 10 s). ErrNoResponse: none
// came in time. An *Error with the code response_failed or response_late: there will be none. With no_responder
// nothing was stored. The message is stored once, however often its answer is lost.
func (c *Client) Request(ctx context.Context, channel string, m Message, wait time.Duration) (*Response, error) {
	if m.ID == "" {
		m.ID = newID()
	}
	if wait <= 0 {
		wait = 10 * time.Second
	}
	seconds := int(min(max(wait.Round(time.Second), time.Second), time.Minute) / time.Second)
	var got *Response
	err := again(ctx, c.o.Tries, func() error {
		return c.act(ctx, role{channel: channel}, func(h http.Header) error {
			if err := m.header(h); err != nil {
				return err
			}
			h.Set("Prefer", "wait="+strconv.Itoa(seconds))
			q := call{method: http.MethodPost, path: channelPath(channel) + "/request", header: h, body: m.Payload,
				wait: time.Duration(seconds) * time.Second}
			a, err := c.once(ctx, q)
			if err == nil {
				got, err = responded(q, m.ID, a)
			}
			return err
		})
	})
	if CodeOf(err) == "duplicate_message_id" { // the answer to the first try is lost
		return c.firstResponse(ctx, channel, m.ID, wait)
	}
	return got, err
}

// responded reads the answer to a request.
func responded(q call, id string, a *answer) (*Response, error) {
	if a.status == http.StatusAccepted {
		return nil, ErrNoResponse
	}
	status, err := strconv.Atoi(a.header.Get("X-Broker-Response-Status"))
	if err != nil {
		return nil, q.failed(fmt.Errorf("the answer %d is no response of a consumer", a.status))
	}
	r := &Response{MessageID: id, ConsumerID: a.header.Get("X-Broker-Consumer-Id"), Status: status, Body: a.body,
		State: "RESPONSE_RECEIVED_FROM_RECEIVER", ContentType: a.header.Get("Content-Type"), Headers: map[string]string{},
		Truncated: a.header.Get("X-Broker-Response-Truncated") == "true"}
	for name := range a.header {
		r.Headers[name] = a.header.Get(name)
	}
	return r, nil
}

func (c *Client) firstResponse(ctx context.Context, channel, id string, wait time.Duration) (*Response, error) {
	all, _, err := c.Responses(ctx, channel, id, "first", wait)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Status != 0 && all[i].State != "FAILED" {
			return &all[i], nil
		}
	}
	return nil, ErrNoResponse
}

// Responses returns the responses to a message of this producer, one for each consumer that responds. It
// waits up to wait (at most 60 s) until "first", "quorum:N" or "all" is true. complete: nothing more will
// come.
func (c *Client) Responses(ctx context.Context, channel, messageID, until string, wait time.Duration) (all []Response,
	complete bool, err error) {
	query := url.Values{}
	if wait > 0 {
		query.Set("wait", min(wait, time.Minute).Round(time.Millisecond).String())
		query.Set("until", until)
	}
	path := channelPath(channel) + "/message/" + url.PathEscape(messageID) + "/responses?" + query.Encode()
	q := call{method: http.MethodGet, path: path, wait: wait}
	var page struct {
		Result []struct {
			Response
			Body, BodyEncoding string
		}
		Complete bool
	}
	err = again(ctx, c.o.Tries, func() error {
		return c.act(ctx, role{channel: channel}, func(h http.Header) error {
			q.header = h
			a, err := c.once(ctx, q)
			if err == nil {
				err = q.decode(a, &page)
			}
			return err
		})
	})
	for _, entry := range page.Result {
		r := entry.Response
		r.MessageID, r.Body, r.ContentType = messageID, []byte(entry.Body), r.Headers["Content-Type"]
		if entry.BodyEncoding == "base64" && err == nil {
			r.Body, err = base64.StdEncoding.DecodeString(entry.Body)
		}
		all = append(all, r)
	}
	return all, page.Complete, err
}

// Respond posts the response of a pull consumer to a message. A second response is an *Error with the code
// response_exists, also where the answer to the first was lost.
func (c *Client) Respond(ctx context.Context, channel, consumer, messageID, contentType string, body []byte) error {
	path := channelPath(channel) + "/message/" + url.PathEscape(messageID) + "/response"
	return again(ctx, c.o.Tries, func() error {
		return c.act(ctx, role{channel: channel, consumer: consumer}, func(h http.Header) error {
			h.Set("Content-Type", contentType)
			h.Set("X-Broker-Consumer-ID", consumer)
			_, err := c.once(ctx, call{method: http.MethodPost, path: path, header: h, body: body})
			return err
		})
	})
}
