package api

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fasthttp/router"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/gateway"
	"github.com/penstock-broker/penstock/internal/feature/history"
	"github.com/penstock-broker/penstock/internal/feature/lockout"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/principal"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/feature/stores"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/forwarded"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
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
	LatestMessages(ctx context.Context, afterChannel uint32, limit int) ([]durable.Latest, error)
	Removal(ctx context.Context, channelNo uint32) (durable.Removal, error)
	MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error)
	ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message, error)
	DeadJobs(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob, error)
	DeadJobsBack(ctx context.Context, consumerNo uint32, from ident.ID, limit int) ([]durable.DeadJob, error)
	JobRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, limit int) ([]durable.JobRow, error)
	JobRowsOf(ctx context.Context, k *durable.Consumer, ids []ident.ID) ([]durable.JobRow, error)
	SearchRows(ctx context.Context, k *durable.Consumer, r durable.IDRange, find []byte, limit int) ([]durable.JobRow,
		error)
	DeadLetters(ctx context.Context, of durable.DeadSelection, from ident.ID, down bool,
		limit int) (page []durable.DeadJob, next ident.ID, err error)
	DeadGroups(ctx context.Context, consumerNo uint32, limit int) ([]durable.DeadGroup, error)
	Senders(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error)
	Attempts(ctx context.Context, consumerNo uint32, id ident.ID, limit int) ([]durable.Attempt, error)
	AttemptsRemovedMs(ctx context.Context, channelNo uint32) (int64, error)
	LeaseCounts(ctx context.Context, consumerNo uint32, id ident.ID) (givenBack, lost int, err error)
	HeadersOf(ctx context.Context, channelNo uint32, id ident.ID) ([]byte, error)
	Steps(ctx context.Context, p durable.StepPage) (steps []durable.Step, next durable.Step, more bool, err error)
	DeleteProducer(ctx context.Context, p durable.Put) (durable.Producer, error)
	DeleteChannel(ctx context.Context, p durable.Put) (durable.Channel, error)
	PutGroup(ctx context.Context, p durable.Put) (durable.Group, bool, error)
	DeleteGroup(ctx context.Context, p durable.Put) (durable.Group, error)
	DeleteConsumer(ctx context.Context, channelID string, p durable.Put) (durable.Consumer, error)
	DeadHeads(ctx context.Context, consumerNo uint32, from ident.ID, limit int) (dead []durable.DeadHead,
		next ident.ID, err error)
	Dispose(ctx context.Context, consumerNo uint32, dead []durable.DeadHead, to durable.Disposal) error
	PostExchange(ctx context.Context, e durable.Exchange) error
	ScheduledByID(ctx context.Context, id ident.ID) (*durable.Scheduled, error)
	ScheduledByKey(ctx context.Context, channelNo uint32, key string) (*durable.Scheduled, error)
	Schedules(ctx context.Context, channelNo uint32, statuses []durable.ScheduleStatus, from *durable.Scheduled,
		limit int) ([]*durable.Scheduled, error)
	CancelScheduled(ctx context.Context, id ident.ID) error
	Count(ctx context.Context, channelNo uint32, limit int) (durable.Counts, error)
	Bulks(ctx context.Context, channelNo, producerNo uint32, from ident.ID, limit int) ([]*durable.Bulk, error)
	BulkByID(ctx context.Context, id ident.ID) (*durable.Bulk, error)
	BadRows(ctx context.Context, id ident.ID, after int64, limit int) ([]durable.BadRow, error)
	CountBulkJobs(ctx context.Context, id ident.ID, consumers []*durable.Consumer, most time.Duration) (durable.BulkJobs,
		error)
	CancelBulk(ctx context.Context, id ident.ID) (*durable.Bulk, error)
	PauseBulk(ctx context.Context, id ident.ID, paused bool) (*durable.Bulk, error)
	jobs.ReplayStore
	DeadAmong(ctx context.Context, of durable.DeadSelection, ids []ident.ID) ([]durable.DeadHead, error)
	CountDead(ctx context.Context, of durable.DeadSelection) (n int64, approximate bool, err error)
	CreateRedriving(ctx context.Context, r durable.Redriving, picks []ident.ID) (durable.Redriving, error)
	Redriving(ctx context.Context, consumerNo, no uint32) (durable.Redriving, error)
	Redrivings(ctx context.Context, consumerNo, from uint32, limit int) ([]durable.Redriving, error)
	ChangeRedriving(ctx context.Context, consumerNo, no uint32, f func(r *durable.Redriving) bool) (durable.Redriving,
		error)
	CreateReplay(ctx context.Context, r durable.Replay) (durable.Replay, error)
	Replay(ctx context.Context, no uint32) (durable.Replay, error)
	Replays(ctx context.Context, k durable.Consumer, from uint32, limit int) ([]durable.Replay, error)
	SetReplayState(ctx context.Context, no uint32, to durable.ReplayState) (durable.Replay, error)
	ReplayCounts(ctx context.Context, r *durable.Replay) (durable.ReplayCounts, error)
	history.ReadStore
	KeepMark(ctx context.Context, m durable.HistoryMark) error
	CreateSQSKey(ctx context.Context, channelID string, k durable.SQSKey) (durable.SQSKey, error)
	SQSKeys(ctx context.Context, channelNo uint32, from string, limit int) ([]durable.SQSKey, error)
	EndSQSKeys(ctx context.Context, channelID, id string) error
	Audit(ctx context.Context) error
	AuditEntries(ctx context.Context, q durable.AuditQuery) (page []auditlog.Entry, next uint64, err error)
	CreateAPIToken(ctx context.Context, t durable.APIToken, lasts time.Duration) (durable.APIToken, error)
	DeleteAPIToken(ctx context.Context, id string) error
	APITokens(ctx context.Context, from string, limit int) ([]durable.APIToken, error)
	Ping(ctx context.Context) error
}

