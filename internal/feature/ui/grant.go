package ui

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/scope"
)

// A Grant is an API token with which somebody has logged in. A session has its ID and version, and asks the Source at
// each request: it ends with the token, and opens what the scopes open and nothing else.
type Grant struct {
	ID      string
	Version int64
	Scopes  scope.Set
	Until   time.Time                   // zero: it has no end
	GroupOf func(channel string) string // that a channel carries now; "": none
}

// grantMark begins the part of a cookie that names a grant.
const grantMark = "-t"

// newGrantSession returns the value of a cookie for a grant.
func (d *Dashboard) newGrantSession(g *Grant, until time.Time) string {
	return d.newSessionOf(until, grantMark+g.ID+"."+strconv.FormatInt(g.Version, 36))
}

// grantOf returns the grant of the session of a request. ok: the session is one of a grant that lasts.
func (d *Dashboard) grantOf(rc *fasthttp.RequestCtx, from Source) (g Grant, ok bool) {
	rest, ok := d.sessionOf(rc)
	if !ok || !strings.HasPrefix(rest, grantMark) {
		return g, false
	}
	id, version, _ := strings.Cut(rest[len(grantMark):], ".")
	no, err := strconv.ParseInt(version, 36, 64)
	g, ok = from.GrantByID(id)
	return g, ok && err == nil && g.Version == no
}

var errOutside = problem.New(fasthttp.StatusForbidden, "out_of_scope",
	"The API token of this login does not open this page.")

// allows reports whether the scopes open a demand, with the group that its channel carries now.
func (g *Grant) allows(d scope.Demand) bool {
	if d.Channel != "" && g.GroupOf != nil {
		d.Group = g.GroupOf(d.Channel)
	}
	return g.Scopes.Opens(d)
}

// opens reports whether the scopes of a grant open a page.
func (g *Grant) opens(page string, v *view) bool {
	d := scope.Demand{Door: scope.Management, Reads: true, Channel: v.id("channel"), Consumer: v.id("consumer")}
	switch page {
	case "/ui/channel/{channel}/consumer/{consumer}":
		d.Door = scope.Owner
	case "/ui/channel/{channel}/consumer/{consumer}/job/{job}":
		d.Door, d.Dead = scope.Owner, true
	case "/ui/channel/{channel}/action/{action}", revealRoute:
		return g.does(v.id("action"), d.Channel, "")
	case "/ui/group/{group}/action/{action}":
		return g.does(v.id("action"), "", "")
	case "/ui/channel/{channel}/consumer/{consumer}/action/{action}":
		return g.does(v.id("action"), d.Channel, d.Consumer)
	case "/ui/dlq", exportPath, "/ui/redrives", "/ui/replays":
		q := v.query("channel", "consumer")
		d.Door, d.Dead, d.Channel, d.Consumer = scope.Owner, page != "/ui/replays", q.Get("channel"), q.Get("consumer")
		if d.Consumer == "" { // without one, the page lists those of all channels
			d.Channel = ""
		}
	case "/ui/channels":
		if group := v.query("group").Get("group"); group != "" && slices.Contains(g.Scopes, scope.Scope{
			Kind: scope.Group, Group: group}) {
			return true
		}
	case "/ui/scheduled", "/ui/bulks":
		d.Channel = v.query("channel").Get("channel")
	case "/ui/publish": // it names all channels
		d.Reads = false
	}
	return g.allows(d)
}

// ownDead are the actions on dead letters, and ownActions the others that the tokens of a consumer allow.
var (
	ownDead = map[string]bool{"redrive": true, "delete": true, "redrive-pause": true, "redrive-resume": true,
		"redrive-cancel": true}
	ownActions = map[string]bool{"pause": true, "resume": true, "revive": true, "retry": true, "test": true}
)

// does reports whether the scopes of a grant allow an action; consumer "": one on a channel.
func (g *Grant) does(action, channel, consumer string) bool {
	d := scope.Demand{Door: scope.Management, Channel: channel, Consumer: consumer}
	if consumer != "" && (ownDead[action] || ownActions[action]) {
		d.Door, d.Dead = scope.Owner, ownDead[action]
	}
	return g.allows(d)
}

// may reports whether whoever looks at a page may do an action.
func (v *view) may(action string, t *target) bool {
	return v.grant == nil || v.grant.does(action, t.Channel, t.Consumer)
}

// mayPublish reports whether whoever looks at a page may open the form that sends a message.
func (v *view) mayPublish() bool { return v.grant == nil || v.grant.Scopes.Has(scope.Write) }

// A navLink is one of the navigation.
type navLink struct{ Name, URL string }

// narrow returns the navigation of a grant that does not open the whole dashboard; nil: it does.
func (g *Grant) narrow() (links []navLink) {
	if g.Scopes.Has(scope.Read) || g.Scopes.Has(scope.Write) {
		return nil
	}
	for _, s := range g.Scopes {
		switch s.Kind {
		case scope.Dead:
			links = append(links, navLink{"Dead letters", Prefix + "dlq"})
		case scope.Channel:
			links = append(links, navLink{s.Channel, channelURL(s.Channel)})
		case scope.Group:
			links = append(links, navLink{s.Group, channelsURL(s.Group, "")})
		case scope.Consumer:
			links = append(links, navLink{s.Channel + " / " + s.Consumer, consumerURL(s.Channel, s.Consumer)})
		}
	}
	return links
}

// admitsGrant reports whether a session of a grant opens the page. Where it does not, it answers. grant: the session is
// one of a grant.
func (d *Dashboard) admitsGrant(rc *fasthttp.RequestCtx, visit *Visit) (grant, opened bool) {
	g, ok := d.grantOf(rc, visit.Source)
	if !ok {
		return false, false
	}
	visit.grant = &g
	v := d.view(rc, *visit)
	links := g.narrow()
	switch {
	case g.opens(visit.Page, v):
		visit.Source.Act(g.ID)
		return true, true
	case streams(rc):
		tellLogin(rc)
	case visit.Page == Prefix && len(links) > 0:
		redirect(rc, links[0].URL)
	default:
		d.refuse(v, *visit, errOutside)
	}
	return true, false
}
