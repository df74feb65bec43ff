package ui

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A consumerRow is a consumer in a list.
type consumerRow struct {
	Channel, ID, Name string
	Where             string // push and its address, or pull
	Mark              Mark
	Waiting, InFlight *int
	Dead              *int
	AtLeast           bool
	Oldest            string // age of the oldest job that waits; "": none
	OldestAt          time.Time
}

func rowOf(c *apitype.ListedConsumer, now time.Time) consumerRow {
	r := consumerRow{Channel: c.ChannelID, ID: c.ID, Name: c.Name, Where: c.Type, Mark: markOf(c, now), Waiting: c.Queued,
		InFlight: c.InFlight, Dead: c.DeadLetters, AtLeast: c.Approximate}
	if c.Type == "push" && c.CallbackURL != "" {
		r.Where += " · " + cut(c.CallbackURL, 80)
	}
	if c.Policy.Ordered == "true" {
		r.Where += " · ordered"
	}
	if c.OldestQueuedAt != nil {
		r.Oldest, r.OldestAt = age(now.Sub(c.OldestQueuedAt.Time)), c.OldestQueuedAt.Time
	}
	return r
}

// A consumersView is the list of all consumers.
type consumersView struct {
	Rows    []consumerRow
	Sort    string
	Sorts   []sorting
	Channel string // only those of this channel
	Next    string // the next page
	More    bool   // this is not the first one
	Now     time.Time
}

// A sorting is an order in which the list may be.
type sorting struct{ Value, Name, URL string }

// listed is the number of consumers on a page.
const listed = "50"

func consumersPage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("sort", "channel", "state", "held", "first", "place")
	p := &consumersView{Sort: q.Get("sort"), Channel: q.Get("channel"), More: q.Has("first"), Now: v.now}
	if p.Sort == "" {
		p.Sort = "oldest"
		q.Set("sort", p.Sort)
	}
	q.Set("limit", listed)
	var list apitype.ConsumerList
	if err := v.src.Get(ctx, "/consumers", nil, q, &list); err != nil {
		return "", nil, err
	}
	for i := range list.Result {
		p.Rows = append(p.Rows, rowOf(&list.Result[i], v.now))
	}
	p.Next = pageOf(list.Pages.Next)
	for _, s := range []sorting{{"oldest", "oldest job", ""}, {"dead", "dead letters", ""}, {"queued", "jobs that wait",
		""}, {"failing", "jobs that are tried again", ""}} {
		own := url.Values{"sort": {s.Value}}
		if p.Channel != "" {
			own.Set("channel", p.Channel)
		}
		s.URL = Prefix + "consumers?" + own.Encode()
		p.Sorts = append(p.Sorts, s)
	}
	return titleOfConsumers(p), p, nil
}

func titleOfConsumers(p *consumersView) string {
	need := 0
	for _, r := range p.Rows {
		if r.Mark.Class == "bad" || r.Mark.Class == "warn" {
			need++
		}
	}
	of := ""
	if p.Channel != "" {
		of = " of " + p.Channel
	}
	switch {
	case len(p.Rows) == 0 && p.More:
		return "There are no more consumers" + of
	case len(p.Rows) == 0:
		return "There is no consumer" + of
	case need == 0 && p.More:
		return "These consumers" + of + " need nobody"
	case need == 0:
		return "No consumer" + of + " needs attention"
	case need == 1:
		return "One consumer" + of + " on this page needs attention"
	}
	return spelled(need) + " consumers" + of + " on this page need attention"
}

// pageOf turns a link of the API into one of the dashboard; "" remains "".
func pageOf(link string) string {
	if link == "" {
		return ""
	}
	return Prefix + strings.TrimPrefix(link, "/")
}
