package ctl

import (
	"errors"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

func (s *session) request() *cobra.Command {
	var o publishFlags
	var wait time.Duration
	c := leaf{use: "request CHANNEL [PAYLOAD]", about: "publish a message and print the first response to it",
		long: "A consumer of the channel must have responses on. The exit code is 2 where none has come in time: the\n" +
			"message is stored then all the same.",
		examples: "broker ctl request orders '{\"order\":1}'\nbroker ctl request orders -f message.json --wait 30s --json",
		least:    1, most: 2, complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
			if err := id("channel", args[0]); err != nil {
				return err
			}
			m, err := o.message(s, args[1:])
			if err != nil {
				return err
			}
			client, err := s.producing(c, args[0], o.producer)
			if err != nil {
				return err
			}
			defer client.Close()
			r, err := client.Request(c.Context(), args[0], m, wait)
			if errors.Is(err, penstock.ErrNoResponse) {
				return &stoppedError{"the message is stored, and no consumer has responded in time", verdict(exitRefused)}
			}
			if err != nil {
				return err
			}
			return s.responded(r)
		}}.command()
	o.flags(c, "ctl")
	c.Flags().DurationVar(&wait, "wait", 10*time.Second, "for the response, at most `1m`")
	return c
}

// responded prints a response: its body as it is, and to a terminal without control characters.
func (s *session) responded(r *penstock.Response) error {
	if s.json {
		object := map[string]any{"MessageID": r.MessageID, "ConsumerID": r.ConsumerID, "Status": r.Status,
			"ContentType": r.ContentType, "Truncated": r.Truncated, "Body": r.Body, "BodyEncoding": "base64"}
		if utf8.Valid(r.Body) {
			object["Body"] = string(r.Body)
			delete(object, "BodyEncoding")
		}
		return s.line(object)
	}
	if isTerminal(s.Stdout) {
		return s.done(nil, "%s", r.Body)
	}
	_, err := s.Stdout.Write(r.Body)
	return err
}

// isTerminal reports whether people read what is written. A hostile text could command their terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
