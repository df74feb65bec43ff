package ui

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Message is a message, or one of its jobs, with what became of it.
type Message struct {
	Channel     string
	ID          string // in paths
	Own         string // that the broker made
	Producer    string // its ID; "": none, or one that is gone
	At          time.Time
	Priority    int
	ContentType string
	Coding      string // of the payload; "": none
	Headers     map[string]string
	Payload     []byte

	Jobs     []MessageJob // of a message
	MoreJobs bool
	Job      *MessageJob // of the page of a job

	Why      apitype.Why
	Timeline apitype.Timeline
	Missing  []string // what cannot be read now

	Responding bool               // a consumer of the channel keeps responses
	Responses  *apitype.Responses // nil: they were not asked for
}

// A MessageJob is the job of a message at one consumer.
type MessageJob struct{ Consumer, ID string }

// A messageView is what the page of a message or job shows.
type messageView struct {
	Message
	Shown   shownPayload
	Rows    []jobRow
	Reasons []reason
	Life    []lifeEvent
	Next    string // page of the timeline
	Forms   []link
	Heads   []setting
	Curl    string
	Replies []replyRow
	Now     time.Time
	URL     string // of the page
	Reveal  string // page that asks before the payload is shown; "": there is none
	Raw     string // the payload as it was sent; "": there is none
	Again   string // page that sends the message again; "": the dashboard only reads
}

// A link is a form of the payload with its page; "" as URL: it is the one that is shown.
type link struct{ Name, URL string }

// A jobRow is a job of the message.
type jobRow struct {
	MessageJob
	Mark Mark
}

// A lifeEvent is one thing that happened to a message, or will.
type lifeEvent struct {
	Class             string // "": good
	At                time.Time
	Who, What, Detail string
	TraceID, TraceURL string
}

// A replyRow is the response of one consumer.
type replyRow struct {
	apitype.Response
	Shown shownPayload
}

func messagePage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("first", "as", "show")
	m, err := v.src.Message(ctx, v.id("channel"), v.id("message"), q.Get("first"), q.Get("show") == "responses")
	if err != nil {
		return "", nil, err
	}
	p := v.messageView(m, q)
	return titleOfMessage(p), p, nil
}

func jobPage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("first", "as")
	m, err := v.src.Job(ctx, v.id("channel"), v.id("consumer"), v.id("job"), q.Get("first"))
	if err != nil {
		return "", nil, err
	}
	p := v.messageView(m, q)
	if m.Job == nil {
		return "The job of " + v.id("consumer"), p, nil
	}
	return m.Job.Consumer + ": " + lowered(markOfJob(m.Why.Reasons).Word), p, nil
}

// messageView makes what both pages show.
func (v *view) messageView(m Message, q url.Values) *messageView {
	payloads := v.payloads()
	p := &messageView{Reveal: v.revealURL(&m), Raw: v.rawURL(&m), Message: m, Now: v.now, Reasons: reasonsOf(m.Why),
		Curl: v.curl(&m), Shown: payloads.show(m.Payload, q.Get("as"), m.Coding != "" && m.Coding != "identity")}
	p.URL = messageURL(m.Channel, m.ID)
	if !v.d.o.ReadOnly && v.mayPublish() {
		p.Again = publishURL(m.Channel, m.ID)
	}
	if m.Job != nil {
		p.URL = jobURL(m.Channel, m.Job.Consumer, m.Job.ID)
	}
	for _, form := range p.Shown.Forms {
		l := link{Name: form}
		if form != p.Shown.Form {
			l.URL = p.URL + "?as=" + form
		}
		p.Forms = append(p.Forms, l)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if len(p.Heads) < mostHeads {
			p.Heads = append(p.Heads, setting{cut(name, mostText), cut(m.Headers[name], mostReason)})
		}
	}
	for _, j := range m.Jobs {
		p.Rows = append(p.Rows, jobRow{j, markOfJob(ofConsumer(m.Why.Reasons, j.Consumer))})
	}
	for i := range m.Timeline.Result {
		p.Life = append(p.Life, v.lifeOf(&m.Timeline.Result[i]))
	}
	if p.Next = nextOf(m.Timeline.Pages.Next, p.URL); p.Next == "" {
		p.Life = append(p.Life, toCome(m.Why.Reasons)...)
	}
	if m.Responses != nil {
		for _, r := range m.Responses.Result {
			body := []byte(r.Body)
			if r.BodyEncoding == apitype.Base64 {
				body, _ = base64.StdEncoding.DecodeString(r.Body)
			}
			if len(p.Replies) < mostReplies {
				p.Replies = append(p.Replies, replyRow{r, payloads.brief(body)})
			}
		}
	}
	return p
}

const (
	mostHeads   = 200 // headers of a message that a page shows
	mostReplies = 20  // responses
	mostBrief   = 8 << 10
)

// brief is show for one of several payloads of a page.
func (p *Payloads) brief(payload []byte) shownPayload {
	s := p.show(payload, "", false)
	if len(s.Text) > mostBrief {
		s.Text, s.Cut = cut(s.Text, mostBrief), true
	}
	return s
}

// nextOf takes the place from a link of the API to the next page of a timeline.
func nextOf(link, page string) string {
	u, err := url.Parse(link)
	if link == "" || err != nil {
		return ""
	}
	return page + "?" + url.Values{"first": {u.Query().Get("first")}}.Encode()
}

// titleOfMessage says how many consumers have the message.
func titleOfMessage(p *messageView) string {
	done, all := 0, 0
	for _, r := range p.Rows {
		if r.Mark.Class != "off" {
			all++
		}
		if r.Mark.Word == wordDelivered {
			done++
		}
	}
	switch {
	case p.MoreJobs:
		return "A message of more consumers than a page shows"
	case all == 0:
		return "The message is for no consumer"
	case all == 1 && done == 1:
		return "Its consumer has it"
	case all == done:
		return "All " + number(all) + " consumers have it"
	}
	return fmt.Sprintf("%s of %s it", number(done), plural(all, "consumer")+haveOrHas(all))
}

