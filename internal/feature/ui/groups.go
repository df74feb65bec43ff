package ui

import (
	"context"
	"net/url"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A Group is a group of channels with the counts of their consumers.
type Group struct {
	apitype.Group
	InIt          int  // channels
	Counted       bool // the jobs are counted
	Waiting, Dead int
}

// groupsURL is the page of groups.
const groupsURL = Prefix + "groups"

// groupsView is the list of groups.
type groupsView struct {
	Rows []groupRow
	Next string
	More bool // it is not the first page
	Said string
}

type groupRow struct {
	Group
	Mark Mark
	URL  string // its channels
	Acts []offered
}

// groupActions are what can be done to a group, by the name in the path.
var groupActions = map[string]*action{
	"pause":  {"Pause", askPauseGroup, doState},
	"resume": {"Resume", askResumeGroup, doState},
}

func groupsPage(_ context.Context, v *view) (title string, content any, err error) {
	q := v.query("first")
	list, next := v.src.Groups(q.Get("first"))
	p := &groupsView{More: q.Has("first"), Said: v.said()}
	stopped := 0
	for _, g := range list {
		r := groupRow{Group: g, Mark: Mark{"", "Its channels accept messages", ""}, URL: channelsURL(g.ID, "")}
		name := "pause"
		if g.State == paused {
			r.Mark, name = Mark{"warn", "Paused: its channels accept no messages", ""}, "resume"
			stopped++
		} else if g.InIt == 0 {
			r.Mark = Mark{"off", "No channel carries it", ""}
		}
		r.Acts = v.offer(target{Group: g.ID}, groupActions, name)
		p.Rows = append(p.Rows, r)
	}
	if next != "" {
		p.Next = groupsURL + "?" + url.Values{"first": {next}}.Encode()
	}
	switch {
	case len(list) == 0 && p.More:
		return "There are no more groups", p, nil
	case len(list) == 0:
		return "There is no group", p, nil
	case stopped == 0:
		return "No group is paused", p, nil
	case stopped == 1:
		return "One group is paused", p, nil
	}
	return spelled(stopped) + " groups are paused", p, nil
}

func askPauseGroup(_ context.Context, v *view, t *target) (q question, err error) {
	g, err := v.src.Group(t.Group)
	return question{Title: "Pause the group " + t.Group + "?", Hits: groupJobs(&g), Bound: g.State,
		Nothing: g.State == paused, Then: []string{"None of its channels accepts messages: a publish is refused until the " +
			"group is resumed, and producers have to send again.", "Scheduled messages of its channels wait.",
			"Messages that are stored already are delivered as before."}}, err
}

func askResumeGroup(_ context.Context, v *view, t *target) (q question, err error) {
	g, err := v.src.Group(t.Group)
	return question{Title: "Resume the group " + t.Group + "?", Hits: groupJobs(&g), Bound: g.State,
		Nothing: g.State != paused, Then: []string{"Its channels accept messages again.",
			"A channel that is paused itself stays paused."}}, err
}

func groupJobs(g *Group) string {
	text := "No stored job is touched. The group has " + plural(g.InIt, "channel")
	if g.Counted {
		text += ", with " + plural(g.Waiting, "job") + " waiting"
	}
	return text + "."
}
