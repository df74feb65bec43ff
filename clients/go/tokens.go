package penstock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Names of headers.
const (
	headerAdminToken    = "X-Broker-Admin-Token"
	headerChannelToken  = "X-Broker-Channel-Token"
	headerProducerID    = "X-Broker-Producer-Id"
	headerProducerToken = "X-Broker-Producer-Token"
	headerConsumerToken = "X-Broker-Consumer-Token"
)

func producerPath(id string) string     { return "/producer/" + url.PathEscape(id) }
func channelPath(id string) string      { return "/channel/" + url.PathEscape(id) }
func consumerPath(ch, id string) string { return channelPath(ch) + "/consumer/" + url.PathEscape(id) }

// A role is what a request acts as: the resources whose tokens it needs.
type role struct {
	channel      string
	consumer     string // "": as producer
	makeConsumer string // of a producer: the consumer that must be there, too
}

// keys returns the headers by which a request acts in a role. What has no token in the options is made, or
// read, where the broker allows that.
func (c *Client) keys(ctx context.Context, r role) (http.Header, error) {
	if r.channel == "" {
		return nil, errors.New("penstock: the channel or queue has no name")
	}
	h := http.Header{}
	set := func(name, given, path string, put func(context.Context, string) (string, error)) error {
		token, err := given, error(nil)
		if token == "" {
			token, err = c.token(ctx, path, put)
		}
		if err == nil {
			h[name] = []string{token}
		}
		return err
	}
	if err := set(headerChannelToken, c.o.ChannelToken, channelPath(r.channel), c.putEmpty); err != nil {
		return nil, err
	}
	if r.consumer != "" {
		return h, set(headerConsumerToken, c.o.ConsumerToken, consumerPath(r.channel, r.consumer), c.putPull)
	}
	h[headerProducerID] = []string{c.o.ProducerID}
	if err := set(headerProducerToken, c.o.ProducerToken, producerPath(c.o.ProducerID), c.putEmpty); err != nil {
		return nil, err
	}
	if r.makeConsumer != "" && c.o.ChannelToken == "" && c.o.ConsumerToken == "" {
		_, err := c.token(ctx, consumerPath(r.channel, r.makeConsumer), c.putPull)
		return h, err
	}
	return h, nil
}

// act calls f with the keys of a role. Where the broker refuses tokens that it told, because they were
// changed or what they belong to is gone, the tokens are asked anew, once.
func (c *Client) act(ctx context.Context, r role, f func(http.Header) error) error {
	h, err := c.keys(ctx, r)
	if err != nil {
		return err
	}
	if err = f(h); !stale(err) || !c.forget(r) {
		return err
	}
	if h, err = c.keys(ctx, r); err != nil {
		return err
	}
	return f(h)
}

// stale reports whether the tokens of a request do not count any more.
func stale(err error) bool {
	switch CodeOf(err) {
	case "channel_not_found", "producer_not_found", "consumer_not_found", "channel_token_mismatch",
		"producer_token_mismatch", "consumer_token_mismatch":
		return true
	}
	return false
}

// forget drops the tokens of a role that the broker told, and reports whether there were any.
func (c *Client) forget(r role) (some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, path := range []string{channelPath(r.channel), producerPath(c.o.ProducerID),
		consumerPath(r.channel, r.consumer), consumerPath(r.channel, r.makeConsumer)} {
		_, has := c.tokens[path]
		some = some || has
		delete(c.tokens, path)
	}
	return some
}

// token returns the token of a resource, which put makes or reads.
func (c *Client) token(ctx context.Context, path string, put func(context.Context, string) (string, error)) (string,
	error) {
	c.mu.Lock()
	token := c.tokens[path]
	c.mu.Unlock()
	if token != "" {
		return token, nil
	}
	err := again(ctx, c.o.Tries, func() (err error) {
		token, err = put(ctx, path)
		return err
	})
	if err != nil {
		return "", c.unmanaged(err, path)
	}
	c.mu.Lock()
	c.tokens[path] = token
	c.mu.Unlock()
	return token, nil
}

// A shown is what every resource shows.
type shown struct{ Token, Type string }

// putEmpty makes a producer or channel, or changes nothing where there is one. The answer has its token
// in both cases, so clients that start together get the same one.
func (c *Client) putEmpty(ctx context.Context, path string) (string, error) {
	var s shown
	_, err := c.managed(ctx, call{method: http.MethodPut, path: path}, &s)
	return s.Token, err
}

// putPull makes a pull consumer. One that exists is read, because a PUT would change its type.
func (c *Client) putPull(ctx context.Context, path string) (string, error) {
	for range 3 { // it may be deleted in between
		var s shown
		form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "If-None-Match": {"*"}}
		q := call{method: http.MethodPut, path: path, header: form, body: []byte("type=pull")}
		_, err := c.managed(ctx, q, &s)
		if CodeOf(err) == "precondition_failed" {
			_, err = c.managed(ctx, call{method: http.MethodGet, path: path}, &s)
			if CodeOf(err) == "consumer_not_found" {
				continue
			}
		}
		if err == nil && s.Type != "pull" {
			err = fmt.Errorf("penstock: %s is a push consumer; a worker needs a pull consumer", path)
		}
		return s.Token, err
	}
	return "", fmt.Errorf("penstock: %s comes and goes", path)
}

// managed sends a management request and reads the JSON of its answer.
func (c *Client) managed(ctx context.Context, q call, to any) (*answer, error) {
	if q.header == nil {
		q.header = http.Header{}
	}
	if c.o.AdminToken != "" {
		q.header[headerAdminToken] = []string{c.o.AdminToken}
	}
	a, err := c.once(ctx, q)
	if err == nil && to != nil {
		err = q.decode(a, to)
	}
	if s, ok := to.(*shown); ok && err == nil && s.Token == "" {
		e := q.failed(nil)
		e.Status, e.Code = a.status, tokenNotShown
		err = e
	}
	return a, err
}

// tokenNotShown is the code of an error of this client: the broker shows a token only to who makes its resource.
const tokenNotShown = "token_not_shown"

// unmanaged says what to do where the broker keeps its management, or its tokens, to itself.
func (c *Client) unmanaged(err error, path string) error {
	e := (*Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	why := "does not let this client make or read %s: set PENSTOCK_ADMIN_TOKEN, or"
	switch e.Code {
	case "token_missing", "admin_disabled", "admin_token_mismatch", "host_not_allowed", "origin_not_allowed":
	case tokenNotShown:
		why = "does not show the token of %s, which was there before (BROKER_SHOW_TOKENS): set"
	default:
		return err
	}
	with := *e
	with.Detail = fmt.Sprintf("the broker at %s "+why+" the tokens PENSTOCK_CHANNEL_TOKEN and PENSTOCK_CONSUMER_TOKEN "+
		"(of a producer: PENSTOCK_PRODUCER_ID and PENSTOCK_PRODUCER_TOKEN)", c.base, path)
	return &with
}
