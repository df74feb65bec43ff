package ui

import (
	"context"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/feature/lockout"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Prefix begins the paths of all pages.
const Prefix = "/ui/"

// Options assemble a Dashboard.
type Options struct {
	AdminToken string // "": nobody logs in
	Key        []byte // a secret of the installation, which signs sessions
	Version    string
	ReadOnly   bool // there are no actions
	HideTokens bool // the API does not show the token of a channel
	// AllowDelete is that of the API: letters can be deleted.
	AllowDelete bool
	Payloads    Payloads // what is shown of payloads
	Frames      []string // origins that may have the pages of a portal in a frame
	Bench       string   // folder of reports of bench; "": there are none
	// Stores are the names of the other stores of the installation, and Store is the one of these pages, "" for the
	// first one. Without others there is no choice.
	Stores []string
	Store  string
	Now    func() time.Time // the store's clock; nil: that of this machine
	Log    *slog.Logger     // nil: slog.Default()

	// Client is the address of a request, behind proxies that are trusted; nil: that of the connection. Failed notes a
	// wrong token of an address, and Limited reports whether it has sent too many; nil: there is no limit but that of
	// logins.
	Client  func(rc *fasthttp.RequestCtx) netip.Addr
	Failed  func(netip.Addr)
	Limited func(netip.Addr) bool
}

// A Dashboard serves the pages. It is safe for concurrent use.
type Dashboard struct {
	o       Options
	pages   map[string]page // by the path of their route
	logins  *lockout.Lockout
	reports reports
}

// New returns a dashboard.
func New(o Options) *Dashboard {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Client == nil {
		o.Client = func(rc *fasthttp.RequestCtx) netip.Addr { return share.AddressOf(rc.RemoteAddr()) }
	}
	if o.Failed == nil {
		o.Failed = func(netip.Addr) {}
	}
	if o.Limited == nil {
		o.Limited = func(netip.Addr) bool { return false }
	}
	d := &Dashboard{o: o, reports: reports{folder: o.Bench}, logins: lockout.New(mostFailures, nil)}
	d.pages = map[string]page{
		"/ui/":                  {"overview", "overview", overviewPage, true},
		"/ui/consumers":         {"consumers", "consumers", consumersPage, true},
		"/ui/channels":          {"channels", "channels", channelsPage, true},
		"/ui/channel/{channel}": {"channel", "channels", channelPage, true},
		groupsURL:               {"groups", "channels", groupsPage, true},
		"/ui/dlq":               {"dlq", "dlq", deadPage, true},
		"/ui/redrives":          {"redrives", "dlq", redrivesPage, true},
		"/ui/scheduled":         {"scheduled", "scheduled", scheduledPage, true},
		"/ui/bulks":             {"bulks", "bulks", bulksPage, true},
		"/ui/replays":           {"replays", "replays", replaysPage, true},
		"/ui/brokers":           {"brokers", "brokers", brokersPage, true},
		"/ui/bench":             {"bench", "brokers", benchPage, false},
		"/ui/publish":           {"publish", "channels", publishPage, false},
		"/ui/search":            {"search", "search", searchPage, false},
		"/ui/channel/{channel}/consumer/{consumer}":           {"consumer", "consumers", consumerPage, true},
		"/ui/channel/{channel}/message/{message}":             {"message", "channels", messagePage, true},
		"/ui/channel/{channel}/consumer/{consumer}/job/{job}": {"message", "consumers", jobPage, true},
	}
	return d
}

// A Visit is a request for a page.
type Visit struct {
	Page   string // path of its route
	Open   bool   // it needs no session
	Source Source
	// Send answers with a payload of the Source, whose memory counts until it is written; nil: it is not counted.
	Send func(payload []byte)
	// Hold counts the memory in which a large answer is made, bytes, until it is made; nil: it is not counted.
	Hold func(n int) error

	portal *portal // whoever asks came by a link; nil: not so
	grant  *Grant  // whoever asks has logged in with an API token; nil: not so
}

// A page makes what its template shows.
type page struct {
	template string
	section  string // of the navigation
	show     func(ctx context.Context, v *view) (title string, content any, err error)
	live     bool // it is brought up to date while somebody looks
}

// A view is a page that is being made.
type view struct {
	d    *Dashboard
	rc   *fasthttp.RequestCtx
	src  Source
	now  time.Time
	open bool // no session was needed

	portal *portal // what the reader may see; nil: everything
	grant  *Grant  // the same

	revealed bool // payloads are shown that the setting hides
	framing  bool // the page has a frame with something of the broker
}

// view begins a page.
func (d *Dashboard) view(rc *fasthttp.RequestCtx, visit Visit) *view {
	return &view{d: d, rc: rc, src: visit.Source, now: d.o.Now().UTC(), open: visit.Open, portal: visit.portal,
		grant: visit.grant}
}

// id returns an ID of the path.
func (v *view) id(name string) string {
	id, _ := v.rc.UserValue(name).(string)
	return id
}

// query returns the parameters of the request that a page knows; of a repeated one the first.
func (v *view) query(names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		if value := v.rc.QueryArgs().Peek(name); len(value) > 0 {
			q.Set(name, string(value))
		}
	}
	return q
}

