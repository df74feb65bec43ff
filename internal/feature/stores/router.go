package stores

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A First is the part of durable.Store that is used of the store with the catalogue.
type First interface {
	PlaceChannel(ctx context.Context, p durable.Place) (held durable.Place, made bool, err error)
	PlaceOf(ctx context.Context, channelID string) (durable.Place, error)
	MovePlace(ctx context.Context, held durable.Place, store string, atMs int64) (moved bool, err error)
	ForgetPlace(ctx context.Context, held durable.Place) error
	APITokens(ctx context.Context, from string, limit int) ([]durable.APIToken, error)
	EndScopes(ctx context.Context, channelID, consumerID string) error
	SQSKey(ctx context.Context, id string) (durable.SQSKey, error)
}

// A Copy is the part of durable.Store that is used of the other stores.
type Copy interface {
	Adopt(ctx context.Context, of durable.Shared) error
	APITokens(ctx context.Context, from string, limit int) ([]durable.APIToken, error)
	SQSKey(ctx context.Context, id string) (durable.SQSKey, error)
}

// An API is the api.API of a part.
type API interface {
	Serve(rc *fasthttp.RequestCtx)                                 // answers a request that was let in
	PutChannel(ctx context.Context, rc *fasthttp.RequestCtx) error // answers a PUT of a channel
}

// A Part is the broker of one store.
type Part struct {
	Store     Copy
	Catalogue *catalogue.Catalogue
	API       API
	Announce  func() // tells the other brokers that the catalogue of the store has changed
}

// A member is one of the other stores.
type member struct {
	name     string
	part     atomic.Pointer[Part] // nil: the store was not reached since this broker began
	busy     chan struct{}        // capacity 1: the copies are being made
	followed atomic.Int64         // version of the first catalogue that the copies are of
	failing  atomic.Bool          // the last copy failed
}

// Options assemble a Router.
type Options struct {
	Names     []string // of the other stores
	Store     First
	Catalogue *catalogue.Catalogue // of the first store
	NowMs     func() int64         // its clock
	// KeyIn returns the access key with which an SQS client has signed a request; "": none. nil: no such client is
	// answered. Refuse answers an error in the form that the client reads.
	KeyIn  func(h *fasthttp.RequestHeader) string
	Refuse func(rc *fasthttp.RequestCtx, err error)
	Log    *slog.Logger
}

// A Router leads requests to the parts. It is safe for concurrent use.
type Router struct {
	o       Options
	members []*member
	keys    keys
}

// New returns a router whose stores are all away.
func New(o Options) *Router {
	r := &Router{o: o, keys: newKeys()}
	for _, name := range o.Names {
		r.members = append(r.members, &member{name: name, busy: make(chan struct{}, 1)})
	}
	return r
}

// Join says that a store was reached.
func (r *Router) Join(name string, p *Part) { r.member(name).part.Store(p) }

// Away returns the names of the stores that were not reached yet.
func (r *Router) Away() (names []string) {
	for _, m := range r.members {
		if m.part.Load() == nil {
			names = append(names, m.name)
		}
	}
	return names
}

// Catalogues are those of the first store and of the others that were reached.
func (r *Router) Catalogues() []*catalogue.Catalogue {
	all := []*catalogue.Catalogue{r.o.Catalogue}
	for _, m := range r.members {
		if p := m.part.Load(); p != nil {
			all = append(all, p.Catalogue)
		}
	}
	return all
}

