package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// A view is what top shows at a time.
type view struct {
	At                                time.Time
	Accepted, Delivered, Failed, Dead float64 // a second, of the last ten seconds that are over
	Consumers                         []listedConsumer
}

func (s *session) top() *cobra.Command {
	var every, until time.Duration
	var limit int
	var sort string
	c := leaf{use: "top", about: "show the consumers with their counts, again and again",
		long: "Above them is what all brokers together count a second, in the last ten seconds that are over. --json\n" +
			"prints one object each time.",
		examples: "broker ctl top --for 3s\nbroker ctl top --sort dead --limit 5 --json --for 1s",
		run: func(c *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond || until < 0 || limit < 1 || limit > 100 {
				return wrong("--every is at least 100ms, --limit from 1 to 100, and --for not below 0")
			}
			m, err := s.manager()
			if err != nil {
				return err
			}
			var end <-chan time.Time
			if until > 0 {
				end = time.After(until)
			}
			for {
				v, err := look(c.Context(), m, sort, limit)
				if err == nil {
					err = s.showView(v)
				}
				if err != nil {
					return err
				}
				select {
				case <-time.After(every):
				case <-end:
					return nil
				case <-c.Context().Done():
					return nil
				}
			}
		}}.command()
	f := c.Flags()
	f.DurationVar(&every, "every", 2*time.Second, "how often it looks, `2s`")
	f.DurationVar(&until, "for", 0, "end after that time, `5m`; 0: at an interrupt")
	f.IntVar(&limit, "limit", 20, "`NUMBER` of consumers, from 1 to 100")
	f.StringVar(&sort, "sort", "oldest", "`ORDER`, as of consumer ls: oldest, dead, queued")
	return c
}

// look reads a view.
func look(ctx context.Context, m *penstock.Manager, sort string, limit int) (*view, error) {
	v := &view{At: time.Now().UTC(), Consumers: []listedConsumer{}}
	err := m.Each(ctx, "/consumers", url.Values{"sort": {sort}}, limit, func(raw json.RawMessage) error {
		var k listedConsumer
		err := json.Unmarshal(raw, &k)
		v.Consumers = append(v.Consumers, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	var h struct {
		Result []struct{ Accepted, Delivered, Failed, Dead float64 }
	}
	if err := m.Read(ctx, "/history", url.Values{"step": {"10s"}}, &h); err != nil {
		return nil, err
	}
	if n := len(h.Result); n > 1 { // the last slot may still grow
		const seconds = 10
		last := h.Result[n-2]
		v.Accepted, v.Delivered = last.Accepted/seconds, last.Delivered/seconds
		v.Failed, v.Dead = last.Failed/seconds, last.Dead/seconds
	}
	return v, nil
}

// showView prints a view, at a terminal in place of the last one.
func (s *session) showView(v *view) error {
	if s.json {
		return s.line(v)
	}
	if isTerminal(s.Stdout) {
		fmt.Fprint(s.Stdout, "\x1b[H\x1b[2J")
	}
	fmt.Fprintf(s.Stdout, "%s  accepted %.1f/s  delivered %.1f/s  failed %.1f/s  dead %.1f/s\n",
		v.At.Local().Format("15:04:05"), v.Accepted, v.Delivered, v.Failed, v.Dead)
	t := s.table("CONSUMER", "TYPE", "STATE", "HELD BY", "QUEUED", "IN FLIGHT", "DEAD", "OLDEST")
	for _, k := range v.Consumers {
		oldest := ""
		if k.OldestQueuedAt != nil {
			oldest = strings.TrimPrefix(v.At.Sub(*k.OldestQueuedAt).Truncate(time.Second).String(), "-")
		}
		t.row(nil, k.ChannelID+"/"+k.ID, k.Type, k.State, k.HeldBy, number(k.Queued), number(k.InFlight),
			number(k.DeadLetters), oldest)
	}
	return t.print()
}
