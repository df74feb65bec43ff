package ui

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/scope"
)

// A portal is what a link opens to somebody who owns one consumer and has no token of the broker: the pages of that
// consumer, and the actions that its token allows. The link has the consumer, its number, the end and a signature, and
// becomes the cookie of the browser. Nothing is stored: it ends with its time, with its consumer, and with the
// admin token or the token of the consumer, which the signature covers both. One that was made with an API token has
// the ID and version of that, and ends with it.
type portal struct {
	channel, consumer string
	no                uint32 // of the consumer: another one under the same ID is not meant
	until             time.Time
}

const (
	portalCookie = "penstock_portal"
	portalPath   = "/ui/portal"
	// longestLink bounds the text of a link: two IDs of 255 bytes in base 64, and the rest.
	longestLink = 900
)

// portalActions are those that the token of a consumer allows, too.
var portalActions = map[string]bool{"pause": true, "resume": true, "revive": true, "retry": true, "test": true,
	"redrive": true, "delete": true, "redrive-pause": true, "redrive-resume": true, "redrive-cancel": true}

var (
	errPortalEnded = problem.New(fasthttp.StatusGone, "link_invalid",
		"This link has ended. Ask whoever gave it to you for a new one.")
	errPortalElsewhere = problem.New(fasthttp.StatusUnauthorized, "token_missing",
		"This page needs the admin token: the link opens the pages of one consumer alone.")
)

// A PortalOf is what a link to the pages of a consumer is made of.
type PortalOf struct {
	Channel, Consumer string
	No                uint32 // of the consumer
	Token             string // that the consumer has now
	Until             time.Time

	GrantID      string // of the API token that made it; "": none did
	GrantVersion int64
}

// PortalLink returns the path and query of a link to the pages of a consumer, which ends at a time, with the
// token that the consumer has now, or with the API token that made it.
func (d *Dashboard) PortalLink(of PortalOf) string {
	body := base64.RawURLEncoding.EncodeToString([]byte(of.Channel+"/"+of.Consumer)) + "." +
		strconv.FormatUint(uint64(of.No), 36) + "." + strconv.FormatInt(of.Until.Unix(), 36)
	if of.GrantID != "" {
		body += "." + of.GrantID + "." + strconv.FormatInt(of.GrantVersion, 36)
	}
	link := portalPath + "?link=" + body + "." + d.signPortal(body, of.Token)
	if d.o.Store != "" {
		link += "&store=" + d.o.Store
	}
	return link
}

func (d *Dashboard) signPortal(body, token string) string {
	return d.sign("portal\n" + body + "\n" + token)
}

// readPortal reads the text of a link, if it is one that lasts.
func (d *Dashboard) readPortal(text string, from Source) (p portal, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if d.o.AdminToken == "" || at < 0 || len(text) > longestLink {
		return p, false
	}
	parts := strings.Split(text[:at], ".")
	if len(parts) != 3 && len(parts) != 5 {
		return p, false
	}
	name, err := base64.RawURLEncoding.DecodeString(parts[0])
	no, err2 := strconv.ParseUint(parts[1], 36, 32)
	until, err3 := strconv.ParseInt(parts[2], 36, 64)
	p.channel, p.consumer, ok = strings.Cut(string(name), "/")
	p.no, p.until = uint32(no), time.Unix(until, 0)
	if !ok || err != nil || err2 != nil || err3 != nil || !time.Now().Before(p.until) {
		return p, false
	}
	if len(parts) == 5 {
		version, err := strconv.ParseInt(parts[4], 36, 64)
		g, lasts := from.GrantByID(parts[3])
		if err != nil || !lasts || g.Version != version || !g.allows(scope.Demand{Door: scope.Owner, Channel: p.channel,
			Consumer: p.consumer}) {
			return p, false
		}
	}
	token, ok := from.TokenOf(p.channel, p.consumer, p.no)
	return p, ok && same(text[at+1:], d.signPortal(text[:at], token))
}

// Consumer is its ID.
func (p *portal) Consumer() string { return p.consumer }

