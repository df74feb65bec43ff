package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/quota"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// poll is the interval at which a broker looks for bulks without an owner.
	poll = time.Second
	// renewEvery is the interval at which an owner shows that it is alive.
	renewEvery = durable.BulkLease / 4
	// sweepEvery is the interval at which the remains of bulks are removed.
	sweepEvery = 10 * time.Second
	// again is the wait after a failure of the store, and of a bulk whose channel is paused.
	again = 2 * time.Second
	// mostRated is the longest wait for a publish rate, which may be changed meanwhile.
	mostRated = 30 * time.Second
)

// A Store is the part of durable.Store that bulks need.
type Store interface {
	accept.StepStore
	CreateBulk(ctx context.Context, b *durable.Bulk, body []byte) error
	AddBulkChunk(ctx context.Context, h durable.BulkOwner, no int64, body []byte) error
	RestartBulkBody(ctx context.Context, h durable.BulkOwner) error
	RunBulk(ctx context.Context, h durable.BulkOwner, total int64) error
	Replicates(ctx context.Context) error
	ConfirmBulk(ctx context.Context, id ident.ID) error
	BulkChunk(ctx context.Context, id ident.ID, no int64) ([]byte, error)
	NextBulkQueue(ctx context.Context, after durable.BulkQueue, nowMs int64) (q durable.BulkQueue, due bool, err error)
	ClaimBulk(ctx context.Context, owner [16]byte, of durable.BulkQueue) (*durable.Bulk, error)
	RenewBulk(ctx context.Context, h durable.BulkOwner) error
	ReleaseBulk(ctx context.Context, h durable.BulkOwner, waitMs int64, tries int, reason string) error
	FailBulk(ctx context.Context, h durable.BulkOwner, reason string) error
	SweepBulks(ctx context.Context, nowMs, beforeMs int64) (more bool, err error)
}

// A Cluster tells whether this broker removes the remains of bulks, and the store's time.
type Cluster interface {
	Owns(consumer uint32) bool
	PastMs() int64
}

// Options of New.
type Options struct {
	Store     Store
	Publisher *publish.Publisher
	Catalogue *catalogue.Catalogue
	Cluster   Cluster
	Quota     *quota.Quota // what producers may store; nil: any amount
	Bodies    *share.Bound // bytes of bodies in memory
	// Client fetches files, without redirects and within the rules for addresses that users name, which
	// CheckURL knows before.
	Client       *http.Client
	CheckURL     func(rawURL string) error
	FetchTimeout time.Duration // of one try
	MostBytes    int64         // of a body or file
	Retries      policy.Policy // how often a fetch is tried again, and when
	Retention    time.Duration // of bulks that are over, 0: for ever
	Registry     prometheus.Registerer
	Log          *slog.Logger
}

// Bulks is the part of one broker in bulks.
type Bulks struct {
	Options
	woken  chan struct{} // capacity 1: a bulk may have work
	lines  []*line
	rows   *prometheus.CounterVec
	ended  *prometheus.CounterVec
	active prometheus.Gauge
}

// New returns the bulks of a broker. Nothing runs before Run.
func New(o Options) *Bulks {
	b := &Bulks{Options: o, woken: make(chan struct{}, 1), lines: newLines()}
	b.rows = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_bulk_rows_total",
		Help: "Rows of bulks that this broker expanded, by what became of them."}, []string{"result"})
	b.ended = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_bulks_ended_total",
		Help: "Bulks that this broker ended, by their state."}, []string{"state"})
	b.active = prometheus.NewGauge(prometheus.GaugeOpts{Name: "penstock_bulks_active",
		Help: "Bulks that this broker works on now."})
	if o.Registry != nil {
		o.Registry.MustRegister(b.rows, b.ended, b.active)
	}
	return b
}

// Wake says that a bulk may have work. It never blocks.
func (b *Bulks) Wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// Run works on bulks until ctx ends. It gives the bulks back then.
func (b *Bulks) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { guard.Loop(ctx, "bulks", b.claimLoop) })
	wg.Go(func() { guard.Loop(ctx, "removal of bulks", b.sweepLoop) })
	wg.Wait()
}

