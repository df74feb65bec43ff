package ui

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// offersOfLetters are the buttons of a group, or of all letters of a consumer.
func (v *view) offersOfLetters(channel, consumer, fingerprint string) (out []offered) {
	q := url.Values{}
	if fingerprint != "" {
		q.Set("fingerprint", fingerprint)
	}
	t := target{Channel: channel, Consumer: consumer, Query: q}
	out = v.offer(t, consumerActions, "redrive")
	t.Query = maps.Clone(q)
	t.Query.Set("canary", "true")
	for _, o := range v.offer(t, consumerActions, "redrive") {
		o.Name = "Redrive by canary"
		out = append(out, o)
	}
	if t.Query = q; v.d.o.AllowDelete {
		out = append(out, v.offer(t, consumerActions, "delete")...)
	}
	return out
}

// letters counts the dead letters that a target means, by a dry run of a redrive.
func (v *view) letters(t *target) (n int64, of string, err error) {
	a, err := v.redrive(t, true)
	if err != nil {
		return 0, "", err
	}
	var e apitype.RedriveEstimate
	if err := json.Unmarshal(a.Body, &e); err != nil {
		return 0, "", err
	}
	if of = plural(int(e.Matched), "dead letter"); e.Approximate {
		of += " or more"
	}
	if f := t.Query.Get("fingerprint"); f != "" {
		of += " of the cause " + cut(f, mostText)
	}
	return e.Matched, of, nil
}

// redrive asks the API for a redrive of the letters that a target means.
func (v *view) redrive(t *target, dry bool) (Answer, error) {
	body, err := json.Marshal(apitype.RedriveRequest{DryRun: dry, Canary: t.Query.Get("canary") == "true",
		DeadSelection: apitype.DeadSelection{Fingerprint: t.Query.Get("fingerprint")}})
	if err != nil {
		return Answer{}, err
	}
	return v.do(Request{Method: fasthttp.MethodPost, Path: t.API() + "/dlq/redrive", Body: body,
		Headers: map[string]string{fasthttp.HeaderContentType: apitype.MediaJSON}})
}

func askRedrive(_ context.Context, v *view, t *target) (q question, err error) {
	n, of, err := v.letters(t)
	q = question{Title: "Redrive the dead letters of " + t.Consumer + "?", Hits: of + " would be jobs again.",
		Bound: strconv.FormatInt(n, 10), Of: "dead letter", Nothing: n == 0, Then: []string{
			"Each gets new attempts, under the ID that it has. A consumer that took it before gets it once more."}}
	if t.Query.Get("canary") == "true" {
		q.Title = "Redrive the dead letters of " + t.Consumer + " by canary?"
		q.Then = append(q.Then, "One goes first, then 10, then 100, then all of them. When those of a step fail again, the "+
			"redrive stops and keeps the rest as they are.")
	} else {
		q.Then = append(q.Then, "All of them go as fast as the consumer takes them. A canary would try one first.")
	}
	q.Then = append(q.Then, "It goes on without this page, and the next one shows how far it is.")
	return q, err
}

func doRedrive(v *view, t *target) (out effect, err error) {
	a, err := v.redrive(t, false)
	if err != nil {
		return out, err
	}
	var r apitype.Redrive
	out.to = redrivesURL(t.Channel, t.Consumer)
	if err = json.Unmarshal(a.Body, &r); err == nil {
		out.n = r.Matched
	}
	return out, err
}

func askDelete(_ context.Context, v *view, t *target) (q question, err error) {
	n, of, err := v.letters(t)
	return question{Title: "Delete the dead letters of " + t.Consumer + "?", Hits: of + " would be deleted.",
		Bound: strconv.FormatInt(n, 10), Of: "dead letter", Nothing: n == 0, Harm: true, Then: []string{
			"They are in no list of dead letters any more, and no redrive brings them back.",
			"Their messages stay as long as the broker keeps messages, and jobs of other consumers are not touched."}}, err
}

func doDelete(v *view, t *target) (out effect, err error) {
	body, err := json.Marshal(apitype.DeadSelection{Fingerprint: t.Query.Get("fingerprint")})
	if err != nil {
		return out, err
	}
	a, err := v.do(Request{Method: fasthttp.MethodPost, Path: t.API() + "/dlq/delete", Body: body,
		Headers: map[string]string{fasthttp.HeaderContentType: apitype.MediaJSON}})
	if err != nil {
		return out, err
	}
	var d apitype.DeletedLetters
	err = json.Unmarshal(a.Body, &d)
	out.n = d.Deleted
	return out, err
}

