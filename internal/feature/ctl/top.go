package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
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
	t := &topping{s: s}
	c := leaf{use: "top", about: "show the consumers with their counts, again and again",
		long: "Above them is what all brokers together count a second, in the last ten seconds that are over. --json\n" +
			"prints one object each time. In a terminal it takes commands, each with Enter:\n" + commandsOfTop + ".",
		examples: "broker ctl top --for 3s\nbroker ctl top --sort dead --limit 5 --json --for 1s",
		run: func(c *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond || until < 0 || t.limit < 1 || t.limit > 100 {
				return wrong("--every is at least 100ms, --limit from 1 to 100, and --for not below 0")
			}
			m, err := s.manager()
			if err != nil {
				return err
			}
			if in, ok := s.Stdin.(*os.File); ok && !c.Flags().Changed("commands") {
				t.takes = !s.json && isTerminal(in) && isTerminal(s.Stdout)
			}
			return t.run(c.Context(), m, every, until)
		}}.command()
	f := c.Flags()
	f.DurationVar(&every, "every", 2*time.Second, "how often it looks, `2s`")
	f.DurationVar(&until, "for", 0, "end after that time, `5m`; 0: at an interrupt")
	f.IntVar(&t.limit, "limit", 20, "`NUMBER` of consumers, from 1 to 100")
	f.StringVar(&t.sort, "sort", "oldest", "`ORDER`, as of consumer ls: oldest, dead, queued, failing")
	f.BoolVar(&t.takes, "commands", false, "take commands from standard input, as in a terminal")
	return c
}

// A topping is a top that runs.
type topping struct {
	s     *session
	takes bool // commands
	sort  string
	limit int
	name  string // a part of the names of the consumers that are shown
	still bool   // it does not look
}

const commandsOfTop = "o, d or u: sort by oldest, dead or queued; /TEXT: names with it, / all; p: pause; q: end"

// mostLookedAt bounds the consumers among which top looks for a name.
const mostLookedAt = 1000

// run looks until it is told to end.
func (t *topping) run(ctx context.Context, m *penstock.Manager, every, until time.Duration) error {
	var end <-chan time.Time
	if until > 0 {
		end = time.After(until)
	}
	var commands chan string
	if t.takes {
		commands = make(chan string)
		go readLines(ctx, t.s.Stdin, commands)
	}
	for {
		if !t.still {
			if err := t.show(ctx, m); err != nil {
				return err
			}
		}
		select {
		case <-time.After(every):
		case line, more := <-commands:
			if !more {
				commands = nil // no more come
			} else if t.obey(line) {
				return nil
			}
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// readLines sends each line until there are no more.
func readLines(ctx context.Context, from io.Reader, to chan<- string) {
	defer close(to)
	for lines := bufio.NewScanner(from); lines.Scan(); {
		select {
		case to <- strings.TrimSpace(lines.Text()):
		case <-ctx.Done():
			return
		}
	}
}

// obey does what a command says, and reports whether it is the end.
func (t *topping) obey(line string) (end bool) {
	switch name, text := line[:min(1, len(line))], line[min(1, len(line)):]; {
	case line == "q":
		return true
	case line == "p":
		t.still = !t.still
	case line == "o":
		t.sort = "oldest"
	case line == "d":
		t.sort = "dead"
	case line == "u":
		t.sort = "queued"
	case name == "/":
		t.name = text
	}
	return false
}

// show prints a view, with the commands.
func (t *topping) show(ctx context.Context, m *penstock.Manager) error {
	v, err := t.look(ctx, m)
	if err != nil {
		return err
	}
	if err := t.s.showView(v); err != nil || !t.takes {
		return err
	}
	by := "by " + t.sort
	if t.name != "" {
		by += ", with " + t.name
	}
	return t.s.done(nil, "%s. %s", by, commandsOfTop)
}

// look reads a view.
func (t *topping) look(ctx context.Context, m *penstock.Manager) (*view, error) {
	v := &view{At: time.Now().UTC(), Consumers: []listedConsumer{}}
	looks := t.limit
	if t.name != "" {
		looks = mostLookedAt
	}
	err := m.Each(ctx, "/consumers", url.Values{"sort": {t.sort}}, looks, func(raw json.RawMessage) error {
		var k listedConsumer
		err := json.Unmarshal(raw, &k)
		if strings.Contains(k.ChannelID+"/"+k.ID, t.name) && len(v.Consumers) < t.limit {
			v.Consumers = append(v.Consumers, k)
		}
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
