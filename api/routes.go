package api

import (
	"context"
	"slices"
	"strings"
	"unsafe"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
)

// An Access is the kind of token that a route requires; the package comment has the rules.
type Access string

// The kinds of access.
const (
	AccessOps        Access = "operations"
	AccessManagement Access = "management"
	AccessOwn        Access = "own"
	AccessPublished  Access = "published"
	AccessJob        Access = "job"
	AccessConsumer   Access = "consumer"
	AccessForm       Access = "form"
	AccessAdmin      Access = "admin"
	AccessRetrigger  Access = "re-trigger"
	AccessData       Access = "data"
)

// A Route is one line of the route table.
type Route struct {
	Method  string
	Path    string // parameters in braces
	Access  Access
	Summary string
	Body    int // largest body in bytes; 0: the route takes none; OwnBody: the handler reads it

	serve func(*API, context.Context, *fasthttp.RequestCtx) error // control plane
	data  func(DataPlane, *fasthttp.RequestCtx, intake.Limit)     // data plane
}

// The limits of bodies, bytes.
const (
	OwnBody     = -1
	smallBody   = maxFormBytes // forms, and other bodies of that size
	updatesBody = 256 << 10    // 500 updates with all their members
)

const (
	get  = fasthttp.MethodGet
	head = fasthttp.MethodHead
	put  = fasthttp.MethodPut
	post = fasthttp.MethodPost
)

// table contains all routes. A GET route also serves HEAD: the server leaves the body out.
var table = []Route{
	{Method: put, Path: "/producer/{producer}", Access: AccessManagement, Summary: "create or update a producer", Body: smallBody, serve: (*API).putProducer},
	{Method: get, Path: "/producers", Access: AccessManagement, Summary: "list producers", serve: (*API).listProducers},
	{Method: get, Path: "/producer/{producer}", Access: AccessManagement, Summary: "a producer", serve: (*API).getProducer},
	{Method: put, Path: "/channel/{channel}", Access: AccessManagement, Summary: "create or update a channel", Body: smallBody, serve: (*API).putChannel},
	{Method: get, Path: "/channels", Access: AccessManagement, Summary: "list channels", serve: (*API).listChannels},
	{Method: get, Path: "/channel/{channel}", Access: AccessManagement, Summary: "a channel", serve: (*API).getChannel},
	{Method: put, Path: "/channel/{channel}/consumer/{consumer}", Access: AccessManagement, Summary: "create or update a consumer", Body: smallBody, serve: (*API).putConsumer},
	{Method: get, Path: "/channel/{channel}/consumers", Access: AccessManagement, Summary: "list the consumers of a channel", serve: (*API).listConsumers},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}", Access: AccessManagement, Summary: "a consumer", serve: (*API).getConsumer},
	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/dlq", Access: AccessOwn, Summary: "the dead letters of a consumer", serve: (*API).getDLQ},
	{Method: post, Path: "/channel/{channel}/broadcast", Access: AccessData, Summary: "publish a message", Body: OwnBody, data: broadcast},
	{Method: get, Path: "/channel/{channel}/messages", Access: AccessManagement, Summary: "list the messages of a channel", serve: (*API).listMessages},
	{Method: get, Path: "/channel/{channel}/message/{message}", Access: AccessPublished, Summary: "a message and its jobs", serve: (*API).getMessage},
	{Method: post, Path: "/channel/{channel}/message/{message}/re-trigger", Access: AccessAdmin, Summary: "dispatch a message again", Body: smallBody, serve: (*API).retriggerMessage},
	{Method: post, Path: "/channel/{channel}/message/{message}/job/{job}/re-trigger", Access: AccessRetrigger, Summary: "make a job due now", Body: smallBody, serve: (*API).retriggerJob},

	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/queued-jobs", Access: AccessData, Summary: "list the queued jobs of a pull consumer", data: DataPlane.QueuedJobs},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/job/{job}", Access: AccessData, Summary: "move a job of a pull consumer", Body: smallBody, data: DataPlane.MoveJob},

	{Method: post, Path: "/channel/{channel}/batch", Access: AccessData, Summary: "publish many messages, NDJSON", Body: OwnBody, data: batch},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/claim", Access: AccessData, Summary: "lease many jobs of a pull consumer", Body: smallBody, data: DataPlane.ClaimJobs},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/jobs", Access: AccessData, Summary: "move many jobs of a pull consumer", Body: updatesBody, data: DataPlane.UpdateJobs},

	{Method: get, Path: "/channel/{channel}/consumer/{consumer}/job/{job}", Access: AccessJob, Summary: "a job", serve: (*API).getJob},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/job/{job}/requeue-dead-job", Access: AccessConsumer, Summary: "redrive a dead letter", Body: smallBody, serve: (*API).requeueDeadJob},
	{Method: post, Path: "/channel/{channel}/consumer/{consumer}/dlq", Access: AccessForm, Summary: "redrive all dead letters of a consumer", Body: smallBody, serve: (*API).redriveDLQ},

	{Method: get, Path: "/livez", Access: AccessOps, Summary: "the process is alive", serve: (*API).livez},
	{Method: get, Path: "/readyz", Access: AccessOps, Summary: "this broker can accept messages", serve: (*API).readyz},
	{Method: get, Path: "/metrics", Access: AccessOps, Summary: "metrics in Prometheus text", serve: (*API).getMetrics},
	{Method: get, Path: "/version", Access: AccessOps, Summary: "version and build of this broker", serve: (*API).getVersion},
	{Method: get, Path: "/_status", Access: AccessOps, Summary: "health check of the older implementation", serve: (*API).getStatus},
}