// Jobs is the part of jobs.Service used here.
type Jobs interface {
	StatesOf(ctx context.Context, k *durable.Consumer, ids []ident.ID) ([]jobs.Job, error)
	RetriggerMessage(ctx context.Context, ch *catalogue.Channel, h durable.Head) error
	RetriggerJob(ctx context.Context, consumer uint32, h durable.Head, onlyDead bool) (jobs.Job, error)
	RedriveAll(ctx context.Context, consumer uint32) (int, error)
	RetryAll(ctx context.Context, consumer uint32) (int, error)
	Purge(ctx context.Context, p *jobs.Purge) (ended int, err error)
	Backlog(ctx context.Context, k durable.Consumer) (jobs.Backlog, error)
}

// An Auditor is the part of jobs.Auditor used here.
type Auditor interface {
	Books(ctx context.Context, k durable.Consumer, after, through ident.ID) (jobs.Books, error)
}

// Senders are the senders of the callback URLs of consumers: push.Senders.
type Senders interface {
	// Kind returns the kind of the sender of a callback URL; 0: there is none.
	Kind(rawURL string) policy.Kind
	// Check refuses a callback URL that cannot be sent to. The client gets its error.
	Check(rawURL string) error
	// Fits refuses a policy with which the sender of a callback URL cannot send, with a *policy.FieldError.
	Fits(rawURL string, p *policy.Policy) error
}

// States is the part of consumerstate.Keeper used here.
type States interface {
	Pause(ctx context.Context, k *durable.Consumer) (durable.Consumer, error)
	Resume(ctx context.Context, k *durable.Consumer) (durable.Consumer, error)
	Revive(ctx context.Context, k *durable.Consumer) (durable.Consumer, error)
	CheckLink(ctx context.Context, k *durable.Consumer, link string) error
	ReviveByLink(ctx context.Context, k *durable.Consumer, link string) (durable.Consumer, error)
	PauseChannel(ctx context.Context, id string, paused bool) (durable.Channel, error)
	PauseGroup(ctx context.Context, id string, paused bool) (durable.Group, error)
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
	Request(ctx *fasthttp.RequestCtx)
	ClaimJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	UpdateJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	QueuedJobs(ctx *fasthttp.RequestCtx, body intake.Limit)
	MoveJob(ctx *fasthttp.RequestCtx, body intake.Limit)
	Receipt(ctx *fasthttp.RequestCtx)
	// Reschedule changes a schedule that was found, with the conditions of c, as the request asks for it.
	Reschedule(ctx *fasthttp.RequestCtx, st catalogue.Standing, was *durable.Scheduled,
		c durable.ScheduleChange) (*durable.Scheduled, error)
}

// Bulks takes bulks in: a bulk.Bulks.
type Bulks interface {
	Accept(rc *fasthttp.RequestCtx) error // checks the tokens and reads the body
	Wake()                                // a bulk may have work
}

// Rates says how fast adaptive consumers are delivered to: a balance.Balancer.
type Rates interface {
	Mode(consumer uint32) durable.PaceMode
	Pace(consumer uint32) redisq.Rate
}

