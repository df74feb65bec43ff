package exchange

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// tick is the interval in which the store is asked what is due.
	tick = 500 * time.Millisecond
	// page is the number of exchanges of a consumer that one round handles.
	page = 500
	// consumersAtOnce bounds the consumers that are handled at a time. Others wait in their order.
	// Nothing that is done then waits for a receiver: polls run beside it.
	consumersAtOnce = 16
	// replyBytes bounds the responses that are published at once.
	replyBytes = 4 << 20
	// heldAgain is the pause before a result of a held consumer is looked at again.
	heldAgain = 10 * time.Second
)

// A WorkStore is the part of durable.Store that a Worker uses.
type WorkStore interface {
	NextWork(ctx context.Context, after uint32) (consumerNo uint32, dueMs int64, err error)
	DueWork(ctx context.Context, consumerNo uint32, nowMs int64, limit int) ([]durable.Work, error)
	DelayWork(ctx context.Context, consumerNo uint32, state durable.ExchangeState, ids []ident.ID, dueMs int64,
		tries int) error
	DropResponses(ctx context.Context, consumerNo uint32, ids []ident.ID, nowMs int64) error
	Exchanges(ctx context.Context, consumerNo uint32, ids []ident.ID) ([]durable.Exchange, error)
	MoveExchange(ctx context.Context, e durable.Exchange, from durable.ExchangeState) (bool, error)
	ListMessages(ctx context.Context, channelNo uint32, from ident.ID, limit int) ([]durable.Message, error)
	RestReplies(ctx context.Context, consumerNo uint32, rest []durable.Awaiting, nowMs, retentionMs int64) error
	NextAwaited(ctx context.Context, after uint32) (producerNo uint32, err error)
	WakeReplies(ctx context.Context, producerNo uint32, limit int) (consumers []uint32, err error)
	ForgetAwaiting(ctx context.Context, consumerNo uint32, ids []ident.ID) error
	MessageByKey(ctx context.Context, channelNo uint32, key string) (ident.ID, error)
	JobStates(ctx context.Context, consumerNo uint32, ids []ident.ID) (map[ident.ID]durable.JobState, error)
	Record(ctx context.Context, outcomes []durable.Outcome) error
	DeleteChannel(ctx context.Context, p durable.Put) (durable.Channel, error)
	PutChannel(ctx context.Context, p durable.Put) (durable.Channel, bool, error)
	PutConsumer(ctx context.Context, p durable.ConsumerPut) (durable.Consumer, bool, error)
}

// Options assemble a Worker.
type Options struct {
	Store     WorkStore
	Catalogue *catalogue.Catalogue
	Policies  *policy.Book
	Owns      func(consumer uint32) bool
	NowMs     func() int64 // the store's clock
	// Retention ends the wait of a response for a reply URL, where its consumer has no responseTTL. 0: never.
	Retention time.Duration
	// Publish stores messages that the broker makes, and returns one result each.
	Publish func(ctx context.Context, msgs []*durable.Message) []error
	// Charge counts a request in the rates of a consumer; redisq.Queue.Regrant.
	Charge func(ctx context.Context, consumer uint32, l redisq.Lease, limits redisq.Limits) (redisq.Lease,
		time.Duration, error)
	Answered func(consumer uint32, id ident.ID) // a response was stored
	Announce func()                             // the catalogue has changed
	Room     *Room                              // of responses; nil: one of its own
	// Web asks for results where management configured that, Fetch where the receiver did. Both follow
	// their address rules, and no redirects.
	Web, Fetch *http.Client
	Agent      string // User-Agent
	Token      string // name of the header with the consumer's token
	Registry   prometheus.Registerer
	Log        *slog.Logger
}

// A Worker does what is due of the exchanges of the consumers that this broker owns.
type Worker struct {
	Options
	poke chan struct{} // capacity 1: something is due
	wg   sync.WaitGroup
	seen seen // only Run uses it

	warned atomic.Int64 // Unix ms: the last warning of a Location that may not be asked

	places *share.Bound // of polls

	mu      sync.Mutex
	active  map[uint32]bool // consumers that are handled now
	news    map[uint32]bool // consumers that wait to be handled
	order   []uint32        // of news
	polling map[uint32]bool // consumers whose polls are under way

	polls, replies *prometheus.CounterVec
	failed         prometheus.Counter
}

// NewWorker returns a worker. Nothing is done before Run.
func NewWorker(o Options) *Worker {
	w := &Worker{Options: o, poke: make(chan struct{}, 1), active: map[uint32]bool{}, news: map[uint32]bool{},
		polling: map[uint32]bool{}, places: newPollPlaces()}
	if w.Room == nil {
		w.Room = NewRoom()
	}
	w.polls = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_result_polls_total",
		Help: "Polls of results by this broker, by what they found."}, []string{"found"})
	w.replies = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_replies_total",
		Help: "Replies to producers by this broker: published, or waiting for a reply URL."}, []string{"what"})
	w.failed = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_exchanges_failed_total",
		Help: "Exchanges that this broker ended without a response, other than by a dead letter."})
	if o.Registry != nil {
		o.Registry.MustRegister(w.polls, w.replies, w.failed)
	}
	return w
}

