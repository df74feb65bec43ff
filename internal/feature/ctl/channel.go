package ctl

import (
	"context"
	"encoding/json"
	"net/url"
	"sync"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

var channels = kind{noun: "channel", argument: "CHANNEL", example: "orders", list: (*session).listChannels,
	path: func(name string) (string, error) { return penstock.ChannelPath(name), id("channel", name) },
	verbs: []verb{pause("accept no messages in a channel"), resume("accept messages in a channel again"),
		remove("delete a channel that has no consumers")},
	set: "broker ctl channel set orders expectEvery=15m"}

var producers = kind{noun: "producer", argument: "PRODUCER", example: "shop", list: (*session).listProducers,
	path:  func(name string) (string, error) { return penstock.ProducerPath(name), id("producer", name) },
	verbs: []verb{remove("delete a producer")},
	set:   "broker ctl producer set shop name='The shop' maxScheduled=1000"}

// listLimit is the flag of a list.
func listLimit(c *cobra.Command, limit *int) *cobra.Command {
	c.Flags().IntVar(limit, "limit", 100, "`NUMBER` of rows, at most; 0: all")
	return c
}

func (s *session) listChannels() *cobra.Command {
	var limit int
	var group string
	c := listLimit(leaf{use: "ls", about: "list the channels",
		examples: "broker ctl channel ls\nbroker ctl channel ls --limit 10 --json\nbroker ctl channel ls --group shop-team",
		run: func(c *cobra.Command, _ []string) error {
			t := s.table("CHANNEL", "NAME", "STATE", "ACK", "GROUP")
			var query url.Values
			if group != "" {
				query = url.Values{"group": {group}}
			}
			return s.each(c, "/channels", query, limit, t, func(raw json.RawMessage) error {
				var ch struct{ ID, Name, State, Ack, Group, GroupState string }
				if err := json.Unmarshal(raw, &ch); err != nil {
					return err
				}
				if ch.GroupState == "PAUSED" {
					ch.Group += " (paused)"
				}
				t.row(raw, ch.ID, ch.Name, ch.State, ch.Ack, ch.Group)
				return t.err
			})
		}}.command(), &limit)
	c.Flags().StringVar(&group, "group", "", "the channels of a `GROUP` alone")
	return c
}

func (s *session) listProducers() *cobra.Command {
	var limit int
	return listLimit(leaf{use: "ls", about: "list the producers", examples: "broker ctl producer ls",
		run: func(c *cobra.Command, _ []string) error {
			t := s.table("PRODUCER", "NAME", "SIGNED", "MAX STORED", "MAX SCHEDULED")
			return s.each(c, "/producers", nil, limit, t, func(raw json.RawMessage) error {
				var p struct {
					ID, Name, MaxStoredBytes, MaxScheduled string
					Signed                                 bool
				}
				if err := json.Unmarshal(raw, &p); err != nil {
					return err
				}
				t.row(raw, p.ID, p.Name, yes(p.Signed), p.MaxStoredBytes, p.MaxScheduled)
				return t.err
			})
		}}.command(), &limit)
}

// readers is how many resources of a list are read at once: the list itself has links alone.
const readers = 8

// each reads the resources that a list links to for a table, and calls f with each in the order of the list.
func (s *session) each(c *cobra.Command, path string, query url.Values, limit int, t *table,
	f func(raw json.RawMessage) error) error {
	m, err := s.manager()
	if err == nil {
		err = resources(c.Context(), m, path, query, limit, f)
	}
	if err != nil {
		return err
	}
	return t.print()
}

// resources reads the resources that a list links to, and calls f with each in the order of the list.
func resources(ctx context.Context, m *penstock.Manager, path string, query url.Values, limit int,
	f func(json.RawMessage) error) error {
	var links []string
	flush := func() error {
		all, errs := make([]json.RawMessage, len(links)), make([]error, len(links))
		var group sync.WaitGroup
		for i, link := range links {
			group.Go(func() { errs[i] = m.Read(ctx, link, nil, &all[i]) })
		}
		group.Wait()
		links = links[:0]
		for i, raw := range all {
			if penstock.CodeOf(errs[i]) != "" && isGone(errs[i]) { // deleted since the list was made
				continue
			}
			if errs[i] != nil {
				return errs[i]
			}
			if err := f(raw); err != nil {
				return err
			}
		}
		return nil
	}
	err := m.Each(ctx, path, query, limit, func(element json.RawMessage) error {
		var link string
		if err := json.Unmarshal(element, &link); err != nil {
			return err
		}
		if links = append(links, link); len(links) < readers {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}
