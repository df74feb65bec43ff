package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const (
	// mostFollowed bounds the messages that are not over and whose events are waited for.
	mostFollowed = 500
	// mostListed bounds the new messages of a channel that one look reads.
	mostListed = 500
	// overlap is how long before the newest message a look begins: messages may become visible a little late.
	overlap = 2 * time.Second
	// mostTimeline bounds the events of a message that are read.
	mostTimeline = 200
)

// A follower prints what becomes of messages, by looking at their timelines again and again.
type follower struct {
	s        *session
	m        *penstock.Manager
	channel  string // "": all
	consumer string // "": all
	since    time.Duration
	every    time.Duration

	ahead    time.Duration              // of the clock of the broker
	from     map[string]time.Time       // by channel: messages before it are known
	known    map[string]map[string]bool // by channel: messages that the last look has listed, by path
	followed []*followed
}

// A followed message is not over, or its last events are not printed.
type followed struct {
	channel, path, id string
	at                time.Time
	state             string // of its jobs, at the last look
	printed           map[string]bool
	events            []timelineEvent // that are new
	over              bool
	err               error
}

// A timelineEvent is an event of a message as its timeline has it.
type timelineEvent struct {
	At                               time.Time
	Event, ConsumerID, JobID, Detail string
	Replay, Phase, ReasonCode        string
	Attempt, Status                  int
	DurationMs                       *int64
	raw                              json.RawMessage
}

func (s *session) tail() *cobra.Command {
	f := &follower{s: s, from: map[string]time.Time{}, known: map[string]map[string]bool{}}
	var until time.Duration
	c := leaf{use: "tail [CHANNEL[/CONSUMER]]", about: "print what becomes of messages, as it happens",
		long: "It follows the messages that come from now on, or with --since those of a time before, too: each attempt,\n" +
			"delivery and dead letter is a line. It asks every second for the timelines of\n" +
			"up to 500 messages that are not over, the newest ones, and says where it leaves some out.",
		examples: "broker ctl tail orders --since 10m --for 2s\nbroker ctl tail orders/billing --json --for 2s\n" +
			"broker ctl tail --for 2s",
		most: 1, complete: s.names(consumers), run: func(c *cobra.Command, args []string) error {
			var err error
			if len(args) == 1 {
				within := false
				if f.channel, f.consumer, within = strings.Cut(args[0], "/"); within {
					err = id("consumer", f.consumer)
				}
				if err == nil {
					err = id("channel", f.channel)
				}
			}
			if err == nil && (f.every < 100*time.Millisecond || f.since < 0 || until < 0) {
				err = wrong("--every is at least 100ms, and --since and --for are not below 0")
			}
			if err == nil {
				f.m, err = s.manager()
			}
			if err != nil {
				return err
			}
			return f.run(c.Context(), until)
		}}.command()
	c.Flags().DurationVar(&f.since, "since", 0, "also messages that were accepted so long ago, `10m`")
	c.Flags().DurationVar(&f.every, "every", time.Second, "how often it looks, `1s`")
	c.Flags().DurationVar(&until, "for", 0, "end after that time, `5m`; 0: at an interrupt")
	return c
}

