package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

func (s *session) bulk() *cobra.Command {
	const one = "orders/06gvk862do0000000000"
	all := []*cobra.Command{s.publishBulk(), s.listBulks(), s.showWithin("bulk", leaf{use: "show CHANNEL/BULK",
		about: "show a bulk and how far it is", examples: "broker ctl bulk show " + one})}
	path := func(name string) (string, error) { return within("bulk", name) }
	return group("bulk", "publish many messages as one body, and look at such bulks",
		append(all, s.steered("bulk", "CHANNEL/BULK", one, path)...)...)
}

// steered makes the commands that pause, resume and cancel something that goes on for a while.
func (s *session) steered(noun, argument, example string,
	path func(name string) (string, error)) (all []*cobra.Command) {
	for _, v := range [][3]string{{"pause", "hold", "paused"}, {"resume", "go on with", "resumed"},
		{"cancel", "end", "cancelled"}} {
		all = append(all, leaf{use: v[0] + " " + argument, about: v[1] + " a " + noun,
			examples: fmt.Sprintf("broker ctl %s %s %s", noun, v[0], example), least: 1, most: 1,
			run: func(c *cobra.Command, args []string) error {
				at, err := path(args[0])
				if err != nil {
					return err
				}
				m, err := s.manager()
				if err != nil {
					return err
				}
				var raw json.RawMessage
				if err := m.Post(c.Context(), at+"/"+v[0], nil, &raw); err != nil {
					return err
				}
				return s.done(raw, "the %s %s is %s", noun, args[0], v[2])
			}}.command())
	}
	return all
}

// bulkTypes are the content types of files by their ends.
var bulkTypes = map[string]string{".csv": "text/csv", ".ndjson": "application/x-ndjson",
	".jsonl": "application/x-ndjson"}

func (s *session) publishBulk() *cobra.Command {
	var file, producer, mediaType string
	var wait bool
	c := leaf{use: "publish CHANNEL -f FILE", about: "publish the rows of a file of NDJSON or CSV",
		long:     "The file is on the disk of the broker when the command ends with 0; its rows become messages afterwards.",
		examples: "broker ctl bulk publish orders -f orders.ndjson\nbroker ctl bulk publish orders -f people.csv --wait",
		least:    1, most: 1, complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
			if mediaType == "" {
				mediaType = bulkTypes[strings.ToLower(filepath.Ext(file))]
			}
			switch {
			case file == "":
				return wrong("the file is missing: -f FILE")
			case mediaType == "":
				return wrong("--type text/csv or --type application/x-ndjson says what %s is", file)
			}
			in := s.Stdin
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return local("%v", err)
				}
				defer f.Close()
				in = f
			}
			if err := id("channel", args[0]); err != nil {
				return err
			}
			return s.sendBulk(c, args[0], producer, mediaType, in, wait)
		}}.command()
	f := c.Flags()
	f.StringVarP(&file, "file", "f", "", "`FILE` with the rows; - is the standard input")
	f.StringVar(&producer, "producer", "ctl", "`ID` of the producer")
	f.StringVar(&mediaType, "type", "", "content `TYPE`: text/csv or application/x-ndjson; by the end of the file name")
	f.BoolVar(&wait, "wait", false, "until all rows are messages")
	return c
}

func (s *session) sendBulk(c *cobra.Command, channel, producer, mediaType string, in io.Reader, wait bool) error {
	client, err := s.producing(c, channel, producer)
	if err != nil {
		return err
	}
	defer client.Close()
	path, err := client.PublishBulk(c.Context(), channel, mediaType, in)
	if err != nil {
		return err
	}
	name := channel + path[strings.LastIndexByte(path, '/'):]
	if !wait {
		return s.done(map[string]any{"Name": name, "Location": path}, "the bulk %s is accepted", name)
	}
	b, err := client.AwaitBulk(c.Context(), channel, path)
	if err != nil {
		return err
	}
	said := fmt.Sprintf("the bulk %s is done: %d messages, %d bad rows, %d duplicates", name, b.Published, b.Rejected,
		b.Duplicates)
	return s.done(map[string]any{"Name": name, "Location": path, "Published": b.Published, "Rejected": b.Rejected,
		"Duplicates": b.Duplicates}, "%s", said)
}

func (s *session) listBulks() *cobra.Command {
	var limit int
	return listLimit(leaf{use: "ls CHANNEL", about: "list the bulks of a channel, oldest first",
		examples: "broker ctl bulk ls orders\nbroker ctl bulk ls orders --json", least: 1, most: 1,
		complete: s.names(channels), run: func(c *cobra.Command, args []string) error {
			if err := id("channel", args[0]); err != nil {
				return err
			}
			t := s.table("BULK", "STATE", "PRODUCER", "ROWS", "PUBLISHED", "BAD", "OPEN", "DEAD", "CREATED", "REASON")
			path := penstock.ChannelPath(args[0]) + "/bulks"
			return s.each(c, path, nil, limit, t, func(raw json.RawMessage) error {
				var b struct {
					ID, State, ProducedBy, Reason          string
					Total, Published, Rejected, Open, Dead int64
					CreatedAt                              *time.Time
				}
				if err := json.Unmarshal(raw, &b); err != nil {
					return err
				}
				cells := []string{b.ID, b.State, b.ProducedBy}
				for _, n := range []int64{b.Total, b.Published, b.Rejected, b.Open, b.Dead} {
					cells = append(cells, strconv.FormatInt(n, 10))
				}
				t.row(raw, slices.Concat(cells, []string{when(b.CreatedAt), b.Reason})...)
				return t.err
			})
		}}.command(), &limit)
}
