package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath"
	"github.com/penstock-broker/penstock/hotpath/balance"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/alerts"
	"github.com/penstock-broker/penstock/internal/feature/audit"
	"github.com/penstock-broker/penstock/internal/feature/bulk"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/fleet"
	"github.com/penstock-broker/penstock/internal/feature/front"
	"github.com/penstock-broker/penstock/internal/feature/history"
	"github.com/penstock-broker/penstock/internal/feature/lockout"
	"github.com/penstock-broker/penstock/internal/feature/mail"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/feature/redrive"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/feature/schedule"
	"github.com/penstock-broker/penstock/internal/feature/statusevents"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/feature/why"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/reaper"
	"github.com/penstock-broker/penstock/redisq"
)

// Bounds of one process that are not settings. They only have to be above the capacity of the
// machine and below its memory.
const (
	cacheBytes      = 128 << 20 // payloads kept for delivery
	bodyBytes       = 256 << 20 // bodies of requests that arrive or wait for the store
	answerBytes     = 128 << 20 // large answers that clients have not read
	pushBytes       = 128 << 20 // large payloads of deliveries under way
	waitingRequests = 8192      // publishes waiting for the store
	smallBody       = 64 << 10  // the largest body that may use the reserve beside bodyBytes
)

// newBodies returns the bound of bodies. The longest line of a batch fits into a half of it, with what
// its parsing takes.
func newBodies(maxBody int) *share.Bound {
	most := max(bodyBytes, 13*int64(maxBody))
	return share.New(share.Options{Name: "bodies", Most: most, Reserve: most / 8, Small: smallBody})
}

// A broker has the wired parts of one process.
type broker struct {
	cfg config
	log *slog.Logger

	// A process has a broker for each store: the first one, and those of BROKER_MYSQL_DSNS, see parts.go.
	name   string       // of the store; "": the first one
	first  *broker      // nil: this is it
	others *otherStores // of the first one; nil: there are none

	store     *durable.Store
	embedded  *embeddedRedis // nil with a real Redis
	redis     redis.UniversalClient
	queue     *redisq.Queue
	catalogue *catalogue.Catalogue
	lockout   *lockout.Lockout // of addresses that send wrong tokens; nil: there is no limit
	node      *cluster.Node
	client    *egress.Client
	senders   *push.Senders
	mails     *mail.Sender
	nats      optionalSender
	plane     *hotpath.Plane
	balancer  *balance.Balancer
	tracer    *tracing.Tracer // nil: nothing is traced
	notebook  *why.Notebook
	explainer *why.Explainer
	book      *metrics.Book
	sampler   *sampler.Sampler
	history   *history.Recorder
	reaper    *reaper.Reaper
	retrigger *reaper.Retrigger
	alerts    *alerts.Alerts
	status    *statusevents.Collector
	feed      *audit.Feed
	portray   func(row any) any // what the audit log shows of a row
	prints    auditlog.Printer  // of secrets in it
	journal   journalSigner
	tokenKey  []byte // seals the access tokens that brokers share
	mover     *schedule.Mover
	quota     *quota.Quota
	bulks     *bulk.Bulks
	redrives  *redrive.Runner
	policies  *policy.Book
	board     *exchange.Board
	responses *exchange.Worker
	room      *exchange.Room // of responses in memory
	presence  *presence.Keeper
	fleet     *fleet.Keeper
	registry  *prometheus.Registry
	api       *api.API
	bodies    *share.Bound // of requests
	answers   *share.Bound // of large answers
	waiters   *share.Bound // of long polls
	places    *api.Places  // of connections
	server    *fasthttp.Server
	listener  net.Listener
	streams   *share.Bound // of requests of HTTP/2
	front     *front.Front // the listeners of HTTP/2 and TLS
	failed    chan error   // capacity 1: why the broker must end

	restorations prometheus.Counter // signs that the store went back
	warnings     warnings           // for /readyz
	redisAway    atomic.Bool        // since this broker began
	evictions    evictions          // of keys of the queue
	outdated     bool               // Redis knew another history of the store when this broker began
}

// newCatalogue returns an empty copy of the catalogue.
func (b *broker) newCatalogue() *catalogue.Catalogue {
	c := catalogue.New(b.store, b.log)
	c.UseSecrets(catalogue.Secrets{Keys: b.cfg.tokenKeys, NowMs: func() int64 { return b.node.NowMs() },
		Certified: b.cfg.certified()})
	return c
}

// openSecrets reads the keys of receipts and links, which all brokers share.
func (b *broker) openSecrets(ctx context.Context) (err error) {
	if b.journal, err = newJournalSigner(ctx, b.store); err != nil {
		return startFailure(err)
	}
	b.tokenKey, err = b.store.Secret(ctx, "tokens")
	return startFailure(err)
}

