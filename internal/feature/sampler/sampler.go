package sampler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// Every is the interval of the samples.
const Every = 10 * time.Second

// within bounds one round.
const within = Every / 2

// A Sample is the counts of all consumers that exist, by number. It does not change.
type Sample struct {
	At time.Time // by the store's clock
	Of map[uint32]Level
}

// A Level is the jobs of one consumer.
type Level struct {
	Waiting  int // with those that are not due yet
	Delayed  int // of these, those that are not due yet
	InFlight int
	Dead     int
	// Oldest is when the message of the oldest waiting job was stored, or the job became ready again where
	// that is not known; zero: none waits.
	Oldest time.Time
	// Known says that Redis has answered; else Dead alone counts. AtLeast says that the store may have more
	// waiting jobs.
	Known, AtLeast bool
}

// A Counter counts jobs: jobs.Overview.
type Counter interface {
	CountsOfAll(ctx context.Context, consumers []*durable.Consumer) ([]jobs.Count, error)
}

// Options assemble a Sampler.
type Options struct {
	Counter   Counter
	Catalogue *catalogue.Catalogue
	NowMs     func() int64 // the store's clock
	Log       *slog.Logger
}

// A Sampler has the last sample. It is safe for concurrent use.
type Sampler struct {
	o      Options
	latest atomic.Pointer[Sample]

	mu      sync.Mutex
	watches []func(*Sample)
}

// New returns a sampler. Nothing is counted before Run.
func New(o Options) *Sampler { return &Sampler{o: o} }

// Latest returns the last sample, nil before the first one. While a store is away it grows old.
func (s *Sampler) Latest() *Sample { return s.latest.Load() }

// Watch has f called with each new sample, in the goroutine of Run, which waits for it.
func (s *Sampler) Watch(f func(*Sample)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = append(s.watches, f)
}

// Run counts until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for failing := false; ; {
		err := s.Round(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.o.Log.Warn("the jobs of consumers cannot be counted; metrics, history and alerts of lateness are old",
				"error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Round takes one sample and tells those who watch.
func (s *Sampler) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sample, err := s.take(ctx)
	if err != nil {
		return err
	}
	s.latest.Store(sample)
	s.mu.Lock()
	watches := s.watches
	s.mu.Unlock()
	for _, f := range watches {
		_ = guard.Do("watch of samples", func() error { f(sample); return nil })
	}
	return nil
}

func (s *Sampler) take(ctx context.Context) (*Sample, error) {
	var consumers []*durable.Consumer
	for _, no := range s.o.Catalogue.ConsumerNos() {
		if k := s.o.Catalogue.ConsumerByNo(no); k != nil {
			consumers = append(consumers, k)
		}
	}
	counts, err := s.o.Counter.CountsOfAll(ctx, consumers)
	if err != nil {
		return nil, err
	}
	sample := &Sample{At: time.UnixMilli(s.o.NowMs()).UTC(), Of: make(map[uint32]Level, len(consumers))}
	for i, k := range consumers {
		c := &counts[i]
		sample.Of[k.No] = Level{Waiting: c.Queued, Delayed: c.Delayed, InFlight: c.InFlight, Dead: c.Dead, Oldest: c.Oldest,
			Known: c.Known, AtLeast: c.AtLeast}
	}
	return sample, nil
}
