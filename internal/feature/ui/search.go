package ui

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Found is what a search for an ID or a name has found.
type Found struct {
	Channels  []string
	Consumers []MessageJob // channel and ID of consumers, as Consumer and ID
	Producers []string
	Messages  []FoundMessage
	Looked    string // how far, in words
	More      bool   // there is more of some kind
}

// A FoundMessage is a message, or one of its jobs.
type FoundMessage struct{ Channel, ID, Consumer, Job string }

// A Jobs is a part of the jobs of a consumer.
type Jobs struct {
	List []apitype.Job
	Next string // where the next part begins; "": this is the last one
}

// A searchView is what was found.
type searchView struct {
	Q       string
	Refused string // why the search cannot be read, or made
	Terms   []term // that there are, where nothing is searched for
	Suggest []string

	Found // of an ID or a name

	ByTerms bool
	Choices []link // searches that say which channel or consumer is meant
	Rows    []foundRow
	Job     bool   // the rows are jobs
	Next    string // further ones
}

// A foundRow is a message or a job that all terms hold for.
type foundRow struct {
	URL, ID string
	At      time.Time // of the message
	Mark    Mark
	Error   string
}

const (
	// longestSearch bounds what is searched for, in bytes: an ID with its channel, or some terms.
	longestSearch = 520
	// foundMost bounds the rows of a page, and jobsLooked the jobs that a search for an error looks at.
	foundMost, jobsLooked = 50, 500
)

const nothingFits = "Nothing fits"

func searchPage(ctx context.Context, v *view) (title string, content any, err error) {
	p := &searchView{Q: cut(strings.TrimSpace(v.query("q").Get("q")), longestSearch)}
	t, plain, refused := readTerms(p.Q, v.now)
	p.Suggest = suggestions(p.Q, t, v.src.Consumers("", ""))
	switch {
	case p.Q == "":
		p.Terms = knownTerms
		return "Search for an ID, a name or by terms", p, nil
	case refused != "":
		p.Refused = refused
		return "This search cannot be read", p, nil
	case t != nil:
		p.ByTerms = true
		title, err = v.searchBy(ctx, t, p)
		if said := problem.FromChange(err); err != nil && said.Status < 500 {
			p.Refused, err = said.Detail, nil // it names something that does not exist
			title = "This search cannot be made"
		}
		return title, p, err
	}
	p.Found = v.src.Search(ctx, plain)
	n := len(p.Channels) + len(p.Consumers) + len(p.Producers) + len(p.Messages)
	switch {
	case n == 0:
		return "Nothing has this ID or name", p, nil
	case p.More:
		return "More than " + number(n) + " have this ID or name", p, nil
	}
	return "Found: " + number(n), p, nil
}

// searchBy looks for what terms ask for.
func (v *view) searchBy(ctx context.Context, t *terms, p *searchView) (title string, err error) {
	if t.payload != "" && !v.d.o.Payloads.whole() {
		p.Refused = "BROKER_UI_PAYLOADS hides payloads, or parts of them, so they are not searched."
		return "This search cannot be made", nil
	}
	if title = v.whose(ctx, t, p); title != "" {
		return title, nil
	}
	if t.fault != "" && t.payload == "" && t.producer == "" {
		return v.searchJobs(ctx, t, p)
	}
	if t.fault != "" && t.state == "" {
		t.state = "dead"
	}
	return v.searchMessages(ctx, t, p)
}

// whose finds out which channel and consumer are meant. title is that of a page that asks for it; "": it is known.
func (v *view) whose(ctx context.Context, t *terms, p *searchView) (title string) {
	add := func(value, text string) {
		p.Choices = append(p.Choices, link{value, Prefix + "search?" + url.Values{"q": {p.Q + " " + text}}.Encode()})
	}
	if (t.state != "" || t.fault != "") && t.consumer == "" || t.consumer != "" && t.channel == "" {
		all := v.src.Consumers(t.channel, t.consumer)
		switch {
		case len(all) == 1:
			t.channel, t.consumer = all[0].Consumer, all[0].ID
			return ""
		case len(all) == 0 && t.consumer != "":
			p.Refused = "There is no consumer " + t.consumer + "."
			return nothingFits
		case len(all) == 0:
			p.Refused = "There is no consumer whose jobs could have a state or an error."
			return nothingFits
		}
		for _, k := range all {
			text := "consumer:" + k.Consumer + "/" + k.ID
			if t.consumer != "" {
				text = "channel:" + k.Consumer
			}
			add(k.Consumer+" / "+k.ID, text)
		}
		return "Of which consumer?"
	}
	if t.channel != "" {
		return ""
	}
	list, _ := v.src.Channels(ctx, "", "")
	if len(list) == 1 {
		t.channel = list[0].ID
		return ""
	}
	for _, c := range list {
		add(c.ID, "channel:"+c.ID)
	}
	if len(list) == 0 {
		p.Refused = "There is no channel yet."
		return nothingFits
	}
	return "Of which channel?"
}