func (b *Bulks) claimLoop(ctx context.Context) {
	var works sync.WaitGroup
	defer works.Wait()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	failing := false
	for {
		err := b.claimAll(ctx, &works)
		if err != nil && !failing && ctx.Err() == nil {
			b.Log.Warn("bulks wait, since the store does not answer", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.woken:
		}
	}
}

// work fetches or expands a bulk that this broker owns, until it is done, lost, or cannot go on for
// now, or its place ends under pressure. It then gives the bulk back.
func (b *Bulks) work(ctx context.Context, bulk *durable.Bulk, at *place) {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	var keeper sync.WaitGroup
	defer keeper.Wait()
	var shown atomic.Int64 // when the store last heard of this owner, Unix ms
	keeper.Go(func() {
		guard.Loop(own, "lease of a bulk", func(ctx context.Context) { b.keep(ctx, cancel, bulk.BulkOwner, &shown) })
	})
	defer cancel()
	err := guard.Do("bulk", func() error {
		var spec Spec
		if err := json.Unmarshal(bulk.Spec, &spec); err != nil {
			return problem.New(500, "internal", "The bulk is not of this version of the broker.")
		}
		if bulk.State == durable.BulkFetching {
			return b.fetch(own, bulk, &spec, at)
		}
		return b.expand(own, bulk, &spec, at, &shown)
	})
	b.finish(ctx, bulk, err)
}

// finish says what became of the work on a bulk. Where the store does not take it, the lease ends.
func (b *Bulks) finish(ctx context.Context, bulk *durable.Bulk, err error) {
	stopping := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), durable.BulkLease)
	defer cancel()
	var p *problem.Problem
	var retry *retryError
	var final *fetchError
	var rated *ratedError
	log := b.Log.With("bulk", bulk.ID.String())
	wait, tries, reason := time.Duration(0), bulk.Tries, bulk.Reason
	switch {
	case err == nil, errors.Is(err, durable.ErrBulkLost):
		return
	case errors.As(err, &retry):
		wait, tries, reason = retry.wait, bulk.Tries+1, retry.reason
		log.Info("the file of a bulk is fetched again", "tries", tries, "wait", wait.String(), "error", retry.cause)
	case errors.Is(err, errCrowded): // no failed try: the file comes slowly, and others wait
		wait = crowdedAgain
		log.Info("the file of a bulk comes slowly while others wait; it is fetched again later", "wait", wait.String())
	// the next owner goes on at once
	case stopping, errors.Is(err, errPaced), errors.Is(err, errYield), errors.Is(err, context.Canceled):
	case problem.Paused(err):
		wait = again
	case errors.As(err, &rated):
		wait = min(rated.wait, mostRated)
	case errors.Is(err, quota.ErrFull):
		wait, reason = again, quota.ErrFull.Detail
	case errors.As(err, &final):
		b.fail(ctx, bulk, final.reason, final.cause)
		return
	case errors.As(err, &p) && p.Status < 500:
		b.fail(ctx, bulk, p.Detail, nil)
		return
	default:
		wait = again
		log.Warn("a bulk waits", "error", err)
	}
	if err := b.Store.ReleaseBulk(ctx, bulk.BulkOwner, wait.Milliseconds(), tries, reason); err != nil {
		log.Debug("a bulk is not given back; its lease ends", "error", err)
	}
}

// fail ends a bulk with a reason, which does not contain the address of the file. The cause is for the log.
func (b *Bulks) fail(ctx context.Context, bulk *durable.Bulk, reason string, cause error) {
	if err := b.Store.FailBulk(ctx, bulk.BulkOwner, reason); err == nil {
		b.ended.WithLabelValues("failed").Inc()
		b.Log.Warn("a bulk failed", "bulk", bulk.ID.String(), "reason", reason, "error", cause)
	}
}

// errPaced means that the rate of the bulk lets nothing more be published for a while.
var errPaced = errors.New("bulk: the rate allows no more for now")

// keep renews the lease of an owner that has not stored anything for a while. It ends the work on a
// bulk that is lost.
func (b *Bulks) keep(ctx context.Context, lost context.CancelFunc, h durable.BulkOwner, shown *atomic.Int64) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(time.UnixMilli(shown.Load())) < renewEvery {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, durable.BulkLease)
		err := b.Store.RenewBulk(limited, h)
		cancel()
		if errors.Is(err, durable.ErrBulkLost) {
			lost()
			return
		}
	}
}

func (b *Bulks) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	failing := false
	for {
		if b.Cluster.Owns(0) {
			err := guard.Do("removal of bulks", func() error { return b.sweep(ctx) })
			if err != nil && !failing && ctx.Err() == nil {
				b.Log.Warn("bulks that are over cannot be removed; the broker tries again", "error", err)
			}
			failing = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sweep removes until nothing is left. It takes a fifth of one connection's time.
func (b *Bulks) sweep(ctx context.Context) error {
	for {
		began, before := time.Now(), int64(0)
		now := b.Cluster.PastMs()
		if b.Retention > 0 {
			before = now - b.Retention.Milliseconds()
		}
		more, err := b.Store.SweepBulks(ctx, now, before)
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(4 * time.Since(began)):
		}
	}
}
