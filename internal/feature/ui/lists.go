package ui

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Channel is a channel with the counts of its consumers.
type Channel struct {
	apitype.Channel
	Consumers, Troubled int
	Counted             bool // the jobs are counted
	Waiting, Dead       int
	Oldest              time.Time             // of the oldest job that waits; zero: none
	History             []apitype.HistorySlot // of the page of a channel
	Missing             []string              // what cannot be read now
}

// A Scheduled is a message that waits for its time.
type Scheduled struct {
	ID, Producer string
	Due          time.Time
	Recurrence   string // as it was written; "": it is sent once
}

// A Replay is a replay with whose it is.
type Replay struct {
	Channel, Consumer string
	apitype.Replay
	Counted bool // how far it is was asked
}

// channelsView is the list of all channels.
type channelsView struct {
	Rows  []channelRow
	Next  string
	More  bool
	Group string // of which the channels are; "": all
	First string // the first page
}

type channelRow struct {
	Channel
	Mark   Mark
	Oldest string
	At     time.Time
	// GroupURL is the list of the channels of its group.
	GroupURL string
}

func channelRowOf(c Channel, now time.Time) channelRow {
	r := channelRow{Channel: c, Mark: Mark{"", "Accepts messages", ""}, GroupURL: channelsURL(c.Group, "")}
	switch {
	case c.State == "PAUSED":
		r.Mark = Mark{"warn", "Paused: it accepts no messages", ""}
	case c.GroupState == "PAUSED":
		r.Mark = Mark{"warn", "Its group is paused: it accepts no messages", ""}
	case c.Troubled > 0:
		r.Mark = Mark{"warn", plural(c.Troubled, "consumer") + " in need of attention", ""}
	case c.Consumers == 0:
		r.Mark = Mark{"off", "It has no consumer", ""}
	}
	if !c.Oldest.IsZero() {
		r.Oldest, r.At = age(now.Sub(c.Oldest)), c.Oldest
	}
	return r
}

func channelsPage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("first", "group")
	group := q.Get("group")
	list, next := v.src.Channels(ctx, group, q.Get("first"))
	p := &channelsView{More: q.Has("first"), Group: group, First: channelsURL(group, "")}
	need := 0
	for _, c := range list {
		r := channelRowOf(c, v.now)
		if p.Rows = append(p.Rows, r); r.Mark.Class == "warn" {
			need++
		}
	}
	if next != "" {
		p.Next = channelsURL(group, next)
	}
	switch {
	case len(list) == 0 && p.More:
		return "There are no more channels", p, nil
	case len(list) == 0 && group != "":
		return "No channel carries the group " + group, p, nil
	case len(list) == 0:
		return "There is no channel yet", p, nil
	case need == 0:
		return "No channel needs attention", p, nil
	case need == 1:
		return "One channel needs attention", p, nil
	}
	return spelled(need) + " channels need attention", p, nil
}

// channelsURL is the page of the channels of a group, or of all (""), from one on.
func channelsURL(group, first string) string {
	q := url.Values{}
	for name, value := range map[string]string{"group": group, "first": first} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return Prefix + "channels"
	}
	return Prefix + "channels?" + q.Encode()
}

// A channelView is the page of a channel.
type channelView struct {
	channelRow
	Consumers []consumerRow
	All       bool // these are all
	Past      past
	Facts     []fact
	Messages  []string // IDs
	Since     time.Time
	Sinces    []link
	NextPage  string // of the messages
	Now       time.Time
	Acts      []offered
	Said      string // what was done just now
}

// sinceAgo is how far back the list of messages of a channel begins.
const sinceAgo = 10 * time.Minute