// Holds knows the consumers that are held because an answer asked for it: a hold.Keeper.
type Holds interface {
	Of(ctx context.Context, consumer uint32) (h durable.Hold, ok bool)
	Known() map[uint32]durable.Hold // those that are not over, as this broker knows
	KnownOf(consumer uint32, at time.Time) (h durable.Hold, stored, ok bool)
	End(ctx context.Context, consumers ...uint32) error
}

// Explainer says why nothing moves: a why.Explainer.
type Explainer interface {
	Consumer(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer) apitype.Why
	Job(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, id ident.ID) (w apitype.Why, producer uint32,
		found bool, err error)
	Message(ctx context.Context, ch *catalogue.Channel, id ident.ID) (w apitype.Why, producer uint32, found bool,
		err error)
	Scheduled(ch *catalogue.Channel, m *durable.Scheduled) apitype.Why
	Describe(ctx context.Context, k *durable.Consumer, view *apitype.Consumer)
	Recall(ctx context.Context, consumers []uint32, views []*apitype.Consumer)
	Portray(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, view *apitype.Consumer) apitype.Why
	NoConsumers() apitype.Why
	Unavailable() apitype.Why
	AcceptedOnly(ch *catalogue.Channel) apitype.Why
}

// Presence knows the workers of pull consumers: a presence.Keeper.
type Presence interface {
	Of(ctx context.Context, consumer uint32) (presence.Presence, error)
	InFlight(ctx context.Context, of ...uint32) (map[string]int, error)
}

// Door has the metrics of each consumer: a consumermetrics.Door.
type Door interface {
	Write(channel string, limit int) (page []byte, err error)
}

// Options are the dependencies and settings of an API.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Jobs      Jobs
	Auditor   Auditor
	States    States
	Data      DataPlane
	Bulks     Bulks
	Trials    Trials // of push consumers; nil: there are none
	Lister    Lister
	Overview  Overview

	// Full reports whether a producer stores as much as it may; nil: none does.
	Full func(producer uint32, bytes int64) bool
	// Rates knows how fast adaptive consumers are delivered to; nil: all are NORMAL.
	Rates Rates
	// Holds knows which consumers are held by their answers; nil: none is.
	Holds Holds
	// Why says why nothing moves. Journalled reports whether a message with one of these keys, or with that
	// receipt, is in a journal of this broker; nil: none is.
	Why        Explainer
	Journalled func(channel uint32, keys []string, receipt string) bool
	// Presence knows the workers of pull consumers; nil: there are none.
	Presence Presence
	// SQS answers the requests of SQS clients; nil: there is no such door.
	SQS SQS
	// UI makes the pages of the dashboard; nil: there is none. Sample is the last sample of all consumers, nil
	// before the first one.
	UI     Dashboard
	Sample func() *sampler.Sample
	// Brokers are those that are alive, and StoreKind names the store, both for the dashboard; nil and "": not shown.
	Brokers   func() []ui.Broker
	StoreKind string
	// Settings are those of this broker, without secrets.
	Settings []apitype.Setting
	// Stores knows all stores of the installation; nil: there is one. StoreName is the name of the store of this
	// API, "" for the first one, which leads requests to the others.
	Stores    *stores.Router
	StoreName string
	// Policies resolves the policies of consumers; nil: no defaults.
	Policies *policy.Book
	// Bodies counts the bodies of all requests in memory, including those of the data
	// plane; nil: the API uses a bound of its own.
	Bodies *share.Bound
	// Answers counts the large answers of all requests, including those of the data plane; nil: the API
	// uses a bound of its own.
	Answers *share.Bound

	// Responses reads the responses to messages, Board has the clients that wait for them, until
	// Stopping is closed.
	Responses *exchange.Reader
	Board     *exchange.Board
	Stopping  <-chan struct{}
	// Answered is told of a response that a receiver posted. EnsureReplies makes the channel of
	// replies to a producer, and FollowReplies its consumer what the settings of the producer say.
	// Each may be nil.
	Answered      func(consumer uint32, id ident.ID)
	EnsureReplies func(ctx context.Context, p *durable.Producer) (uint32, error)
	FollowReplies func(settings string, k durable.Consumer) (durable.Consumer, error)

	// Portray is what the audit log shows of a row of the store: audit.Portray.
	Portray func(row any) any
	Prints  auditlog.Printer // with which the fail-safe of another broker makes its pass

	AdminToken     string            // "": every admin request is refused
	TokenKeys      apitoken.Keys     // of the digests of API tokens
	Principals     *principal.Map    // what client certificates stand for; nil: nothing
	Gateway        *gateway.Gateway  // demands a signature of each request; nil: none is needed
	Lockout        *lockout.Lockout  // of addresses that send wrong tokens; nil: none is
	Proxies        forwarded.Trusted // whose X-Forwarded-For counts
	PublicURL      string            // of the brokers in links, without a slash at its end; "": that of the request
	OpenManagement bool              // management needs no token
	HideTokens     bool              // tokens of resources are shown where they are made, and nowhere else
	AllowDelete    bool              // the DELETE routes exist
	WakeRedrives   func()            // a redrive may go on; nil: at its next look
	AllowedHosts   []string          // names of this broker besides loopback under which management is open
	UserAgent      string            // of the requests of brokers, which open management refuses

	// CheckCallback refuses callback URLs to which the broker may not post. The client gets
	// its error. nil: every http and https URL is accepted.
	CheckCallback func(rawURL string) error
	// Senders are those of the callback URLs of consumers; nil: http and https alone, as CheckCallback has it.
	Senders Senders
	// Announce tells other brokers that the catalogue changed. It must not block: after a
	// lost announcement they learn the change at their next poll. nil: there are no others.
	Announce func()
	// AwaitOthers waits, after a deletion, until the other brokers have noticed it. nil: there are
	// no others.
	AwaitOthers func(ctx context.Context)
	// PingQueue reports whether Redis answers, for /readyz. nil: not reported.
	PingQueue func(ctx context.Context) error
	// Warning returns what /readyz tells an operator of the store; empty: nothing. nil: not reported.
	Warning func() string
	// Writable reports why the store takes no writes, for /readyz. nil: not reported.
	Writable func() error
	// Retention is how long messages are kept, 0 for ever. NowMs is the clock of the store; nil: that of
	// this machine.
	Retention time.Duration
	NowMs     func() int64
	// MaxStored and MaxScheduled bound what a producer stores that sets no bound; 0: nothing does.
	MaxStored, MaxScheduled int64
	// RationalDelay is the age from which a message counts as dispatched even if the queue
	// has none of its jobs: from that age on the fail-safe dispatches it.
	RationalDelay time.Duration

	Metrics    fasthttp.RequestHandler // serves /metrics; nil: 404
	Door       Door                    // serves /metrics/consumers; nil: 404
	Registerer prometheus.Registerer   // registers the request metrics; nil: not registered
	Version    apitype.Version
	Log        *slog.Logger // nil: slog.Default()
	Traces     Traces       // what timelines say of traces
	Access     AccessLog    // which requests have a line in Log
}

