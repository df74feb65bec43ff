package ctl

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// within returns the path of a thing of a channel that is named CHANNEL/ID.
func within(what, name string) (string, error) {
	channel, of, ok := strings.Cut(name, "/")
	if !ok {
		return "", wrong("%q is no CHANNEL/ID", name)
	}
	if err := id("channel", channel); err != nil {
		return "", err
	}
	return penstock.ChannelPath(channel) + "/" + what + "/" + url.PathEscape(of), id(what, of)
}

func (s *session) schedule() *cobra.Command {
	return group("schedule", "look at scheduled messages, and delete them", s.listScheduled(),
		s.showWithin("scheduled-message", leaf{use: "show CHANNEL/ID", about: "show a scheduled message",
			examples: "broker ctl schedule show orders/invoice-9"}),
		leaf{use: "rm CHANNEL/ID", about: "delete a scheduled message before its time",
			long: "A recurrence ends; what it has sent stays.", examples: "broker ctl schedule rm orders/invoice-9",
			least: 1, most: 1, complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
				path, err := within("scheduled-message", args[0])
				if err != nil {
					return err
				}
				m, err := s.manager()
				if err == nil {
					err = m.Delete(c.Context(), path)
				}
				if err != nil {
					return err
				}
				return s.done(map[string]any{"Name": args[0], "Done": "deleted"}, "%s is deleted", args[0])
			}}.command())
}

func (s *session) listScheduled() *cobra.Command {
	var limit int
	var sent bool
	c := listLimit(leaf{use: "ls CHANNEL", about: "list the scheduled messages of a channel that wait, by their times",
		long:     "publish makes them, with --at, --delay or --recurrence.",
		examples: "broker ctl schedule ls orders\nbroker ctl schedule ls orders --sent --json",
		least:    1, most: 1, complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
			if err := id("channel", args[0]); err != nil {
				return err
			}
			query := url.Values{"status": {"SCHEDULED"}}
			if sent {
				query.Set("status", "DISPATCHED")
			}
			t := s.table("ID", "MESSAGE", "NEXT", "RECURRENCE", "PRODUCER", "REASON")
			path := penstock.ChannelPath(args[0]) + "/scheduled-messages"
			return s.each(c, path, query, limit, t, func(raw json.RawMessage) error {
				var m struct {
					ID, MessageID, ProducedBy, Recurrence, Reason string
					DispatchSchedule                              *time.Time
				}
				if err := json.Unmarshal(raw, &m); err != nil {
					return err
				}
				t.row(raw, m.ID, m.MessageID, when(m.DispatchSchedule), m.Recurrence, m.ProducedBy, m.Reason)
				return t.err
			})
		}}.command(), &limit)
	c.Flags().BoolVar(&sent, "sent", false, "those that are over instead")
	return c
}

// showWithin makes a command that shows a thing of a channel.
func (s *session) showWithin(what string, l leaf) *cobra.Command {
	l.least, l.most, l.complete = 1, 1, s.names(channels)
	l.run = func(c *cobra.Command, args []string) error {
		path, err := within(what, args[0])
		if err != nil {
			return err
		}
		return s.showAt(c, path)
	}
	return l.command()
}

// showAt shows what a path has.
func (s *session) showAt(c *cobra.Command, path string) error {
	m, err := s.manager()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := m.Read(c.Context(), path, nil, &raw); err != nil {
		return err
	}
	return s.show(raw, nothingMore)
}

func nothingMore(field) (lines []string, known bool) { return nil, false }
