package api

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fasthttp/router"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/jobs"
	"github.com/penstock-broker/penstock/internal/policy"
)

// requestTimeout bounds what one control plane request may ask of the stores.
const requestTimeout = 10 * time.Second

// defaultBodies bounds the bodies in memory of an API that shares no bound, bytes.
const defaultBodies = 64 << 20

// A Store is the part of durable.Store used here.
type Store interface {
	PutProducer(ctx context.Context, p durable.Put) (durable.Producer, bool, error)
	PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error)
	PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error)
	Messages(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error)
	MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error)
	ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message, error)
	DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob, error)
	Attempts(ctx context.Context, consumerNo uint32, id ident.ID, limit int) ([]durable.Attempt, error)
	Ping(ctx context.Context) error
}

// A Desk is the part of jobs.Desk used here.
type Desk interface {
	States(ctx context.Context, consumer uint32, ids []ident.ID) ([]jobs.Job, error)
	RetriggerMessage(ctx context.Context, ch *catalogue.Channel, h durable.Head) error
	RetriggerJob(ctx context.Context, consumer uint32, h durable.Head, onlyDead bool) (jobs.Job, error)
	RedriveAll(ctx context.Context, consumer uint32) (int, error)
}

// A DataPlane handles the routes that run for every message. It finds checked
// path parameters as the user values "channel", "consumer" and "job". It checks
// tokens itself, and loads the body within the limit of the route once they are
// right; nothing of it is in memory before.
type DataPlane interface {
	// Broadcast gets the channel ID, valid until it returns: this route runs for
	// every message and takes no detour over user values.
	Broadcast(ctx *fasthttp.RequestCtx, channelID string)
	BroadcastBatch(ctx *fasthttp.RequestCtx)
	ClaimJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	UpdateJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	QueuedJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	MoveJob(ctx *fasthttp.RequestCtx, body intake.Limit)
}

// Options are what an API is made of.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Desk      Desk
	Data      DataPlane

	// Policies resolves what consumers set themselves; nil: no defaults.
	Policies *policy.Book
	// Bodies counts the bodies of all requests in memory, those of the data plane
	// included; nil: a bound of its own.
	Bodies *intake.Bound

	AdminToken     string   // "" : nobody is the admin
	OpenManagement bool     // management needs no token
	AllowedHosts   []string // names of this broker, beside loopback's, under which management is open

	// CheckCallback refuses callback URLs the broker will not post to. Its error
	// is shown to the caller. nil: every http and https URL will do.
	CheckCallback func(rawURL string) error
	// Announce tells other brokers that the catalogue changed. It must not
	// block: a lost announcement costs them one poll interval. nil: nobody to tell.
	Announce func()
	// PingQueue reports whether Redis answers, for /readyz. nil: not reported.
	PingQueue func(ctx context.Context) error
	// RationalDelay is the age from which a message counts as dispatched although
	// no job of it is known to the queue: the fail-safe is at work.
	RationalDelay time.Duration

	Metrics    fasthttp.RequestHandler // serves /metrics; nil: 404
	Registerer prometheus.Registerer   // where request metrics are registered; nil: nowhere
	Version    VersionView
	Log        *slog.Logger // nil: slog.Default()
}

// An API answers every request of the listener.
type API struct {
	o        Options
	log      *slog.Logger
	hosts    map[string]bool // AllowedHosts in lower case
	router   *router.Router
	publish  fasthttp.RequestHandler // the broadcast route, without the router
	metrics  *metrics
	draining atomic.Bool
}

// New returns the API. Its Handler goes to a server, see NewServer.
func New(o Options) *API {
	a := &API{o: o, log: o.Log, metrics: newMetrics(o.Registerer)}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.hosts = make(map[string]bool, len(o.AllowedHosts))
	for _, name := range o.AllowedHosts {
		a.hosts[strings.ToLower(name)] = true
	}
	if a.o.Policies == nil {
		a.o.Policies = policy.NewBook(policy.Policy{})
	}
	if a.o.Bodies == nil {
		a.o.Bodies = intake.NewBound(defaultBodies)
	}
	a.router = a.newRouter()
	a.publish = a.instrument(a.metrics.route(broadcastRoute), func(rc *fasthttp.RequestCtx) {
		channelID, _ := broadcastChannel(rc)
		a.o.Data.Broadcast(rc, channelID)
	})
	return a
}

// SetDraining tells the API that this broker is about to stop, or not: while it
// is, /readyz answers 503 and every answer asks the client to connect elsewhere.
func (a *API) SetDraining(on bool) { a.draining.Store(on) }

// fresh brings the catalogue up to date with the store. Reads of the control
// plane start with it, so that behind a load balancer whoever wrote through one
// broker reads it back from any other. Cheap when nothing changed: one row.
func (a *API) fresh(ctx context.Context) error { return a.o.Catalogue.Refresh(ctx) }

// changed spreads a change that this broker has just stored.
func (a *API) changed(ctx context.Context, rc *fasthttp.RequestCtx) {
	if err := a.fresh(ctx); err != nil {
		// The change is stored all the same, and no message can miss a new
		// consumer: the commit checks the audience. The poll will catch up.
		a.log.Warn("catalogue not refreshed after a change", "error", err, "request_id", requestID(rc))
	}
	if a.o.Announce != nil {
		a.o.Announce()
	}
}