// An API answers every request of the listener.
type API struct {
	o        Options
	log      *slog.Logger
	hosts    map[string]bool // AllowedHosts in lower case
	router   *router.Router
	gets     map[string]func(*API, context.Context, *fasthttp.RequestCtx) error // what answers a GET, by route
	publish  fasthttp.RequestHandler                                            // the broadcast route, without the router
	metrics  *metrics
	books    chan struct{} // capacity 1: a question for books is answered
	counting *share.Bound  // of counts of replays with a filter: one of a channel, two of all
	draining atomic.Bool
}

// New returns the API. Pass its Handler to NewServer.
func New(o Options) *API {
	a := &API{o: o, log: o.Log, metrics: newMetrics(o.Registerer), books: make(chan struct{}, 1),
		counting: share.New(share.Options{Name: "replay_counts", Most: 2})}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.hosts = make(map[string]bool, len(o.AllowedHosts))
	for _, name := range o.AllowedHosts {
		a.hosts[canonical(name)] = true
	}
	if a.o.Policies == nil {
		a.o.Policies = policy.NewBook(policy.Policy{})
	}
	if a.o.NowMs == nil {
		a.o.NowMs = func() int64 { return time.Now().UnixMilli() }
	}
	if a.o.Bodies == nil {
		a.o.Bodies = share.New(share.Options{Name: "bodies", Most: defaultBodies})
	}
	if a.o.Answers == nil {
		a.o.Answers = answer.NewBound(defaultBodies)
	}
	a.gets = getters(table)
	a.router = a.newRouter()
	broadcastOf := routeNamed(broadcastRoute)
	taken := broadcastOf.takes()
	a.publish = a.instrument(a.metrics.route(broadcastRoute), func(rc *fasthttp.RequestCtx) {
		if late(rc) {
			a.fail(rc, errNoPlace)
			return
		}
		if err := broadcastOf.checkHeaders(rc, taken); err != nil {
			a.fail(rc, err)
			return
		}
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
func (a *API) fresh(ctx context.Context) error {
	if isForPage(ctx) {
		return nil
	}
	return a.o.Catalogue.Refresh(ctx)
}

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
	if a.leads() {
		a.o.Stores.Follow(ctx)
	}
}