func haveOrHas(n int) string {
	if n == 1 {
		return " has"
	}
	return " have"
}

const wordDelivered = "Delivered"

// ofConsumer returns the reasons of one consumer.
func ofConsumer(all []apitype.WhyReason, consumer string) (out []apitype.WhyReason) {
	for _, r := range all {
		if r.ConsumerID == consumer {
			out = append(out, r)
		}
	}
	return out
}

// jobWords say the codes of why of a job that is over, or that never was.
var jobWords = map[string]Mark{
	"delivered": {"", wordDelivered, ""}, "dead": {"bad", "A dead letter", ""}, "expired": {"bad", "Expired", ""},
	"filtered":       {"off", "Left out by its filter", ""},
	"not_addressed":  {"off", "Not addressed to it", ""},
	"consumer_newer": {"off", "Older than the consumer", ""},
	"due":            {"", "Due, and nothing is in the way", ""},
}

// markOfJob says how a job is doing, from its reasons.
func markOfJob(reasons []apitype.WhyReason) Mark {
	if len(reasons) == 0 {
		return Mark{"", "In flight", ""}
	}
	r := reasons[0]
	m, ok := jobWords[r.Code]
	if !ok {
		m = Mark{"warn", "Waits: " + strings.ReplaceAll(r.Code, "_", " "), ""}
	}
	m.Sub = cut(r.Detail, mostText)
	return m
}

// events say the events of a timeline.
var events = map[string]Mark{
	apitype.EventAccepted: {"", "accepted", ""}, apitype.EventAttempt: {"bad", "attempt failed", ""},
	apitype.EventLeaseEnded: {"bad", "lease ended without a word", ""}, apitype.EventGivenBack: {"wait", "given back", ""},
	apitype.EventDelivered: {"", "delivered", ""}, apitype.EventDead: {"bad", "became a dead letter", ""},
	apitype.EventRedriven: {"wait", "redriven", ""}, apitype.EventReplayed: {"", "replayed", ""},
	apitype.EventResponseReceived:  {"", "its response was stored", ""},
	apitype.EventResponseDelivered: {"", "the producer took the response", ""},
	apitype.EventFailed:            {"bad", "there will be no response", ""},
}

// lifeOf says one event.
func (v *view) lifeOf(e *apitype.TimelineEvent) lifeEvent {
	mark, ok := events[e.Event]
	if !ok {
		mark = Mark{"", strings.ToLower(e.Event), ""}
	}
	l := lifeEvent{Class: mark.Class, At: e.At.Time, Who: e.ConsumerID, What: mark.Word, TraceID: e.TraceID}
	if e.Event == apitype.EventAttempt {
		if l.What = fmt.Sprintf("attempt %d", e.Attempt); e.Status > 0 {
			l.What += fmt.Sprintf(" was answered %d", e.Status)
		}
		if e.Status/100 == 2 && e.Phase == "" {
			l.Class = ""
		}
	}
	if e.Event == apitype.EventReplayed && e.ReasonCode != "" {
		l.Class = "bad"
	}
	if e.DurationMs != nil {
		l.What += " in " + number(*e.DurationMs) + " ms"
	}
	if e.Detail != "" {
		l.Detail = cut(v.payloads().withoutAnswer(e.Detail), mostReason)
	}
	if strings.HasPrefix(e.TraceURL, "https://") || strings.HasPrefix(e.TraceURL, "http://") {
		l.TraceURL = e.TraceURL
	}
	return l
}

// withoutAnswer removes what a consumer answered from the words of a timeline, where payloads are not shown: an
// answer may repeat them.
func (p *Payloads) withoutAnswer(detail string) string {
	if p.whole() {
		return detail
	}
	for _, what := range []string{"answer: ", "detail: "} {
		if before, _, ok := strings.Cut("; "+detail, "; "+what); ok {
			detail = strings.TrimPrefix(before, "; ")
		}
	}
	return detail
}

// toCome are the next steps of the jobs that wait for a time.
func toCome(reasons []apitype.WhyReason) (out []lifeEvent) {
	for _, r := range reasons {
		if r.Until != nil && len(out) < mostMarks {
			out = append(out, lifeEvent{Class: "wait", At: r.Until.Time, Who: r.ConsumerID,
				What: "until then: " + strings.ReplaceAll(r.Code, "_", " ")})
		}
	}
	return out
}

// curl is a command that shows the same.
func (v *view) curl(m *Message) string {
	path := "/channel/" + m.Channel + "/message/" + m.ID
	if m.Job != nil {
		path = "/channel/" + m.Channel + "/consumer/" + m.Job.Consumer + "/job/" + m.Job.ID
	}
	return v.curlOf(path)
}

// curlOf is a command for a GET of the API, to be copied into a shell.
func (v *view) curlOf(path string) string {
	scheme, host := "http", string(v.rc.Request.Header.Host())
	if secure(v.rc) {
		scheme = "https"
	}
	if host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") != "" {
		host = "127.0.0.1:8080"
	}
	command := "curl -s '" + scheme + "://" + host + path + "'"
	if !v.open {
		command += ` -H "X-Broker-Admin-Token: $ADMIN_TOKEN"`
	}
	return command
}

// messageURL and jobURL are the pages of a message and of a job.
func messageURL(channel, id string) string { return channelURL(channel) + "/message/" + id }

func jobURL(channel, consumer, id string) string {
	return consumerURL(channel, consumer) + "/job/" + id
}
