package ctl

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// publishFlags are those of publish.
type publishFlags struct {
	file, producer, mediaType, id, key string
	priority                           int
	delay                              time.Duration
	at, recurrence                     string
	headers, consumers                 []string
}

func (s *session) publish() *cobra.Command { return s.publishing("ctl", s.send) }

// publishing is a command that publishes. send gets what its arguments and flags say.
func (s *session) publishing(producer string, send func(*cobra.Command, string, string, penstock.Message) error,
) *cobra.Command {
	var o publishFlags
	c := leaf{use: "publish CHANNEL [PAYLOAD]", about: "publish a message to a channel that there is",
		long: "The message is on disk when the command ends with 0. It is of the producer ctl, which the first one makes.\n" +
			"Where the broker does not show tokens (BROKER_SHOW_TOKENS), they are in PENSTOCK_CHANNEL_TOKEN and\n" +
			"PENSTOCK_PRODUCER_TOKEN, or in files that PENSTOCK_CHANNEL_TOKEN_FILE and PENSTOCK_PRODUCER_TOKEN_FILE name.",
		examples: "broker ctl publish orders '{\"order\":1}'\nbroker ctl publish orders -f message.json --id order-2\n" +
			"broker ctl publish orders hello --delay 10m --header X-Kind=test\n" +
			"broker ctl publish orders daily --recurrence 'cron:TZ=Europe/Warsaw 0 8 * * *'",
		least: 1, most: 2, complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
			if err := id("channel", args[0]); err != nil {
				return err
			}
			m, err := o.message(s, args[1:])
			if err != nil {
				return err
			}
			return send(c, args[0], o.producer, m)
		}}.command()
	o.flags(c, producer)
	f := c.Flags()
	f.DurationVar(&o.delay, "delay", 0, "send it so much later, `10m`")
	f.StringVar(&o.at, "at", "", "send it at that `TIME`, RFC 3339")
	f.StringVar(&o.recurrence, "recurrence", "", "send it again and again: `cron:30 9 * * 1-5`, or R5/START/PT1H")
	f.StringSliceVar(&o.consumers, "consumer", nil, "`ID` of a consumer that gets it, instead of all")
	return c
}

// flags are those of publish and of request. producer is the default.
func (o *publishFlags) flags(c *cobra.Command, producer string) {
	f := c.Flags()
	f.StringVarP(&o.file, "file", "f", "", "`FILE` with the payload; - is the standard input")
	f.StringVar(&o.producer, "producer", producer, "`ID` of the producer")
	f.StringVar(&o.mediaType, "type", "", "content `TYPE`; JSON and text are found out")
	f.StringVar(&o.id, "id", "", "message `ID`: a message is stored once under it")
	f.StringVar(&o.key, "ordering-key", "", "ordering `KEY`")
	f.IntVar(&o.priority, "priority", 0, "`NUMBER` from 0 to 1023, higher first")
	f.StringArrayVar(&o.headers, "header", nil, "metadata `NAME=VALUE`, for the consumers")
}

// message is what is published.
func (o *publishFlags) message(s *session, payload []string) (m penstock.Message, err error) {
	m = penstock.Message{ID: o.id, ContentType: o.mediaType, Priority: o.priority, OrderingKey: o.key, Delay: o.delay,
		Recurrence: o.recurrence, Consumers: o.consumers, Headers: map[string]string{}}
	if err := timesOf(o.at); err != nil {
		return m, err
	}
	m.At, _ = time.Parse(time.RFC3339, o.at) // the zero time where there is none
	switch {
	case len(payload) == 1 && o.file != "":
		return m, wrong("PAYLOAD and -f are two payloads")
	case len(payload) == 1:
		m.Payload = []byte(payload[0])
	case o.file == "":
		return m, wrong("the payload is missing: PAYLOAD, or -f FILE")
	default:
		if m.Payload, err = s.read(o.file); err != nil {
			return m, err
		}
	}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, "=")
		if _, twice := m.Headers[name]; !ok || name == "" || twice {
			return m, wrong("%q is no NAME=VALUE of its own", h)
		}
		m.Headers[name] = value
	}
	if m.ContentType == "" {
		switch {
		case json.Valid(m.Payload):
			m.ContentType = "application/json"
		case utf8.Valid(m.Payload):
			m.ContentType = "text/plain; charset=utf-8"
		}
	}
	return m, nil
}

// producing returns a client that publishes as a producer to a channel that there is. The client makes the channel
// that it needs, so a name that is none is refused before.
func (s *session) producing(c *cobra.Command, channel, producer string) (*penstock.Client, error) {
	manager, err := s.manager()
	if err != nil {
		return nil, err
	}
	shown, err := manager.Get(c.Context(), penstock.ChannelPath(channel))
	if err != nil {
		return nil, err
	}
	o := penstock.Options{ProducerID: producer}
	if shown.Token == "" && s.target.profile == "" { // tokens of the environment go to no broker of a profile
		if o.ChannelToken, err = s.environment("PENSTOCK_CHANNEL_TOKEN"); err != nil {
			return nil, err
		}
		if o.ProducerToken, err = s.environment("PENSTOCK_PRODUCER_TOKEN"); err != nil {
			return nil, err
		}
	}
	return s.dial(s.target, o)
}

// send publishes a message.
func (s *session) send(c *cobra.Command, channel, producer string, m penstock.Message) error {
	client, err := s.producing(c, channel, producer)
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := client.Publish(c.Context(), channel, m)
	if err != nil {
		return err
	}
	return s.done(received(r), "%s is published%s", r.MessageID, noteOf(r))
}

// received is a receipt for a program.
func received(r penstock.Receipt) map[string]any {
	return map[string]any{"MessageID": r.MessageID, "Location": r.Location, "Ack": r.Ack, "Duplicate": r.Duplicate,
		"Nobody": r.Nobody}
}

// noteOf is what people should know of a receipt besides.
func noteOf(r penstock.Receipt) string {
	switch {
	case r.Duplicate:
		return "; it was stored already"
	case r.Nobody:
		return "; no consumer gets it"
	}
	return ""
}