// Serve answers a request.
func (d *Dashboard) Serve(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	protect(rc)
	switch visit.Page {
	case "/ui/style.css", "/ui/icon.svg", "/ui/script.js":
		assets[visit.Page].Serve(rc)
	case "/ui/login":
		if rc.IsPost() {
			d.login(ctx, rc, visit.Source)
			return
		}
		d.showLogin(rc, fasthttp.StatusOK, "", string(rc.QueryArgs().Peek("next")))
	case "/ui/logout":
		d.logout(rc)
	case portalPath:
		d.enter(rc, visit)
	default:
		switch {
		case visit.Open:
		case d.admits(rc):
			visit.Source.Manage()
		default:
			grant, opened := d.admitsGrant(rc, &visit)
			if grant && !opened || !grant && !d.admitsOwner(rc, &visit) {
				return
			}
		}
		if visit.Page == revealRoute {
			d.reveal(ctx, rc, visit)
			return
		}
		if visit.Page == rawRoute {
			d.raw(ctx, rc, visit)
			return
		}
		if rc.UserValue("action") != nil {
			d.act(ctx, rc, visit)
			return
		}
		if visit.Page == exportPath {
			d.export(ctx, rc, visit)
			return
		}
		if visit.Page == reportPath {
			d.report(rc, visit)
			return
		}
		if visit.Page == "/ui/publish" && rc.IsPost() {
			d.publish(ctx, rc, visit)
			return
		}
		d.show(ctx, rc, visit)
	}
}

// show answers with a page, or with one that says why there is none.
func (d *Dashboard) show(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	p, v := d.pages[visit.Page], d.view(rc, visit)
	title, content, err := p.show(ctx, v)
	status := fasthttp.StatusOK
	if err != nil {
		said := problem.FromChange(err)
		if said.Status >= fasthttp.StatusInternalServerError {
			d.o.Log.Warn("a page of the dashboard cannot be shown", "page", visit.Page, "error", err)
		}
		status, title, content, p.template = said.Status, said.Detail, said.Code, "refused"
	}
	f := v.frame(title, p.section, content)
	f.Framing = v.framing
	f.Query = string(rc.URI().QueryString())
	f.Live = p.live && !rc.QueryArgs().Has("show") // what somebody asks to be shown is shown once
	if f.Live && streams(rc) {
		d.tell(rc, p.template, f)
		return
	}
	d.render(rc, status, p.template, f)
}

// frame is what is around a page.
func (v *view) frame(title, section string, content any) frame {
	f := frame{Title: title, Section: section, Session: !v.open && v.portal == nil, Now: v.now, Version: v.d.o.Version,
		Content: content, Portal: v.portal}
	if v.grant != nil {
		f.Narrow = v.grant.narrow()
	}
	if v.portal == nil && f.Narrow == nil {
		f.Troubled = v.src.Troubled()
		f.Stores = v.d.stores()
	}
	return f
}

// A storeLink leads to the pages of a store.
type storeLink struct {
	Name, URL string
	Current   bool
}

// stores are the stores of the installation; nil: there is one.
func (d *Dashboard) stores() (all []storeLink) {
	if len(d.o.Stores) == 0 {
		return nil
	}
	for _, name := range append([]string{""}, d.o.Stores...) {
		shown := name
		if name == "" {
			shown = "first"
		}
		all = append(all, storeLink{shown, "/ui/?store=" + name, name == d.o.Store})
	}
	return all
}

// redirect leads to another page with a GET.
func redirect(rc *fasthttp.RequestCtx, to string) {
	rc.Response.Header.Set(fasthttp.HeaderLocation, to)
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.SetStatusCode(fasthttp.StatusSeeOther)
}
