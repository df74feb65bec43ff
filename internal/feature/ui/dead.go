package ui

import (
	"context"
	"net/url"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A deadView is the dead letters of a consumer by cause, or the consumers that have some.
type deadView struct {
	choice
	Consumers []consumerRow
	Groups    []deadGroup
	Acts      []offered // on all of them
	Total     int64
	Curl      string

	Export      string       // all of them as a file
	Redrives    []redriveRow // the last ones
	RedrivesURL string       // of all
}

// A deadGroup is the letters of one cause, with what can be done with them.
type deadGroup struct {
	apitype.DeadGroup
	Acts   []offered
	Export string // they as a file
}

func deadPage(ctx context.Context, v *view) (title string, content any, err error) {
	q := v.query("channel", "consumer")
	p := &deadView{choice: choice{Path: Prefix + "dlq", Channel: q.Get("channel"), Consumer: q.Get("consumer"),
		Now: v.now}}
	if p.Channel == "" || p.Consumer == "" {
		var list apitype.ConsumerList
		ask := url.Values{"sort": {"dead"}, "limit": {"100"}}
		if p.Consumer = ""; p.Channel != "" {
			ask.Set("channel", p.Channel)
		}
		if err := v.src.Get(ctx, "/consumers", nil, ask, &list); err != nil {
			return "", nil, err
		}
		for i := range list.Result {
			if c := &list.Result[i]; c.DeadLetters != nil && *c.DeadLetters > 0 {
				p.Consumers = append(p.Consumers, rowOf(c, v.now))
				p.Total += int64(*c.DeadLetters)
			}
		}
		if len(p.Consumers) == 0 {
			return "There are no dead letters", p, nil
		}
		return plural(int(p.Total), "dead letter") + " of " + plural(len(p.Consumers), "consumer"), p, nil
	}
	return deadOf(ctx, v, p)
}

// deadOf fills the page of the letters of one consumer.
func deadOf(ctx context.Context, v *view, p *deadView) (title string, content any, err error) {
	var groups apitype.DeadGroups
	redrives, err := v.redrivesOf(ctx, p.Channel, p.Consumer, "", "3")
	if err != nil {
		return "", nil, err
	}
	for _, r := range redrives.Result {
		p.Redrives = append(p.Redrives, v.rowOfRedrive(r, p.Channel, p.Consumer))
	}
	p.RedrivesURL = redrivesURL(p.Channel, p.Consumer)
	err = v.src.Get(ctx, "/channel/{channel}/consumer/{consumer}/dlq/groups", map[string]string{"channel": p.Channel,
		"consumer": p.Consumer}, nil, &groups)
	if err != nil {
		return "", nil, err
	}
	p.Curl = v.curlOf("/channel/" + p.Channel + "/consumer/" + p.Consumer + "/dlq")
	for _, g := range groups.Result {
		p.Total += g.Count
		if g.Sample = cut(g.Sample, mostText); len(p.Groups) < mostGroups {
			p.Groups = append(p.Groups, deadGroup{g, v.offersOfLetters(p.Channel, p.Consumer, g.Fingerprint),
				exportURL(p.Channel, p.Consumer, g.Fingerprint)})
		}
	}
	if p.Total > 0 {
		p.Acts, p.Export = v.offersOfLetters(p.Channel, p.Consumer, ""), exportURL(p.Channel, p.Consumer, "")
	}
	if len(groups.Result) == 0 {
		return p.Consumer + " has no dead letters", p, nil
	}
	return p.Consumer + " has " + plural(int(p.Total), "dead letter") + " of " + plural(len(groups.Result), "cause"), p,
		nil
}

// mostGroups is the number of causes that a page shows.
const mostGroups = 200