// Page is the page of the consumer.
func (p *portal) Page() string { return consumerURL(p.channel, p.consumer) }

// DeadLetters is the page of its dead letters.
func (p *portal) DeadLetters() string {
	return Prefix + "dlq?channel=" + p.channel + "&consumer=" + p.consumer
}

// opens reports whether a page is one of the consumer.
func (p *portal) opens(page string, v *view) bool {
	switch page {
	case "/ui/channel/{channel}/consumer/{consumer}", "/ui/channel/{channel}/consumer/{consumer}/job/{job}":
		return v.id("channel") == p.channel && v.id("consumer") == p.consumer
	case "/ui/channel/{channel}/consumer/{consumer}/action/{action}":
		return v.id("channel") == p.channel && v.id("consumer") == p.consumer && portalActions[v.id("action")]
	case "/ui/dlq", exportPath, "/ui/redrives", "/ui/replays":
		q := v.query("channel", "consumer")
		return q.Get("channel") == p.channel && q.Get("consumer") == p.consumer
	}
	return false
}

// enter takes a link, and leads to the page of its consumer.
func (d *Dashboard) enter(rc *fasthttp.RequestCtx, visit Visit) {
	text := string(rc.QueryArgs().Peek("link"))
	p, ok := d.readPortal(text, visit.Source)
	if !ok {
		d.closed(rc, errPortalEnded)
		return
	}
	d.setPortalCookie(rc, text, p.until)
	redirect(rc, p.Page())
}

// admitsOwner reports whether somebody who has no session came by a link that opens the page. Where not, it answers.
func (d *Dashboard) admitsOwner(rc *fasthttp.RequestCtx, visit *Visit) bool {
	text := string(rc.Request.Header.Cookie(portalCookie))
	p, ok := d.readPortal(text, visit.Source)
	if ok && p.opens(visit.Page, d.view(rc, *visit)) {
		visit.portal = &p
		return true
	}
	switch {
	case streams(rc):
		tellLogin(rc) // the page is loaded anew, and says why
	case text == "":
		d.askLogin(rc)
	case !ok:
		d.closed(rc, errPortalEnded)
	case visit.Page == Prefix:
		redirect(rc, p.Page())
	default:
		d.closed(rc, errPortalElsewhere)
	}
	return false
}

// closed answers with a page that says why a link does not open what was asked for.
func (d *Dashboard) closed(rc *fasthttp.RequestCtx, why *problem.Problem) {
	d.render(rc, why.Status, "closed", frame{Title: why.Detail, Bare: true, Now: d.o.Now().UTC(), Version: d.o.Version,
		Content: why.Code})
	d.frameable(rc)
}

// setPortalCookie sets the cookie of a link. In a frame of another site a browser sends none but one that says so.
func (d *Dashboard) setPortalCookie(rc *fasthttp.RequestCtx, value string, until time.Time) {
	var c fasthttp.Cookie
	c.SetKey(portalCookie)
	c.SetValue(value)
	c.SetPath("/ui")
	c.SetHTTPOnly(true)
	c.SetExpire(until)
	c.SetSecure(secure(rc))
	c.SetSameSite(fasthttp.CookieSameSiteLaxMode)
	if len(d.o.Frames) > 0 && secure(rc) {
		c.SetSameSite(fasthttp.CookieSameSiteNoneMode)
		c.SetPartitioned(true)
	}
	rc.Response.Header.SetCookie(&c)
}

// frameable lets the pages of the origins of the setting have this page in a frame.
func (d *Dashboard) frameable(rc *fasthttp.RequestCtx) {
	if len(d.o.Frames) == 0 {
		return
	}
	h := &rc.Response.Header
	policy := string(h.Peek(fasthttp.HeaderContentSecurityPolicy))
	h.Set(fasthttp.HeaderContentSecurityPolicy, strings.Replace(policy, "frame-ancestors 'none'", "frame-ancestors "+
		strings.Join(d.o.Frames, " "), 1))
}