// askRedriveState asks before a change of a redrive that is in one of some states.
func askRedriveState(verb string, from ...string) func(context.Context, *view, *target) (question, error) {
	return func(ctx context.Context, v *view, t *target) (q question, err error) {
		id := t.Query.Get("redrive")
		var r apitype.Redrive
		err = v.src.Get(ctx, "/channel/{channel}/consumer/{consumer}/redrive/{redrive}", map[string]string{
			"channel": t.Channel, "consumer": t.Consumer, "redrive": id}, nil, &r)
		q = question{Title: verb + " redrive " + cut(id, mostText) + " of " + t.Consumer + "?", Bound: r.State, Nothing: true,
			Harm: verb == "Cancel", Then: []string{"Letters that it has made jobs again stay jobs."}}
		left := plural(int(max(r.Matched-r.Redriven, 0)), "dead letter")
		switch verb {
		case "Resume":
			q.Hits = left + " of it would go on."
			if r.State == "STOPPED" {
				q.Then = append(q.Then, "Its canary has stopped it. The step begins again, with other letters.")
			}
		case "Cancel":
			q.Hits = left + " would stay dead letters."
			q.Then = append(q.Then, "A cancelled redrive does not go on again; another one can be begun.")
		default:
			q.Hits = left + " would wait until it is resumed."
		}
		for _, state := range from {
			q.Nothing = q.Nothing && r.State != state
		}
		return q, err
	}
}

func doRedriveState(v *view, t *target) (effect, error) {
	_, err := v.do(Request{Method: fasthttp.MethodPost, Path: t.API() + "/redrive/" +
		url.PathEscape(t.Query.Get("redrive")) + "/" + strings.TrimPrefix(t.Action, "redrive-")})
	return effect{to: redrivesURL(t.Channel, t.Consumer)}, err
}

// redrivesURL is the page of the redrives of a consumer.
func redrivesURL(channel, consumer string) string {
	return Prefix + "redrives?" + url.Values{"channel": {channel}, "consumer": {consumer}}.Encode()
}

// A redriveRow is a redrive with what can be done with it.
type redriveRow struct {
	apitype.Redrive
	Mark Mark
	Done int // percent
	Acts []offered
}

// rowOfRedrive says how far a redrive is.
func (v *view) rowOfRedrive(r apitype.Redrive, channel, consumer string) redriveRow {
	row := redriveRow{Redrive: r, Mark: Mark{"", strings.ToLower(r.State), cut(r.Reason, mostText)}}
	if r.Matched > 0 {
		row.Done = int(min(100*r.Redriven/r.Matched, 100))
	}
	names := []string{}
	switch r.State {
	case "RUNNING":
		names = append(names, "redrive-pause", "redrive-cancel")
		if r.Canary {
			row.Mark.Word += ", step " + r.Stage
		}
	case "PAUSED":
		row.Mark.Class, names = "off", append(names, "redrive-resume", "redrive-cancel")
	case "STOPPED":
		row.Mark.Class, names = "bad", append(names, "redrive-resume", "redrive-cancel")
	case "CANCELLED":
		row.Mark.Class = "off"
	}
	t := target{Channel: channel, Consumer: consumer, Query: url.Values{"redrive": {r.ID}}}
	row.Acts = v.offer(t, consumerActions, names...)
	return row
}

// A redrivesView is the list of the redrives of a consumer.
type redrivesView struct {
	choice
	Rows []redriveRow
}

func redrivesPage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("channel", "consumer", "first")
	p := &redrivesView{choice: choice{Path: Prefix + "redrives", Channel: q.Get("channel"), Consumer: q.Get("consumer"),
		Now: v.now}}
	if p.Channel == "" || p.Consumer == "" {
		p.Channel, p.Consumer = "", ""
		return "Redrives are listed by consumer", p, nil
	}
	list, err := v.redrivesOf(ctx, p.Channel, p.Consumer, q.Get("first"), "25")
	if err != nil {
		return "", nil, err
	}
	running, stopped := 0, 0
	for _, r := range list.Result {
		p.Rows = append(p.Rows, v.rowOfRedrive(r, p.Channel, p.Consumer))
		switch r.State {
		case "RUNNING":
			running++
		case "STOPPED":
			stopped++
		}
	}
	if u, err := url.Parse(list.Pages.Next); err == nil {
		p.after(u.Query().Get("first"), "")
	}
	switch {
	case len(p.Rows) == 0:
		return p.Consumer + " has no redrives", p, nil
	case stopped > 0:
		return plural(stopped, "redrive") + " of " + p.Consumer + " stopped by a canary", p, nil
	case running > 0:
		return plural(running, "redrive") + " of " + p.Consumer + " under way", p, nil
	}
	return "No redrive of " + p.Consumer + " is under way", p, nil
}

// redrivesOf asks for the redrives of a consumer, the newest first.
func (v *view) redrivesOf(ctx context.Context, channel, consumer, first, limit string) (l apitype.RedriveList,
	err error) {
	ask := url.Values{"limit": {limit}}
	if first != "" {
		ask.Set("first", first)
	}
	err = v.src.Get(ctx, "/channel/{channel}/consumer/{consumer}/redrives", map[string]string{"channel": channel,
		"consumer": consumer}, ask, &l)
	return l, err
}