// Bounds returns what consumers share.
func (w *Worker) Bounds() []*share.Bound { return []*share.Bound{w.places} }

// Stored reports that this broker stored an exchange of a consumer. It never blocks.
func (w *Worker) Stored(consumer uint32) {
	w.mu.Lock()
	w.later(consumer)
	w.mu.Unlock()
	w.wake()
}

// later lets a consumer wait to be handled. It needs mu.
func (w *Worker) later(no uint32) {
	if !w.news[no] {
		w.news[no] = true
		w.order = append(w.order, no)
	}
}

func (w *Worker) wake() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and then waits for the requests under way.
func (w *Worker) Run(ctx context.Context) {
	defer w.wg.Wait()
	failing := false
	next := time.Now()
	for ctx.Err() == nil {
		err := guard.Do("responses", func() error { return w.round(ctx, !time.Now().Before(next)) })
		if time.Now().After(next) {
			next = time.Now().Add(tick)
		}
		if err != nil && ctx.Err() == nil && !failing {
			w.Log.Warn("responses are late: the store cannot be asked; the broker tries again", "error", err)
		}
		failing = err != nil
		timer := time.NewTimer(tick)
		select {
		case <-ctx.Done():
		case <-w.poke:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round begins the work on the consumers with news and, if all is set, on all that this broker owns.
func (w *Worker) round(ctx context.Context, all bool) error {
	w.mu.Lock()
	news := w.order
	w.news, w.order = map[uint32]bool{}, nil
	w.mu.Unlock()
	for _, no := range news {
		w.begin(ctx, no)
	}
	if !all {
		return nil
	}
	if err := w.followProducers(ctx); err != nil {
		return err
	}
	for after := uint32(0); ; {
		no, dueMs, err := w.Store.NextWork(ctx, after)
		if err != nil || no == 0 {
			return err
		}
		if after = no; dueMs <= w.NowMs() && w.Owns(no) {
			w.begin(ctx, no)
		}
	}
}

// begin handles a consumer in the background, unless it is handled already or too many are.
func (w *Worker) begin(ctx context.Context, no uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.active[no] || len(w.active) >= consumersAtOnce:
		w.later(no) // again, with what came meanwhile
		return
	}
	w.active[no] = true
	w.wg.Go(func() {
		var more bool
		err := guard.Do("responses of a consumer", func() (err error) {
			more, err = w.consumer(ctx, no)
			return err
		})
		if err != nil && ctx.Err() == nil {
			w.Log.Warn("the responses of a consumer are late; the broker tries again", "consumer", no, "error", err)
		}
		w.mu.Lock()
		delete(w.active, no)
		more, waiting := more && err == nil, len(w.order) > 0
		w.mu.Unlock()
		if more {
			w.Stored(no)
		} else if waiting {
			w.wake()
		}
	})
}

// consumer does what is due of one consumer. It reports whether there is more.
func (w *Worker) consumer(ctx context.Context, no uint32) (more bool, err error) {
	k := w.Catalogue.ConsumerByNo(no)
	if k == nil {
		return false, w.Catalogue.Refresh(ctx)
	}
	now := w.NowMs()
	due, err := w.Store.DueWork(ctx, no, now, page)
	if err != nil || len(due) == 0 {
		return false, err
	}
	var drop, back, late []ident.ID
	var poll []durable.Work
	for _, d := range due {
		switch {
		case d.State == durable.DeliveredReceiver && (d.DeadlineMs <= now || w.unwanted(k)):
			late = append(late, d.ID)
		case d.State == durable.DeliveredReceiver:
			poll = append(poll, d)
		case d.State == durable.ResponseReceived && d.GoesBack:
			back = append(back, d.ID)
		default:
			drop = append(drop, d.ID)
		}
	}
	errs := []error{w.fail(ctx, k, late), w.reply(ctx, k, due, back)}
	if len(drop) > 0 {
		errs = append(errs, w.Store.DropResponses(ctx, no, drop, now))
	}
	moved := len(due) > len(poll)
	if w.Owns(no) { // a result is polled by one broker
		polled, err := w.beginPolls(ctx, k, poll)
		moved, errs = moved || polled, append(errs, err)
	}
	return len(due) == page && moved, errors.Join(errs...)
}

// unwanted reports whether nobody waits for the results of a consumer any more.
func (w *Worker) unwanted(k *durable.Consumer) bool {
	return k.Deleted() || w.Policies.Of(k.Policy).Responses == policy.ResponsesOff
}

// fail ends exchanges without a result.
func (w *Worker) fail(ctx context.Context, k *durable.Consumer, ids []ident.ID) error {
	reason := NoResult
	switch {
	case k.Deleted():
		reason = "the consumer was deleted before its result came"
	case w.unwanted(k):
		reason = "responses were switched off before the result came"
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := w.Store.Exchanges(ctx, k.No, ids)
	if err != nil {
		return err
	}
	for _, e := range found {
		if err := w.failOne(ctx, e, reason); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) failOne(ctx context.Context, e durable.Exchange, reason string) error {
	from := e.State
	e.Fail(w.NowMs(), reason)
	moved, err := w.Store.MoveExchange(ctx, e, from)
	if moved {
		w.failed.Inc()
		w.Answered(e.ConsumerNo, e.ID)
	}
	return err
}