func channelPage(ctx context.Context, v *view) (title string, content any, err error) {
	id := v.id("channel")
	span, err := v.span()
	if err != nil {
		return "", nil, err
	}
	c, err := v.src.Channel(ctx, id, span)
	if err != nil {
		return "", nil, err
	}
	p := &channelView{channelRow: channelRowOf(c, v.now), Now: v.now}
	var list apitype.ConsumerList
	err = v.src.Get(ctx, "/consumers", nil, url.Values{"channel": {id}, "sort": {"oldest"}, "limit": {"25"}}, &list)
	if err != nil {
		return "", nil, err
	}
	p.All = list.Pages.Next == ""
	for i := range list.Result {
		p.Consumers = append(p.Consumers, rowOf(&list.Result[i], v.now))
	}
	if err := v.messagesOf(ctx, id, p); err != nil {
		return "", nil, err
	}
	if len(c.History) > 0 {
		p.Past = v.pastOf(span, c.History)
		p.Past.Charts = []Chart{rateChart(span, &apitype.HistoryRange{Result: c.History})}
	}
	p.Facts = channelFacts(&c)
	p.Acts, p.Said = v.offersOfChannel(&c), v.said()
	return id + ": " + lowered(p.Mark.Word), p, nil
}

// messagesOf lists messages of a channel from a time on.
func (v *view) messagesOf(ctx context.Context, id string, p *channelView) error {
	q := v.query("since", "first", "place")
	p.Since = v.now.Add(-sinceAgo)
	if at, err := apitype.ParseTime(q.Get("since")); err == nil {
		p.Since = at.UTC()
	}
	ask := url.Values{"statusChangedSince": {iso(p.Since)}, "limit": {"25"}}
	for _, name := range []string{"first", "place"} {
		if q.Has(name) {
			ask.Set(name, q.Get(name))
		}
	}
	var list apitype.MessageList
	err := v.src.Get(ctx, "/channel/{channel}/messages", map[string]string{"channel": id}, ask, &list)
	if err != nil {
		return err
	}
	for _, path := range list.Result {
		p.Messages = append(p.Messages, path[strings.LastIndexByte(path, '/')+1:])
	}
	if u, err := url.Parse(list.Pages.Next); err == nil && list.Pages.Next != "" {
		next := url.Values{"since": {iso(p.Since)}, "first": {u.Query().Get("first")}}
		if u.Query().Has("place") {
			next.Set("place", u.Query().Get("place"))
		}
		p.NextPage = channelURL(id) + "?" + next.Encode()
	}
	for _, s := range []struct {
		name string
		ago  time.Duration
	}{{"10 min", sinceAgo}, {"1 h", time.Hour}, {"1 d", 24 * time.Hour}, {"7 d", 7 * 24 * time.Hour}} {
		p.Sinces = append(p.Sinces, link{s.name, channelURL(id) + "?since=" + url.QueryEscape(iso(v.now.Add(-s.ago)))})
	}
	return nil
}

// channelFacts are the settings of a channel.
func channelFacts(c *Channel) (facts []fact) {
	for _, f := range []fact{{Name: "Name", Text: c.Name}, {Name: "State", Text: strings.ToLower(c.State)},
		{Name: "Acknowledges", Text: c.Ack}, {Name: "Waits for the store", Text: c.LatencyBudget},
		{Name: "Repeats", Text: c.Duplicates}, {Name: "Message IDs are unique in", Text: c.Identity},
		{Name: "Expects a message every", Text: c.ExpectEvery}, {Name: "Accepts at most", Text: c.PublishRate},
		{Name: "Group", Text: c.Group}, {Name: "State of the group", Text: strings.ToLower(c.GroupState)},
		{Name: "Changed", At: c.ChangedAt}} {
		if f.Text != "" || !f.At.IsZero() {
			facts = append(facts, f)
		}
	}
	return facts
}

// A choice is a page that needs a channel, or a consumer, to be chosen first.
type choice struct {
	Path     string // of the page
	Channel  string // that was chosen; "": none
	Consumer string
	Channels []Channel
	Next     string // further channels, or entries
	Now      time.Time
}

// choose fills a choice, and lists the channels where none was chosen.
func (v *view) choose(ctx context.Context, path string) choice {
	q := v.query("channel", "consumer", "first")
	c := choice{Path: Prefix + path, Channel: q.Get("channel"), Consumer: q.Get("consumer"), Now: v.now}
	if c.Channel == "" {
		var next string
		if c.Channels, next = v.src.Channels(ctx, "", q.Get("first")); next != "" {
			c.Next = c.Path + "?" + url.Values{"first": {next}}.Encode()
		}
	}
	return c
}

