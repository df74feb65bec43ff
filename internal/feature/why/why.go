package why

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/limit"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// Counted is up to how many jobs a number is exact.
	Counted = 1000
	// askWithin bounds each question to the store and to Redis. An answer without them is still one.
	askWithin = 1500 * time.Millisecond
)

// A Store is the part of durable.Store used here.
type Store interface {
	Facts(ctx context.Context, consumers []uint32) ([]durable.Fact, error)
	CircumstancesOf(ctx context.Context, consumerNo uint32) (durable.Circumstances, error)
	UnfinishedJobs(ctx context.Context, k durable.Consumer, settled ident.ID, limit int) (open []durable.Unfinished,
		all bool, err error)
	PlightOf(ctx context.Context, channelNo uint32, id ident.ID, consumerNo uint32) (durable.Plight, error)
	Plights(ctx context.Context, channelNo uint32, id ident.ID, limit int) ([]durable.Plight, error)
	Tasks(ctx context.Context, channelNo uint32, ids []ident.ID) (map[ident.ID]string, error)
	Blocker(ctx context.Context, k durable.Consumer, id ident.ID, dead bool) (durable.Plight, error)
}

// A Queue is the part of redisq.Queue used here.
type Queue interface {
	Outlook(ctx context.Context, consumer uint32, job ident.ID, limits redisq.Limits) (redisq.Outlook, error)
	Peek(ctx context.Context, consumer uint32, after *redisq.Cursor, limit int) ([]redisq.Waiting, error)
	Probe(ctx context.Context, consumer uint32, ids []ident.ID) ([]redisq.Standing, error)
	Outlooks(ctx context.Context, consumers []uint32, job ident.ID, limits []redisq.Limits) ([]redisq.Outlook, []error)
}

// Contacts knows when workers last asked for jobs of a pull consumer.
type Contacts interface {
	// LastContact returns the last claim, the last claim, list or move, and the last renewal of a lease; zero:
	// none is known. workers is the number of those that live.
	LastContact(ctx context.Context, consumer uint32) (claim, contact, renewal time.Time, workers int, err error)
	// Of returns the living workers, with the tasks that they take.
	Of(ctx context.Context, consumer uint32) (presence.Presence, error)
}

// Holds has the holds of this broker: a hold.Keeper.
type Holds interface {
	KnownOf(consumer uint32, at time.Time) (h durable.Hold, stored, ok bool)
}

// Rates has the paces of adaptive consumers: a balance.Balancer.
type Rates interface {
	Pace(consumer uint32) redisq.Rate
	Mode(consumer uint32) durable.PaceMode
}

// Options assemble an Explainer. Holds, Rates, Contacts, Load, Writable and Brokers may be nil.
type Options struct {
	Store     Store
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Policies  *policy.Book
	Notebook  *Notebook
	Holds     Holds
	Rates     Rates
	Contacts  Contacts
	Load      func(consumer uint32) push.Load // of this broker
	Writable  func() error                    // why the store takes no writes
	Brokers   func() int                      // that are alive

	NowMs         func() int64  // the clock of the store
	NoWorkerAfter time.Duration // for which a due job of a pull consumer waits before no_worker
	RationalDelay time.Duration // age at which a job must be in the queue
	Log           *slog.Logger
}

// An Explainer answers why. It is safe for concurrent use.
type Explainer struct{ o Options }

// New returns an explainer.
func New(o Options) *Explainer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Explainer{o}
}

// A view is what is known of a consumer at one moment.
type view struct {
	e   *Explainer
	ch  *catalogue.Channel
	k   *durable.Consumer
	p   *policy.Policy
	now time.Time // of the store

	has      durable.Circumstances
	storeErr error // why the store cannot be asked, or takes no writes
	queue    redisq.Outlook
	queueErr error
	paceMode durable.PaceMode
	pace     redisq.Rate
	path     string   // of the consumer
	brief    bool     // what blocks a job is not asked for
	taskless bool     // which tasks workers take is not asked for
	asked    ident.ID // the message of the job that is asked for; zero: all jobs of the consumer are
}

// look reads what is known of a consumer.
func (e *Explainer) look(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer) *view {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, askWithin)
	has, err := e.o.Store.CircumstancesOf(asking, k.No)
	cancel()
	if errors.Is(err, durable.ErrNotFound) { // it was deleted meanwhile
		err = nil
	}
	v := e.view(ctx, ch, k, read{has, asked, err})
	v.askQueue(ctx, ident.ID{})
	return v
}

// A read is what the store answered of the circumstances of a consumer.
type read struct {
	has  durable.Circumstances
	from time.Time // when it was asked
	err  error
}

// view returns a view of a consumer with what the store has of it. A change by another broker is learnt here.
func (e *Explainer) view(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer, r read) *view {
	o := &e.o
	v := &view{e: e, ch: ch, k: k, now: time.UnixMilli(o.NowMs()).UTC(), has: r.has, storeErr: r.err}
	switch {
	case r.err != nil:
		v.has = durable.Circumstances{State: k.State, ChannelPaused: ch.Paused,
			GroupPaused: ch.GroupPaused}
	case r.has.Version > k.Version:
		asking, cancel := context.WithTimeout(ctx, askWithin)
		if o.Catalogue.Refresh(asking) == nil {
			if now := o.Catalogue.ConsumerByNo(k.No); now != nil {
				v.k = now
			}
		}
		cancel()
	}
	v.p = o.Policies.Of(v.k.Policy)
	v.path = "/channel/" + ch.ID + "/consumer/" + v.k.ID
	if o.Notebook != nil {
		v.has.Fact = o.Notebook.Of(k.No).Newer(v.has.Fact)
	}
	if o.Holds != nil {
		h, stored, ok := o.Holds.KnownOf(k.No, r.from)
		if ok && (r.err != nil || !stored && h.UntilMs > v.has.Hold.UntilMs) {
			v.has.Hold = h
		}
	}
	if v.storeErr == nil && o.Writable != nil {
		v.storeErr = o.Writable()
	}
	if o.Rates != nil && v.p.Adaptive && v.k.Type == durable.Push {
		v.paceMode, v.pace = o.Rates.Mode(k.No), o.Rates.Pace(k.No)
	}
	return v
}

// askQueue reads what Redis knows of the consumer, and of one of its jobs if it is not zero.
func (v *view) askQueue(ctx context.Context, job ident.ID) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	v.queue, v.queueErr = v.e.o.Queue.Outlook(ctx, v.k.No, job, limit.Of(v.p, v.pace))
	v.translate()
}

// translate brings the times to come of Redis to the clock of the store.
func (v *view) translate() {
	q := &v.queue
	ahead := v.now.Sub(q.Now)
	for _, t := range []*time.Time{&q.FirstDue, &q.FirstLeaseEnd, &q.HeldUntil, &q.Job.At, &q.Now} {
		if !t.IsZero() {
			*t = t.Add(ahead)
		}
	}
	if q.OldestReady.After(v.now) {
		q.OldestReady = v.now
	}
}

// timeAt returns a time of the answer, nil for the zero time.
func timeAt(t time.Time) *apitype.Time {
	if t.IsZero() {
		return nil
	}
	return &apitype.Time{Time: t.UTC()}
}

// msAt is timeAt for Unix ms.
func msAt(ms int64) *apitype.Time {
	if ms <= 0 {
		return nil
	}
	return timeAt(time.UnixMilli(ms))
}
