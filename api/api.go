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
	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/jobs"
	"github.com/penstock-broker/penstock/internal/policy"
)

// requestTimeout bounds the time that one control plane request spends in the stores.
const requestTimeout = 10 * time.Second

// defaultBodies is the bound on bodies in memory, in bytes, of an API without
// Options.Bodies.
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

// A DataPlane handles the routes that run for every message. The checked path parameters
// are the user values "channel", "consumer" and "job". The data plane checks the tokens
// itself. After that it loads the body within the limit of the route; no part of the body
// is in memory before.
type DataPlane interface {
	// Broadcast gets the channel ID as an argument, which is valid until Broadcast returns:
	// user values would cost time for every message.
	Broadcast(ctx *fasthttp.RequestCtx, channelID string)
	BroadcastBatch(ctx *fasthttp.RequestCtx)
	ClaimJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	UpdateJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	QueuedJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	MoveJob(ctx *fasthttp.RequestCtx, body intake.Limit)
}

// Options are the dependencies and settings of an API.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Desk      Desk
	Data      DataPlane

	// Policies resolves the policies of consumers; nil: no defaults.
	Policies *policy.Book
	// Bodies counts the bodies of all requests in memory, including those of the data
	// plane; nil: the API uses a bound of its own.
	Bodies *intake.Bound

	AdminToken     string   // "": every admin request is refused
	OpenManagement bool     // management needs no token
	AllowedHosts   []string // names of this broker besides loopback under which management is open

	// CheckCallback refuses callback URLs to which the broker may not post. The client gets
	// its error. nil: every http and https URL is accepted.
	CheckCallback func(rawURL string) error
	// Announce tells other brokers that the catalogue changed. It must not block: after a
	// lost announcement they learn the change at their next poll. nil: there are no others.
	Announce func()
	// PingQueue reports whether Redis answers, for /readyz. nil: not reported.
	PingQueue func(ctx context.Context) error
	// RationalDelay is the age from which a message counts as dispatched even if the queue
	// has none of its jobs: from that age on the fail-safe dispatches it.
	RationalDelay time.Duration

	Metrics    fasthttp.RequestHandler // serves /metrics; nil: 404
	Registerer prometheus.Registerer   // registers the request metrics; nil: not registered
	Version    apitype.Version
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

// New returns the API. Pass its Handler to NewServer.
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

// SetDraining sets whether this broker is about to stop. While it is, /readyz answers 503
// and every answer closes the client's connection, so that the client connects elsewhere.
func (a *API) SetDraining(on bool) { a.draining.Store(on) }

// fresh refreshes the catalogue from the store. Every read of the control plane calls it
// first, so that a client behind a load balancer reads its own writes from any broker. A
// refresh without changes reads one row.
func (a *API) fresh(ctx context.Context) error { return a.o.Catalogue.Refresh(ctx) }

// changed refreshes the catalogue after a write of this broker and announces the change.
func (a *API) changed(ctx context.Context, rc *fasthttp.RequestCtx) {
	if err := a.fresh(ctx); err != nil {
		// The change is stored. No message can miss a new consumer, because the insert
		// verifies the audience. The next poll refreshes the copy.
		a.log.Warn("the catalogue could not be refreshed after a change", "error", err, "request_id", requestID(rc))
	}
	if a.o.Announce != nil {
		a.o.Announce()
	}
}
