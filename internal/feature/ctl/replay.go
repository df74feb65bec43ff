package ctl

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (s *session) replay() *cobra.Command {
	const one = "orders/billing/7"
	all := []*cobra.Command{s.startReplay(), s.listReplays(),
		leaf{use: "show CHANNEL/CONSUMER/REPLAY", about: "show a replay and how far it is",
			examples: "broker ctl replay show " + one, least: 1, most: 1, complete: s.names(consumers),
			run: func(c *cobra.Command, args []string) error {
				path, err := replayPath(args[0])
				if err != nil {
					return err
				}
				return s.showAt(c, path)
			}}.command()}
	return group("replay", "deliver messages of the past to a consumer once more",
		append(all, s.steered("replay", "CHANNEL/CONSUMER/REPLAY", one, replayPath)...)...)
}

// replayPath is the path of CHANNEL/CONSUMER/REPLAY.
func replayPath(name string) (string, error) {
	at := strings.LastIndexByte(name, '/')
	if strings.Count(name, "/") != 2 {
		return "", wrong("%q is no CHANNEL/CONSUMER/REPLAY", name)
	}
	path, err := consumers.path(name[:at])
	if err == nil {
		err = id("replay", name[at+1:])
	}
	return path + "/replay/" + url.PathEscape(name[at+1:]), err
}

// A replayOrder is the body of a request for a replay. What is zero is not sent.
type replayOrder struct {
	From                   string
	To, Only, Filter, Rate string `json:",omitempty"`
	DryRun                 bool   `json:",omitempty"`
}

// A replayed is a replay as the broker shows it. Of a dry run it has the counts only.
type replayed struct {
	ID, State, From, To, Only          string
	Matched, Replayed, Delivered, Dead int64
	DeadLeftOut                        int64
	EstimatedSeconds                   float64
	StartedAt                          *time.Time
}

func (s *session) startReplay() *cobra.Command {
	var q replayOrder
	var since time.Duration
	c := leaf{use: "start CHANNEL/CONSUMER", about: "begin a replay, or count what it would deliver",
		long: "Without --only it repeats what was delivered. It comes behind the other jobs of the consumer, and the\n" +
			"broker does it, also when the command is over.",
		examples: "broker ctl replay start orders/billing --since 1h --dry-run\n" +
			"broker ctl replay start orders/billing --from 2026-01-31T15:04:05Z --only all --rate 100/1s\n" +
			"broker ctl replay start orders/billing --since 10m --filter 'payload.total > 100'",
		least: 1, most: 1, complete: s.names(consumers), run: func(c *cobra.Command, args []string) error {
			switch {
			case (q.From == "") == (since <= 0):
				return wrong("one of --from TIME and --since DURATION is needed")
			case since > 0:
				q.From = time.Now().Add(-since).UTC().Format(time.RFC3339Nano)
			}
			if err := timesOf(q.From, q.To); err != nil {
				return err
			}
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := m.Post(c.Context(), path+"/replay", q, &raw); err != nil {
				return err
			}
			var r replayed
			if err := json.Unmarshal(raw, &r); err != nil {
				return local("the answer of the broker cannot be read: %v", err)
			}
			note := ""
			if r.DeadLeftOut > 0 {
				note = "; " + strconv.FormatInt(r.DeadLeftOut, 10) + " dead letters are left out, --only all has them"
			}
			if q.DryRun {
				return s.done(raw, "%d messages of %s are meant, for about %.0f seconds%s", r.Matched, args[0], r.EstimatedSeconds,
					note)
			}
			return s.done(raw, "the replay %s/%s of %d messages is %s%s", args[0], r.ID, r.Matched, r.State, note)
		}}.command()
	f := c.Flags()
	f.StringVar(&q.From, "from", "", "messages that were accepted from that `TIME` on, RFC 3339")
	f.DurationVar(&since, "since", 0, "or so long ago, `10m`, by the clock of this machine")
	f.StringVar(&q.To, "to", "", "and up to that `TIME`; without it, now")
	f.StringVar(&q.Only, "only", "", "`WHICH` jobs: delivered, dead, or all")
	f.StringVar(&q.Filter, "filter", "", "only messages for which the CEL `EXPRESSION` is true")
	f.StringVar(&q.Rate, "rate", "", "at most so many in a time, `100/1s`")
	f.BoolVar(&q.DryRun, "dry-run", false, "count them, and change nothing")
	return c
}

func (s *session) listReplays() *cobra.Command {
	var limit int
	return listLimit(leaf{use: "ls CHANNEL/CONSUMER", about: "list the replays of a consumer, the newest first",
		examples: "broker ctl replay ls orders/billing", least: 1, most: 1, complete: s.names(consumers),
		run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			t := s.table("REPLAY", "STATE", "FROM", "TO", "ONLY", "MATCHED", "DELIVERED", "DEAD", "STARTED")
			err = m.Each(c.Context(), path+"/replays", nil, limit, func(raw json.RawMessage) error {
				var r replayed
				if err := json.Unmarshal(raw, &r); err != nil {
					return err
				}
				t.row(raw, args[0]+"/"+r.ID, r.State, r.From, r.To, r.Only, strconv.FormatInt(r.Matched, 10),
					strconv.FormatInt(r.Delivered, 10), strconv.FormatInt(r.Dead, 10), when(r.StartedAt))
				return t.err
			})
			if err != nil {
				return err
			}
			return t.print()
		}}.command(), &limit)
}