func (r *Router) member(name string) *member {
	for _, m := range r.members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// later is the answer to a request that may be sent again.
func later(detail string) *problem.Problem {
	return &problem.Problem{Status: fasthttp.StatusServiceUnavailable, Code: "unavailable", RetryAfter: 1, Detail: detail}
}

// errAway is the answer about a channel of a store that is away.
func errAway(name string) error {
	return later("The store " + name + ", which has the channel, cannot be reached right now. Nothing is known to have " +
		"changed; send the request again.")
}

// Parameter is the parameter of a query that names a store.
const Parameter = "store"

// lookWithin bounds the look for a channel that no copy of a catalogue has.
const lookWithin = 2 * time.Second

// Serve answers a request that is about another store, and reports whether it was one. It answers no PUT that may
// create a channel: see Place.
func (r *Router) Serve(rc *fasthttp.RequestCtx) bool {
	path := string(rc.Path())
	if channelID, ok := channelIn(path); ok {
		return r.serveChannel(rc, path, channelID)
	}
	if path == "/" && rc.IsPost() {
		return r.serveKey(rc)
	}
	args, page := rc.QueryArgs(), strings.HasPrefix(path, "/ui/")
	if channelID := string(args.Peek("channel")); page && channelID != "" {
		return r.serveChannel(rc, path, channelID)
	}
	if !args.Has(Parameter) {
		return page && r.servePage(rc, path)
	}
	if !ofOneStore(rc, path) {
		return false
	}
	name := string(args.Peek(Parameter))
	m := r.member(name)
	switch {
	case m == nil && name != "":
		r.o.Refuse(rc, r.unknown(name))
		return true
	case m != nil && m.part.Load() == nil:
		r.o.Refuse(rc, errAway(name))
		return true
	}
	r.drop(rc)
	if page {
		defer choose(rc, name)
	}
	if m == nil { // the first one
		return false
	}
	m.part.Load().API.Serve(rc)
	return true
}

// chosenStore is the cookie of a reader of the dashboard who has chosen a store: the pages that name no channel are
// about it.
const chosenStore = "penstock-store"

func choose(rc *fasthttp.RequestCtx, name string) {
	var c fasthttp.Cookie
	c.SetKey(chosenStore)
	c.SetValue(name)
	c.SetPath("/ui")
	c.SetHTTPOnly(true)
	c.SetSameSite(fasthttp.CookieSameSiteStrictMode)
	if name == "" {
		c.SetExpire(fasthttp.CookieExpireDelete)
	}
	rc.Response.Header.SetCookie(&c)
}

// chooseFor makes the store of a page about a channel the chosen one: what the page leads to is about it.
func chooseFor(rc *fasthttp.RequestCtx, path, name string) {
	if strings.HasPrefix(path, "/ui/") && string(rc.Request.Header.Cookie(chosenStore)) != name {
		choose(rc, name)
	}
}

// servePage answers with a page about the store that the reader has chosen. Groups are in the first one.
func (r *Router) servePage(rc *fasthttp.RequestCtx, path string) bool {
	m := r.member(string(rc.Request.Header.Cookie(chosenStore)))
	if m == nil || m.part.Load() == nil || strings.HasPrefix(path, "/ui/group") {
		return false
	}
	m.part.Load().API.Serve(rc)
	return true
}

// drop removes the name of the store from a request, which its part does not know.
func (r *Router) drop(rc *fasthttp.RequestCtx) {
	rc.QueryArgs().Del(Parameter)
	rc.URI().SetQueryStringBytes(rc.QueryArgs().QueryString())
	rc.Request.SetRequestURIBytes(rc.URI().RequestURI())
}

// ofOneStore reports whether a request that names no channel is about one store: a list, or the dead replies to a
// producer. What stores share is changed in the first one alone.
func ofOneStore(rc *fasthttp.RequestCtx, path string) bool {
	if strings.HasPrefix(path, "/producer/") && strings.HasSuffix(path, "/dlq") {
		return true
	}
	if !rc.IsGet() && !rc.IsHead() {
		return false
	}
	return strings.HasPrefix(path, "/ui/") || slices.Contains([]string{"/channels", "/consumers", "/audit", "/history",
		"/metrics/consumers", "/job-status", "/dlq-status"}, path)
}

// channelIn returns the channel that a path names.
func channelIn(path string) (channelID string, ok bool) {
	for _, of := range []string{"/channel/", "/ui/channel/", "/sqs/"} {
		if rest, found := strings.CutPrefix(path, of); found {
			channelID, _, _ = strings.Cut(rest, "/")
			return channelID, ident.ValidName(channelID) && !ident.Reserved(channelID)
		}
	}
	return "", false
}

func (r *Router) serveChannel(rc *fasthttp.RequestCtx, path, channelID string) bool {
	if r.o.Catalogue.Channel(channelID) != nil {
		chooseFor(rc, path, "")
		return false
	}
	m := r.holding(channelID)
	if m == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(rc), lookWithin)
		defer cancel()
		held, err := r.o.Store.PlaceOf(ctx, channelID)
		if m = r.member(held.Store); err != nil || m == nil {
			return false // the first part says that it does not know the channel
		}
		if rc.IsPut() && path == "/channel/"+channelID {
			return false
		}
	}
	p := m.part.Load()
	if p == nil {
		r.o.Refuse(rc, errAway(m.name))
		return true
	}
	p.API.Serve(rc)
	chooseFor(rc, path, m.name)
	if rc.IsDelete() && rc.Response.StatusCode() == fasthttp.StatusNoContent {
		r.ended(context.WithoutCancel(rc), path, channelID)
	}
	return true
}

