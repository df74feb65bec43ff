package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/penstock-broker/penstock/bench/rawhttp"
)

// A subject has the resources that a measurement creates in the broker. Their names are new, so
// earlier measurements do not interfere.
type subject struct {
	producer, producerToken string
	channels                []string
	channelToken            string
	consumers               []subscriber // as in LedgerOptions.Consumers
	channel, policy         []string     // field=value of each channel, and of each consumer
	made                    int          // of the producer, the channels and the consumers, in this order
}

// A subscriber is one consumer of the subject.
type subscriber struct {
	channel, channelToken string
	index                 int // of the channel
	id, token             string
	pull                  bool
}

func (s subscriber) path() string { return "/channel/" + s.channel + "/consumer/" + s.id }

func newSubject(run uint64, c *Config) *subject {
	name := fmt.Sprintf("bench-%016x", run)
	s := &subject{producer: name, producerToken: name + "-p", channelToken: name + "-c", channel: c.Channel,
		policy: c.Policy}
	for i := range c.Channels {
		ch := fmt.Sprintf("%s-%d", name, i)
		s.channels = append(s.channels, ch)
		for k := range c.PushConsumers {
			s.consumers = append(s.consumers, subscriber{channel: ch, channelToken: s.channelToken, index: i,
				id: fmt.Sprintf("%s-push-%d", ch, k), token: name + "-k"})
		}
		if c.PullWorkers > 0 {
			s.consumers = append(s.consumers, subscriber{channel: ch, channelToken: s.channelToken, index: i,
				id: ch + "-pull", token: name + "-k", pull: true})
		}
	}
	return s
}

// create registers all resources. callback returns the URL of a push consumer.
func (s *subject) create(ctx context.Context, c *Control, callback func(consumer int) string) error {
	if err := s.put(ctx, c, "/producer/"+s.producer, url.Values{"token": {s.producerToken}}); err != nil {
		return err
	}
	for _, ch := range s.channels {
		form := url.Values{"token": {s.channelToken}}
		setFields(form, s.channel)
		if err := s.put(ctx, c, "/channel/"+ch, form); err != nil {
			return err
		}
	}
	for i, k := range s.consumers {
		form := url.Values{"token": {k.token}, "type": {"pull"}}
		if !k.pull {
			form.Set("type", "push")
			form.Set("callbackUrl", callback(i))
		}
		setFields(form, s.policy)
		if err := s.put(ctx, c, k.path(), form); err != nil {
			return err
		}
	}
	return nil
}

// put makes the next resource. One that was not refused may be there, also without an answer.
func (s *subject) put(ctx context.Context, c *Control, path string, form url.Values) error {
	err := c.Put(ctx, path, form)
	var refused statusError
	if !errors.As(err, &refused) {
		s.made++
	}
	return err
}

// remove deletes what was made, in the opposite order.
func (s *subject) remove(ctx context.Context, c *Control) error {
	paths := []string{"/producer/" + s.producer}
	for _, ch := range s.channels {
		paths = append(paths, "/channel/"+ch)
	}
	for _, k := range s.consumers {
		paths = append(paths, k.path())
	}
	for ; s.made > 0; s.made-- {
		if err := c.Delete(ctx, paths[s.made-1]); err != nil {
			return err
		}
	}
	return nil
}

// setFields adds fields in the form field=value, which were checked.
func setFields(form url.Values, fields []string) {
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		form.Set(name, value)
	}
}

func (s *subject) subscriptions() []Subscription {
	var out []Subscription
	for _, k := range s.consumers {
		out = append(out, Subscription{Channel: k.index, Name: k.id})
	}
	return out
}

// publishTemplate is the unchanging part of a POST to a route of a channel.
func (s *subject) publishTemplate(channel int, route, host, contentType string, fields ...string) *rawhttp.Template {
	fields = append([]string{
		"Content-Type", contentType,
		"X-Broker-Channel-Token", s.channelToken,
		"X-Broker-Producer-ID", s.producer,
		"X-Broker-Producer-Token", s.producerToken,
	}, fields...)
	return rawhttp.NewTemplate("POST", "/channel/"+s.channels[channel]+"/"+route, host, fields...)
}

// consumerTemplate is the unchanging part of a request of a pull worker.
func (k subscriber) template(method, route, host string) *rawhttp.Template {
	return rawhttp.NewTemplate(method, k.path()+route, host, k.fields()...)
}

func (k subscriber) fields() []string {
	return []string{"Content-Type", "application/json", "X-Broker-Channel-Token", k.channelToken,
		"X-Broker-Consumer-Token", k.token}
}
