package push

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/feature/tracing"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A Queue is the part of redisq.Queue that the dispatcher needs.
type Queue interface {
	Incarnation() uint64
	Claim(ctx context.Context, consumer uint32, n int, lease time.Duration, limits redisq.Limits) (redisq.Claim, error)
	Extend(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	RestoreLeases(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	AckLeases(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Regrant(ctx context.Context, consumer uint32, l redisq.Lease, limits redisq.Limits) (redisq.Lease,
		time.Duration, error)
}

// Holds keeps the jobs of consumers back on all brokers: a hold.Keeper.
type Holds interface {
	// Rest returns the time until the hold of the consumer ends, 0 or less where it is not held.
	Rest(consumer uint32) time.Duration
	// Begin holds a consumer, in the state in which it was called. by is the reason for people.
	Begin(called *durable.Consumer, wait time.Duration, by string)
}

// Outcomes takes the results of attempts: an outcome.Committer.
type Outcomes interface {
	Add(r outcome.Entry)
	Room() int
}

// States changes the states of consumers: a consumerstate.Keeper.
type States interface {
	// Gone holds the consumer because it answered 410 to a job. seen is the consumer as it was
	// when the request was sent.
	Gone(ctx context.Context, seen *durable.Consumer, job string) error
	// TakeProbe gives the right to probe a revived consumer until then, by the store's clock.
	TakeProbe(ctx context.Context, consumer uint32, untilMs int64) (bool, error)
	ReturnProbe(ctx context.Context, consumer uint32, untilMs int64) error
	// Probed ends the probe: the consumer is active again, or dead for that reason.
	Probed(ctx context.Context, seen *durable.Consumer, delivered bool, reason string) error
}

// Settings are the settings of push delivery.
type Settings struct {
	Policies    *policy.Book  // timeout, attempts, backoff, meaning of answers
	Lease       time.Duration // visibility timeout of a push job, or longer by Margin
	Margin      time.Duration // by which a lease is at least longer than the timeout of an attempt
	Concurrency int           // requests in flight, this process
	PerConsumer int           // requests in flight, one consumer
	Bytes       int64         // of large payloads under way, this process
	TokenHeader string
	UserAgent   string
	Web         *http.Client   // asks token endpoints and status URLs; follows no redirects
	Room        *exchange.Room // of responses; nil: one of its own
	Tokens      Tokens         // shares access tokens with the other brokers; nil: there are none
	Secret      []byte         // of the store, with which shared tokens are sealed
	// Drain is how long a stop waits for the answers of consumers; 0: until each has come, or its
	// timeout is over. Cut then ends the requests under way with egress.ErrClosed.
	Drain time.Duration
	Cut   func()
}

// A Pace receives how long messages wait for their delivery: the admission of publishes.
type Pace interface {
	// Observe takes the delay of a first attempt from the commit to its request, and the duration
	// of the request.
	Observe(delay, took time.Duration)
}

// Options assemble a dispatcher.
type Options struct {
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Deliverer Deliverer
	Verifier  *verify.Verifier
	Order     verify.Order // of ordered consumers; may be nil where there are none
	Outcomes  Outcomes
	Pace      Pace
	States    States
	History   History
	Balancer  Balancer // of adaptive consumers; may be nil where there are none
	Holds     Holds    // may be nil where no consumer is held
	Settings  Settings
	NowMs     func() int64 // the clock of the store
	// Touched receives consumers that have leases, which the reaper must watch. Refill receives
	// consumers whose window has room while the store holds more jobs. Neither may block.
	Touched func(consumer uint32)
	Refill  func(consumer uint32)
	Metrics *metrics.Metrics
	Traces  *tracing.Tracer // nil: none
	Log     *slog.Logger
}
