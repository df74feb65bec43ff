package ctl

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

func (s *session) deadLetters() *cobra.Command {
	return group("dlq", "look at dead letters, and redrive them", s.deadGroups(), s.listDead(), s.redrive(),
		s.exportDead())
}

func (s *session) deadGroups() *cobra.Command {
	return leaf{use: "groups CHANNEL/CONSUMER", about: "list the dead letters of a consumer by cause",
		examples: "broker ctl dlq groups orders/billing", least: 1, most: 1, complete: s.names(consumers),
		run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			var page struct{ Result []json.RawMessage }
			if err := m.Read(c.Context(), path+"/dlq/groups", nil, &page); err != nil {
				return err
			}
			t := s.table("FINGERPRINT", "COUNT", "STATUS", "LAST", "SAMPLE")
			for _, raw := range page.Result {
				var g penstock.DeadGroup
				if err := json.Unmarshal(raw, &g); err != nil {
					return err
				}
				status := ""
				if g.Status != 0 {
					status = strconv.Itoa(g.Status)
				}
				t.row(raw, g.Fingerprint, strconv.FormatInt(g.Count, 10), status, when(&g.LastAt), g.Sample)
			}
			return t.print()
		}}.command()
}

// selection are the flags that select dead letters.
func selection(f *pflag.FlagSet, fingerprint, reason, from, to *string) {
	f.StringVar(fingerprint, "fingerprint", "", "only those of a group, by its `FINGERPRINT`")
	f.StringVar(reason, "reason", "", "only those with a reason `CODE`, or several with commas between")
	f.StringVar(from, "from", "", "only those that died from that `TIME` on, RFC 3339")
	f.StringVar(to, "to", "", "only those that died up to that `TIME`")
}

func (s *session) listDead() *cobra.Command {
	var limit int
	var fingerprint, reason, from, to string
	c := listLimit(leaf{use: "ls CHANNEL/CONSUMER", about: "list the dead letters of a consumer",
		examples: "broker ctl dlq ls orders/billing\nbroker ctl dlq ls orders/billing --reason attempts_exhausted --json",
		least:    1, most: 1, complete: s.names(consumers), run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			query := url.Values{}
			for name, value := range map[string]string{"fingerprint": fingerprint, "reason": reason, "from": from, "to": to} {
				if value != "" {
					query.Set(name, value)
				}
			}
			t := s.table("JOB", "DIED", "REASON CODE", "ATTEMPTS", "FINGERPRINT", "REASON")
			err = m.Each(c.Context(), path+"/dlq", query, limit, func(raw json.RawMessage) error {
				var j penstock.ListedJob
				if err := json.Unmarshal(raw, &j); err != nil {
					return err
				}
				t.row(raw, j.ID, when(&j.StatusChangedAt), j.ReasonCode, strconv.Itoa(j.Attempts), j.Fingerprint, j.Reason)
				return t.err
			})
			if err != nil {
				return err
			}
			return t.print()
		}}.command(), &limit)
	selection(c.Flags(), &fingerprint, &reason, &from, &to)
	return c
}

func (s *session) redrive() *cobra.Command {
	var q penstock.Redrive
	c := leaf{use: "redrive CHANNEL/CONSUMER", about: "make dead letters of a consumer jobs again",
		long: "Without a selection all are meant that are dead by now. The broker does it in steps, also when the\n" +
			"command is over. A canary tries 1 job, then 10, then 100, and stops where they fail as before.",
		examples: "broker ctl dlq redrive orders/billing --dry-run\nbroker ctl dlq redrive orders/billing --canary\n" +
			"broker ctl dlq redrive orders/billing --reason attempts_exhausted --rate 100/1s",
		least: 1, most: 1, complete: s.names(consumers), run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			if err := timesOf(q.From, q.To); err != nil {
				return err
			}
			var raw json.RawMessage
			if err := m.Post(c.Context(), path+"/dlq/redrive", q, &raw); err != nil {
				return err
			}
			var r penstock.Redriving
			if err := json.Unmarshal(raw, &r); err != nil {
				return local("the answer of the broker cannot be read: %v", err)
			}
			about := ""
			if r.Approximate {
				about = "more than "
			}
			if q.DryRun {
				return s.done(raw, "%s%d dead letters of %s are meant", about, r.Matched, args[0])
			}
			return s.done(raw, "the redrive %s of %s%d dead letters of %s is %s", r.ID, about, r.Matched, args[0], r.State)
		}}.command()
	f := c.Flags()
	selection(f, &q.Fingerprint, &q.Reason, &q.From, &q.To)
	f.StringSliceVar(&q.Jobs, "job", nil, "only the job with this `ID`, and others that are named so")
	f.IntVar(&q.Limit, "limit", 0, "only the first `NUMBER`, the oldest messages first; 0: all")
	f.StringVar(&q.Rate, "rate", "", "at most so many in a time, `100/1s`")
	f.StringVar(&q.Target, "target", "", "another `CONSUMER` of the channel gets them")
	f.BoolVar(&q.Canary, "canary", false, "try some before all")
	f.BoolVar(&q.DryRun, "dry-run", false, "count them, and change nothing")
	return c
}

// timesOf refuses what is no time before it is sent.
func timesOf(texts ...string) error {
	for _, text := range texts {
		if _, err := time.Parse(time.RFC3339, text); text != "" && err != nil {
			return wrong("%q is no time like %s", text, "2026-01-31T15:04:05Z")
		}
	}
	return nil
}

func (s *session) workers() *cobra.Command {
	return leaf{use: "workers CHANNEL/CONSUMER", about: "list the living workers of a pull consumer",
		examples: "broker ctl workers orders/billing", least: 1, most: 1, complete: s.names(consumers),
		run: func(c *cobra.Command, args []string) error {
			m, path, err := s.one(consumers, args[0])
			if err != nil {
				return err
			}
			var page struct{ Result []json.RawMessage }
			if err := m.Read(c.Context(), path+"/workers", nil, &page); err != nil {
				return err
			}
			t := s.table("WORKER", "VERSION", "SLOTS", "IN FLIGHT", "LAST SEEN", "ADDRESS", "TASKS")
			for _, raw := range page.Result {
				var w penstock.SeenWorker
				if err := json.Unmarshal(raw, &w); err != nil {
					return err
				}
				t.row(raw, w.Name, w.Version, strconv.Itoa(w.Slots), strconv.Itoa(w.InFlight), when(&w.LastSeenAt), w.Address,
					fmt.Sprint(w.Tasks))
			}
			return t.print()
		}}.command()
}