// after is the link to the next entries of what was chosen.
func (c *choice) after(first, place string) {
	if first == "" {
		return
	}
	q := url.Values{"channel": {c.Channel}, "first": {first}}
	if c.Consumer != "" {
		q.Set("consumer", c.Consumer)
	}
	if place != "" {
		q.Set("place", place)
	}
	c.Next = c.Path + "?" + q.Encode()
}

// A scheduledView is the list of the scheduled messages of a channel.
type scheduledView struct {
	choice
	Rows []Scheduled
}

func scheduledPage(ctx context.Context, v *view) (title string, content any, err error) {
	p := &scheduledView{choice: v.choose(ctx, "scheduled")}
	if p.Channel == "" {
		return "Scheduled messages are listed by channel", p, nil
	}
	q := v.query("first", "place")
	rows, first, place, err := v.src.Scheduled(ctx, p.Channel, q.Get("first"), q.Get("place"))
	if err != nil {
		return "", nil, err
	}
	p.Rows = rows
	p.after(first, place)
	switch {
	case len(rows) == 0:
		return "No scheduled message of " + p.Channel + " waits", p, nil
	case q.Has("first"):
		return "Further scheduled messages of " + p.Channel, p, nil
	}
	return "The next message of " + p.Channel + " is due at " + clock(rows[0].Due, v.now), p, nil
}

// A bulksView is the list of the bulks of a channel.
type bulksView struct {
	choice
	Rows []bulkRow
}

type bulkRow struct {
	apitype.Bulk
	Mark Mark
	Done string // percent of the rows
}

func bulksPage(ctx context.Context, v *view) (title string, content any, err error) {
	p := &bulksView{choice: v.choose(ctx, "bulks")}
	if p.Channel == "" {
		return "Bulks are listed by channel", p, nil
	}
	rows, first, err := v.src.Bulks(ctx, p.Channel, v.query("first").Get("first"))
	if err != nil {
		return "", nil, err
	}
	open, failed := 0, 0
	for _, b := range rows {
		r := bulkRow{Bulk: b, Mark: Mark{"", lowered(strings.ToLower(b.State)), cut(b.Reason, mostText)}}
		switch b.State {
		case apitype.BulkFailed:
			r.Mark.Class = "bad"
			failed++
		case apitype.BulkPaused, apitype.BulkCancelled:
			r.Mark.Class = "off"
		case apitype.BulkRunning, apitype.BulkFetching:
			open++
		}
		if b.Total > 0 {
			r.Done = number(float64(100*(b.Published+b.Rejected+b.Duplicates))/float64(b.Total)) + " %"
		}
		p.Rows = append(p.Rows, r)
	}
	p.after(first, "")
	switch {
	case len(rows) == 0:
		return p.Channel + " has no bulks", p, nil
	case failed > 0:
		return plural(failed, "bulk") + " of " + p.Channel + " failed", p, nil
	case open > 0:
		return plural(open, "bulk") + " of " + p.Channel + " under way", p, nil
	}
	return "No bulk of " + p.Channel + " is under way", p, nil
}

// A replaysView is the list of the replays of a consumer, or of all that are under way.
type replaysView struct {
	choice
	Rows []Replay
}

func replaysPage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("channel", "consumer", "first")
	p := &replaysView{choice: choice{Path: Prefix + "replays", Channel: q.Get("channel"), Consumer: q.Get("consumer"),
		Now: v.now}}
	if p.Channel == "" || p.Consumer == "" {
		p.Channel, p.Consumer = "", ""
		p.Rows = v.src.ReplaysUnderWay()
		if len(p.Rows) == 0 {
			return "No replay is under way", p, nil
		}
		return plural(len(p.Rows), "replay") + " under way", p, nil
	}
	rows, first, err := v.src.Replays(ctx, p.Channel, p.Consumer, q.Get("first"))
	if err != nil {
		return "", nil, err
	}
	p.Rows = rows
	p.after(first, "")
	if len(rows) == 0 {
		return p.Consumer + " has no replays", p, nil
	}
	return "The last replay of " + p.Consumer + " is " + strings.ToLower(rows[0].State), p, nil
}