// openBroker opens the stores, migrates, and wires all parts. Nothing runs yet. Errors for exit
// code 3 are errStore, those for code 1 errSettings and errSeed.
func openBroker(ctx context.Context, cfg config, log *slog.Logger) (_ *broker, err error) {
	var names catalogue.LogNames // before the copy of the catalogue is read, a line has none
	raw := log
	log = slog.New(names.Handler(log.Handler()))
	b := &broker{cfg: cfg, log: log, failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if err = b.open(ctx, &names); err != nil {
		return nil, err
	}
	if err = b.listen(); err != nil {
		return nil, err
	}
	err = b.openOthers(ctx, raw)
	return b, err
}

// open opens the store, migrates, and wires all parts.
func (b *broker) open(ctx context.Context, names *catalogue.LogNames) (err error) {
	if b.store, err = openStore(ctx, b.cfg, b.log.Info); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.migrateStore(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{b.checkKeys, b.belong, b.prepareStore} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	b.warnOfOpenManagement()
	watch, err := b.openQueue(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.applySeeds(ctx); err != nil {
		return err
	}
	b.catalogue = b.newCatalogue()
	names.Set(b.catalogue)
	if err := b.catalogue.Refresh(ctx); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.openSecrets(ctx); err != nil {
		return err
	}
	if err := b.join(ctx); err != nil {
		return err
	}
	callbacks, err := egress.ParsePolicy(b.cfg.Egress, b.cfg.EgressAllow)
	if err != nil {
		return err
	}
	fetches, err := egress.ParsePolicy(b.cfg.FetchEgress, b.cfg.FetchEgressAllow)
	if err != nil {
		return err
	}
	b.client = egress.NewClient(egress.Options{Policy: callbacks, Fetch: fetches, UserAgent: b.cfg.UserAgent,
		MaxConnsPerHost: b.cfg.PushConcurrency})
	b.senders, b.mails, b.nats = b.cfg.newSenders(callbacks, b.client, b.catalogue)
	b.openTracer()
	b.newOthers()
	b.wire(watch, callbacks, fetches)
	return nil
}

func (b *broker) warnOfOpenManagement() {
	if b.first == nil && b.cfg.openManagement() && !b.cfg.onLoopback() {
		b.log.Warn("management is open beyond loopback: every machine that reaches this broker reads all tokens and changes "+
			"everything without one; only browsers under a name that is not allowed are refused",
			"listen", b.cfg.Listen, "allowed_hosts", b.cfg.allowedHosts(), "setting", "BROKER_OPEN_MANAGEMENT")
	}
}

// migrateStore checks the store's limits and brings its tables up to date, however long that takes.
func (b *broker) migrateStore(ctx context.Context) error {
	if err := b.store.CheckPayload(b.cfg.maxBody()); err != nil {
		return fmt.Errorf("%w: BROKER_MAX_BODY is too large: %w, or BROKER_MAX_BODY lower", errSettings, err)
	}
	if err := b.store.Migrate(ctx); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return nil
}

// prepareStore makes of the store what this broker needs, and says what is wrong with it.
func (b *broker) prepareStore(ctx context.Context) (err error) {
	if err := b.checkFolder(ctx); err != nil {
		return err
	}
	if b.prints, err = newPrinter(ctx, b.store); err != nil {
		return startFailure(err)
	}
	b.portray = audit.Portray(b.prints)
	if err := cmp.Or(b.makeSystemChannels(ctx), b.followAlertSettings(ctx)); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if b.cfg.MySQLDSN == "" {
		// This process has the lock of the folder, so any other owner of a node lease in it is
		// dead. Its consumers can be taken over at once.
		if err := b.store.ForgetNodes(ctx); err != nil {
			return fmt.Errorf("%w: %w", errStore, err)
		}
	}
	for _, w := range b.store.Warnings() {
		b.log.Warn("the store is set up to lose data", "problem", w)
	}
	return nil
}

// join takes a node number. It fails when a broker with another Redis is alive on the same
// store.
func (b *broker) join(ctx context.Context) error {
	host, _ := os.Hostname()
	if err := b.awaitAlone(ctx); err != nil {
		return err
	}
	err := b.recallHistory(ctx)
	if err != nil {
		return err
	}
	if b.node, err = cluster.New(ctx, b.store, nodeName(host, os.Getpid(), b.cfg), b.log); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	if err := b.stillAlone(ctx); err != nil {
		return errors.Join(err, b.node.Release(ctx))
	}
	return nil
}

// Addr is where the broker listens.
func (b *broker) Addr() string { return b.listener.Addr().String() }

func (b *broker) nodeNo() uint16 {
	lease, err := b.node.Lease()
	if err != nil {
		return 0
	}
	return lease.No
}

// close closes the opened parts in reverse order.
func (b *broker) close() {
	for _, part := range b.others.running() {
		part.close()
	}
	b.front.Close()
	if b.listener != nil {
		_ = b.listener.Close() // closed already after Run
	}
	if b.retrigger != nil {
		b.retrigger.Close()
	}
	b.tracer.Close() // what was recorded up to the end
	if b.client != nil {
		b.client.Close()
	}
	if b.nats.close != nil {
		b.nats.close()
	}
	if b.redis != nil {
		_ = b.redis.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
	if b.store != nil {
		if err := b.store.Close(); err != nil {
			b.log.Warn("store did not close cleanly", "error", err)
		}
	}
}