// run looks until the context, or the time, ends.
func (f *follower) run(ctx context.Context, until time.Duration) error {
	begin, err := f.now(ctx)
	if err != nil {
		return err
	}
	f.ahead = time.Until(begin)
	begin = begin.Add(-f.since)
	var end <-chan time.Time
	if until > 0 {
		end = time.After(until)
	}
	for {
		if err := f.look(ctx, begin); err != nil {
			return err
		}
		select {
		case <-time.After(f.every):
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// now is the time of the broker, in whole seconds, once it is sure that there is what is followed.
func (f *follower) now(ctx context.Context) (time.Time, error) {
	path := "/channels"
	if f.channel != "" {
		path = penstock.ChannelPath(f.channel)
	}
	if f.consumer != "" {
		path = penstock.ConsumerPath(f.channel, f.consumer)
	}
	_, h, _, err := f.m.Call(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return time.Time{}, err
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return now, nil
}

// look finds new messages, and prints what has become of those that are followed.
func (f *follower) look(ctx context.Context, begin time.Time) error {
	names := []string{f.channel}
	if f.channel == "" {
		names = nil
		if err := f.m.Each(ctx, "/channels", nil, 0, func(raw json.RawMessage) error {
			var link string
			err := json.Unmarshal(raw, &link)
			if name := link[strings.LastIndexByte(link, '/')+1:]; !strings.HasPrefix(name, "~") {
				names = append(names, name)
			}
			return err
		}); err != nil {
			return err
		}
	}
	for _, channel := range names {
		if err := f.find(ctx, channel, begin); err != nil && !isGone(err) {
			return err
		}
	}
	for from := 0; from < len(f.followed); from += readers {
		var group sync.WaitGroup
		some := f.followed[from:min(from+readers, len(f.followed))]
		for _, m := range some {
			group.Go(func() { m.err = m.look(ctx, f.m) })
		}
		group.Wait()
		for _, m := range some {
			if m.err != nil {
				return m.err
			}
			if err := f.print(m); err != nil {
				return err
			}
		}
	}
	open := f.followed[:0]
	for _, m := range f.followed {
		f.from[m.channel] = later(f.from[m.channel], m.at.Add(-overlap))
		if !m.over {
			open = append(open, m)
		}
	}
	f.followed = open
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// find follows the messages of a channel that are new.
func (f *follower) find(ctx context.Context, channel string, begin time.Time) error {
	from := later(f.from[channel], begin)
	query := url.Values{"from": {from.UTC().Format(time.RFC3339Nano)}, "status": {"102"}}
	if f.consumer != "" {
		query.Set("consumer", f.consumer)
		query.Del("status")
	}
	listed, fresh := map[string]bool{}, 0
	err := f.m.Each(ctx, penstock.ChannelPath(channel)+"/messages", query, mostListed, func(raw json.RawMessage) error {
		var link string
		if err := json.Unmarshal(raw, &link); err != nil {
			return err
		}
		if listed[link] = true; !f.known[channel][link] {
			fresh++
			f.followed = append(f.followed, &followed{channel: channel, path: link, printed: map[string]bool{}})
		}
		return nil
	})
	f.known[channel] = listed
	if n := len(f.followed) - mostFollowed; n > 0 { // the oldest ones, which may wait for long
		f.followed = f.followed[n:]
		fmt.Fprintf(f.s.Stderr, "%d messages that are not over are not followed any more\n", n)
	}
	if len(listed) == mostListed && fresh == 0 { // it cannot keep up, and goes on with those of now
		f.from[channel] = time.Now().Add(f.ahead)
		fmt.Fprintf(f.s.Stderr, "%s has more messages than are followed: some are left out\n", plain(channel))
	}
	return err
}

// look reads a message, and its timeline where one of its jobs has changed.
func (m *followed) look(ctx context.Context, from *penstock.Manager) error {
	m.events = nil
	var is struct {
		ID         string
		ReceivedAt time.Time
		Status     string
		Jobs       []struct {
			ID, Status      string
			Attempts        int
			StatusChangedAt time.Time
		}
	}
	if err := from.Read(ctx, m.path, nil, &is); err != nil {
		m.over = isGone(err)
		if m.over {
			return nil
		}
		return err
	}
	m.id, m.at = is.ID, is.ReceivedAt
	state, over := fmt.Sprint(is.Status, is.Jobs), is.Status == "DISPATCHED"
	for _, j := range is.Jobs {
		over = over && (j.Status == "DELIVERED" || j.Status == "DEAD")
	}
	if state == m.state {
		return nil
	}
	err := from.Each(ctx, m.path+"/timeline", nil, mostTimeline, func(raw json.RawMessage) error {
		e := timelineEvent{raw: raw}
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		key := fmt.Sprint(e.At.UnixMilli(), e.Event, e.ConsumerID, e.JobID, e.Attempt, e.Replay)
		if !m.printed[key] {
			m.printed[key] = true
			m.events = append(m.events, e)
		}
		return nil
	})
	if isGone(err) {
		err = nil
	}
	if err == nil {
		m.state, m.over = state, over
	}
	return err
}

// print prints the new events of a message.
func (f *follower) print(m *followed) error {
	for _, e := range m.events {
		if f.consumer != "" && e.ConsumerID != f.consumer {
			continue
		}
		var err error
		if f.s.json {
			object := map[string]json.RawMessage{}
			if err = json.Unmarshal(e.raw, &object); err == nil {
				object["ChannelID"], _ = json.Marshal(m.channel)
				object["MessageID"], _ = json.Marshal(m.id)
				err = f.s.line(object)
			}
		} else {
			err = f.s.done(nil, "%s", e.said(m.channel, m.id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// said is an event in a line. channel may be empty, where all are of one message.
func (e *timelineEvent) said(channel, message string) string {
	where := channel
	if e.ConsumerID != "" {
		where = strings.TrimPrefix(channel+"/"+e.ConsumerID, "/")
	}
	if where != "" {
		where += " "
	}
	text := e.At.Local().Format("15:04:05.000") + " " + where + message + " " + e.Event
	if e.Attempt > 0 {
		text += fmt.Sprintf(" #%d", e.Attempt)
	}
	if e.Status > 0 {
		text += fmt.Sprintf(" %d", e.Status)
	}
	if e.DurationMs != nil {
		text += fmt.Sprintf(" %dms", *e.DurationMs)
	}
	if e.ReasonCode != "" {
		text += " " + e.ReasonCode
	}
	if e.Detail != "" && (e.Event == "ATTEMPT" && e.Status/100 != 2 || e.Event == "DEAD") {
		text += ": " + shortened(e.Detail)
	}
	return text
}