// searchMessages lists the messages that terms ask for.
func (v *view) searchMessages(ctx context.Context, t *terms, p *searchView) (title string, err error) {
	ask := url.Values{"order": {"desc"}, "limit": {listed}}
	for name, value := range map[string]string{"consumer": t.consumer, "status": strings.ToUpper(t.state),
		"contains": t.payload, "producer": t.producer, "error": t.fault, "first": v.query("first").Get("first")} {
		if value != "" {
			ask.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"from": t.from, "to": t.to} {
		if !at.IsZero() {
			ask.Set(name, iso(at))
		}
	}
	var list apitype.MessageList
	err = v.src.Get(ctx, "/channel/{channel}/messages", map[string]string{"channel": t.channel}, ask, &list)
	if err != nil {
		return "", err
	}
	for _, at := range list.Result {
		id := at[strings.LastIndexByte(at, '/')+1:]
		p.Rows = append(p.Rows, foundRow{URL: messageURL(t.channel, id), ID: id})
	}
	if u, err := url.Parse(list.Pages.Next); err == nil && list.Pages.Next != "" {
		p.Next = p.further(u.Query().Get("first"))
	}
	n := 0
	if list.Searched != nil {
		n = *list.Searched
	}
	p.Looked = looked(n, "messages", t.channel, p.Next != "")
	return p.fits("message"), nil
}

// searchJobs lists the jobs whose last failure said what terms ask for.
func (v *view) searchJobs(ctx context.Context, t *terms, p *searchView) (title string, err error) {
	p.Job = true
	state := t.state
	if state == "" {
		state = "dead"
	}
	all, err := v.src.Jobs(ctx, t.channel, t.consumer, strings.ToUpper(state), v.query("first").Get("first"), jobsLooked)
	if err != nil {
		return "", err
	}
	low := strings.ToLower(t.fault)
	seen := 0
	for i := range all.List {
		j := &all.List[i]
		if len(p.Rows) == foundMost {
			all.Next = j.ID
			break
		}
		seen++
		id, err := ident.Parse(j.ID)
		if err != nil || !t.has(id.Time()) || !strings.Contains(strings.ToLower(j.Reason), low) {
			continue
		}
		p.Rows = append(p.Rows, foundRow{jobURL(t.channel, t.consumer, j.ID), j.ID, id.Time(), markOfState(j),
			cut(j.Reason, mostText)})
	}
	if all.Next != "" {
		p.Next = p.further(all.Next)
	}
	things := "dead letters"
	if state != "dead" {
		things = state + " jobs"
	}
	p.Looked = looked(seen, things, t.channel+" / "+t.consumer, p.Next != "")
	return p.fits("job"), nil
}

// further is the link to what is behind a page.
func (p *searchView) further(first string) string {
	return Prefix + "search?" + url.Values{"q": {p.Q}, "first": {first}}.Encode()
}

// fits says how many things were found.
func (p *searchView) fits(thing string) string {
	switch {
	case len(p.Rows) == 0 && p.Next != "":
		return "No " + thing + " fits so far"
	case len(p.Rows) == 0:
		return "No " + thing + " fits"
	case len(p.Rows) == 1:
		return "One " + thing + " fits"
	}
	return spelled(len(p.Rows)) + " " + thing + "s fit"
}

// markOfState says the state of a job in a list.
func markOfState(j *apitype.Job) Mark {
	switch j.Status {
	case "DEAD":
		return jobWords["dead"]
	case "INFLIGHT":
		return Mark{"", "In flight", ""}
	}
	m := Mark{"", "Waits", ""}
	if j.NextAttemptAt != nil {
		m.Sub = "until " + iso(j.NextAttemptAt.Time)
	}
	return m
}
