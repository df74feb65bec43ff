package push

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/hotpath/outcome"
	"github.com/penstock-broker/penstock/hotpath/verify"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A Queue is the part of redisq.Queue that the dispatcher needs.
type Queue interface {
	Generation() uint64
	Claim(ctx context.Context, consumer uint32, n int, lease time.Duration) (redisq.Claim, error)
	Extend(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	RestoreLeases(ctx context.Context, consumer uint32, leases []redisq.Lease, lease time.Duration) ([]bool, error)
	Release(ctx context.Context, consumer uint32, leases []redisq.Lease) ([]bool, error)
	Ack(ctx context.Context, consumer uint32, ids []ident.ID) (int, error)
}

// Outcomes takes the results of attempts: an outcome.Committer.
type Outcomes interface {
	Add(r outcome.Result)
	Room() int
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
	Outcomes  Outcomes
	Pace      Pace
	Settings  Settings
	NowMs     func() int64 // the clock of the store
	// Touched receives consumers that have leases, which the reaper must watch. Refill receives
	// consumers whose window has room while the store holds more jobs. Neither may block.
	Touched func(consumer uint32)
	Refill  func(consumer uint32)
	Metrics *metrics.Metrics
	Log     *slog.Logger
}