// broadcastRoute is the broadcast route's name in metrics.
const broadcastRoute = post + " /channel/{channel}/broadcast"

func broadcast(d DataPlane, rc *fasthttp.RequestCtx, _ intake.Limit) {
	channelID, _ := rc.UserValue("channel").(string)
	d.Broadcast(rc, channelID)
}

func batch(d DataPlane, rc *fasthttp.RequestCtx, _ intake.Limit) { d.BroadcastBatch(rc) }

// broadcastChannel recognises a broadcast by its plain path, without query and without
// encoded characters. Clients send this form. The channel ID that it returns is part of the
// request's memory. Every other request takes the router.
func broadcastChannel(rc *fasthttp.RequestCtx) (channelID string, ok bool) {
	const prefix, suffix = "/channel/", "/broadcast"
	uri := rc.RequestURI()
	if len(uri) <= len(prefix)+len(suffix) || !rc.IsPost() ||
		string(uri[:len(prefix)]) != prefix || string(uri[len(uri)-len(suffix):]) != suffix {
		return "", false
	}
	segment := uri[len(prefix) : len(uri)-len(suffix)]
	channelID = unsafe.String(unsafe.SliceData(segment), len(segment))
	return channelID, ident.ValidName(channelID)
}

// Routes returns the route table, for documentation and its tests.
func Routes() []Route { return slices.Clone(table) }

// params returns the names of the path parameters of r, in order.
func (r Route) params() []string {
	var names []string
	for _, segment := range strings.Split(r.Path, "/") {
		if strings.HasPrefix(segment, "{") {
			names = append(names, strings.Trim(segment, "{}"))
		}
	}
	return names
}

// newRouter never redirects, because clients would send their tokens to the target of a
// redirect. A path with a trailing slash is 404.
func (a *API) newRouter() *router.Router {
	r := router.New()
	r.RedirectTrailingSlash = false
	r.RedirectFixedPath = false
	unmatched := a.metrics.route("unmatched")
	r.NotFound = a.instrument(unmatched, func(rc *fasthttp.RequestCtx) {
		a.fail(rc, problem.New(fasthttp.StatusNotFound, "no_such_path", "This path names no resource."))
	})
	r.MethodNotAllowed = a.instrument(unmatched, func(rc *fasthttp.RequestCtx) {
		a.fail(rc, problem.New(fasthttp.StatusMethodNotAllowed, "method_not_allowed", "The Allow header lists the methods of this resource."))
	})
	for _, route := range table {
		h := a.instrument(a.metrics.route(route.Method+" "+route.Path), a.handler(route))
		r.Handle(route.Method, route.Path, h)
		if route.Method == get {
			r.Handle(head, route.Path, h)
		}
	}
	return r
}

// handler does the common steps of a route in the order path, tokens, body, so that a
// request without a token costs no memory. The data plane checks tokens itself, and loads
// the body after that.
func (a *API) handler(route Route) fasthttp.RequestHandler {
	params := route.params()
	body := intake.NewLimit(a.o.Bodies, max(route.Body, 0))
	if route.data != nil {
		return func(rc *fasthttp.RequestCtx) {
			if err := decodePathIDs(rc, params); err != nil {
				a.fail(rc, err)
				return
			}
			route.data(a.o.Data, rc, body)
		}
	}
	return func(rc *fasthttp.RequestCtx) {
		err := decodePathIDs(rc, params)
		if err == nil {
			err = within(func(ctx context.Context) error { return a.admit(ctx, rc, route.Access) })
		}
		if err == nil {
			var loaded int64
			loaded, err = body.Load(rc)
			defer body.Drop(rc, loaded)
		}
		if err == nil {
			err = within(func(ctx context.Context) error { return route.serve(a, ctx, rc) })
		}
		if err != nil {
			a.fail(rc, err)
		}
	}
}

// within calls f with requestTimeout. The timeout covers the work in the stores and not the
// whole request, whose body may take longer. The context is not derived from the request:
// the server reuses the request while the database driver may still read the context.
func within(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	return f(ctx)
}
