package ctl

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

func (s *session) why() *cobra.Command {
	var channel string
	c := leaf{use: "why ID", about: "say why a consumer, a job or a message does not move",
		long: "ID is a CHANNEL/CONSUMER, a CHANNEL/CONSUMER/JOB, or the ID of a message or scheduled message. Without\n" +
			"--channel a message is looked for in one channel after the other.",
		examples: "broker ctl why orders/billing\nbroker ctl why invoice-7 --channel orders\nbroker ctl --json why invoice-7",
		least:    1, most: 1, complete: s.names(consumers), run: func(c *cobra.Command, args []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if strings.Contains(args[0], "/") {
				path, err := pathOf(args[0])
				if err == nil {
					err = m.Read(c.Context(), path+"/why", nil, &raw)
				}
				if err != nil {
					return err
				}
				return s.explain(raw)
			}
			if raw, err = s.findMessage(c, m, channel, args[0], "/why"); err != nil {
				return err
			}
			return s.explain(raw)
		}}.command()
	return s.inChannel(c, &channel)
}

func (s *session) message() *cobra.Command {
	var channel string
	var timeline bool
	c := leaf{use: "message ID", about: "show a message or scheduled message with its jobs",
		long: "Without --channel it is looked for in one channel after the other.",
		examples: "broker ctl message invoice-7\nbroker ctl message invoice-7 --channel orders --json\n" +
			"broker ctl message invoice-7 --timeline",
		least: 1, most: 1, run: func(c *cobra.Command, args []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			if timeline {
				raw, err := s.findMessage(c, m, channel, args[0], "/timeline")
				if err != nil {
					return err
				}
				return s.tellTimeline(raw, args[0])
			}
			raw, err := s.findMessage(c, m, channel, args[0], "")
			if err != nil {
				return err
			}
			return s.show(raw, func(f field) (lines []string, known bool) {
				switch f.name {
				case "Jobs":
					return jobLines(f.value), true
				case "Pages", "Links":
					return nil, true
				case "Payload":
					text := []rune(f.text())
					if len(text) > shownPayload {
						return []string{string(text[:shownPayload]) + "...", "(--json shows all)"}, true
					}
				}
				return nil, false
			})
		}}.command()
	c.Flags().BoolVar(&timeline, "timeline", false, "show what became of it instead, in order of time")
	return s.inChannel(c, &channel)
}

// tellTimeline prints the events of a timeline, the first hundred.
func (s *session) tellTimeline(raw json.RawMessage, message string) error {
	var page struct{ Result []json.RawMessage }
	if err := json.Unmarshal(raw, &page); err != nil {
		return local("the answer of the broker cannot be read: %v", err)
	}
	for _, one := range page.Result {
		var e timelineEvent
		err := json.Unmarshal(one, &e)
		switch {
		case err != nil:
		case s.json:
			err = s.line(one)
		default:
			err = s.done(nil, "%s", e.said("", message))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shownPayload is how many characters of a payload people see.
const shownPayload = 500

// jobLines are the jobs of a message as people read them.
func jobLines(raw json.RawMessage) (lines []string) {
	var all []struct {
		ID, Status, ListenerName, Reason, ReasonCode string
		Attempts                                     int
	}
	_ = json.Unmarshal(raw, &all) // an empty list says enough
	for _, j := range all {
		line := fmt.Sprintf("%s %s of %s, %d attempts", j.ID, j.Status, j.ListenerName, j.Attempts)
		if j.Reason != "" {
			line += ": " + j.Reason
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return []string{"none"}
	}
	return lines
}

func (s *session) inChannel(c *cobra.Command, channel *string) *cobra.Command {
	c.Flags().StringVar(channel, "channel", "", "`CHANNEL` of the message")
	_ = c.RegisterFlagCompletionFunc("channel", s.names(channels))
	return c
}

// pathOf is the path of CHANNEL/CONSUMER or CHANNEL/CONSUMER/JOB.
func pathOf(name string) (string, error) {
	channel, rest, _ := strings.Cut(name, "/")
	consumer, job, isJob := strings.Cut(rest, "/")
	path, err := consumers.path(channel + "/" + consumer)
	if err == nil && isJob {
		err = id("job", job)
		path += "/job/" + url.PathEscape(job)
	}
	return path, err
}

// findMessage reads a message or a scheduled message of a channel, or of the first channel that has it.
func (s *session) findMessage(c *cobra.Command, m *penstock.Manager, channel, name, what string) (raw json.RawMessage,
	err error) {
	if err := id("message", name); err != nil {
		return nil, err
	}
	if channel != "" {
		if err := id("channel", channel); err != nil {
			return nil, err
		}
		return s.inOne(c, m, penstock.ChannelPath(channel), name, what)
	}
	err = m.Each(c.Context(), "/channels", nil, 0, func(element json.RawMessage) error {
		var link string
		if raw != nil {
			return nil
		}
		if err := json.Unmarshal(element, &link); err != nil {
			return err
		}
		found, err := s.inOne(c, m, link, name, what)
		if err != nil && !isGone(err) {
			return err
		}
		raw = found
		return nil
	})
	if err == nil && raw == nil {
		err = &penstock.Error{Method: "GET", Path: "/channels", Status: 404, Code: "message_not_found",
			Detail: "No channel has a message of that ID, or not any more."}
	}
	return raw, err
}

// inOne reads a message of one channel, or else a scheduled message.
func (s *session) inOne(c *cobra.Command, m *penstock.Manager, channel, name, what string) (raw json.RawMessage,
	err error) {
	for _, kind := range []string{"/message/", "/scheduled-message/"} {
		e := m.Read(c.Context(), channel+kind+url.PathEscape(name)+what, nil, &raw)
		if e == nil {
			return raw, nil
		}
		if err == nil || !isGone(e) {
			err = e
		}
		if !isGone(e) {
			break
		}
	}
	return nil, err
}

// explain prints a why.
func (s *session) explain(raw json.RawMessage) error {
	if s.json {
		return s.line(raw)
	}
	var w penstock.Why
	if err := json.Unmarshal(raw, &w); err != nil {
		return local("the answer of the broker cannot be read: %v", err)
	}
	fmt.Fprintln(s.Stdout, plain(w.Summary))
	for _, r := range w.Reasons {
		line := r.Code + " (" + r.ConsumerID + ")"
		if since := when(r.Since); since != "" {
			line += " since " + since
		}
		if until := when(r.Until); until != "" {
			line += " until " + until
		}
		if r.By != "" {
			line += " by " + r.By
		}
		fmt.Fprintln(s.Stdout, plain(line))
		for _, text := range []string{r.Detail, r.Action} {
			if text != "" {
				fmt.Fprintln(s.Stdout, "  "+plain(text))
			}
		}
	}
	return nil
}