// Has reports whether another store has a channel.
func (r *Router) Has(ctx context.Context, channelID string) bool {
	if r.holding(channelID) != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	held, err := r.o.Store.PlaceOf(ctx, channelID)
	return err == nil && held.Store != ""
}

// ServeReceipt answers for a receipt that the first store has not signed.
func (r *Router) ServeReceipt(rc *fasthttp.RequestCtx) {
	for _, m := range r.members {
		if p := m.part.Load(); p != nil && rc.Response.StatusCode() == fasthttp.StatusNotFound {
			id := string(rc.Response.Header.Peek("X-Request-ID"))
			rc.Response.Reset()
			rc.Response.Header.Set("X-Request-ID", id)
			p.API.Serve(rc)
		}
	}
}

// holding returns the store whose catalogue has a channel.
func (r *Router) holding(channelID string) *member {
	for _, m := range r.members {
		if p := m.part.Load(); p != nil && p.Catalogue.Channel(channelID) != nil {
			return m
		}
	}
	return nil
}

// Deleted forgets the place of a channel that was deleted.
func (r *Router) Deleted(ctx context.Context, channelID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
	defer cancel()
	held, err := r.o.Store.PlaceOf(ctx, channelID)
	if err == nil {
		err = r.o.Store.ForgetPlace(ctx, held)
	}
	if err != nil && !errors.Is(err, durable.ErrNotFound) {
		r.o.Log.Warn("the place of a deleted channel could not be forgotten; a PUT does so after a minute", "channel",
			channelID, "error", err)
	}
}

// ended forgets a channel or consumer that was deleted in another store: a later one of that ID is not meant by what
// was said of it.
func (r *Router) ended(ctx context.Context, path, channelID string) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	rest := strings.TrimPrefix(path, "/channel/"+channelID)
	consumerID, of := strings.CutPrefix(rest, "/consumer/")
	switch {
	case rest == "":
		r.Deleted(ctx, channelID)
	case !of || strings.Contains(consumerID, "/"):
		return
	}
	if err := r.o.Store.EndScopes(ctx, channelID, consumerID); err != nil {
		r.o.Log.Warn("the scopes of a deleted resource could not be taken from API tokens", "channel", channelID, "consumer",
			consumerID, "error", err)
	}
}

// unknown is the answer to a name of a store that there is not.
func (r *Router) unknown(name string) error {
	var names []string
	for _, m := range r.members {
		names = append(names, m.name)
	}
	slices.Sort(names)
	return problem.Newf(fasthttp.StatusBadRequest, "invalid_store", "There is no store %q; the names of stores are %s, "+
		"and a channel without one is in the first store. Nothing was changed.", name, strings.Join(names, ", "))
}
