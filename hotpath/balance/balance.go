// Package balance slows adaptive consumers down while their attempts fail, and speeds them up
// again by steps.
//
// The attempts of a period are counted over all brokers, in one row of the durable store for each
// adaptive consumer. The broker that finds a period over decides the pace of the next one, in the
// transaction that counts. Every broker reads the paces several times in a period, and passes
// them with its claims as a second rate, so Redis keeps all brokers together to it.
//
//	         more than Slow %        all of a period fail
//	NORMAL -------------------> SLOW ---------------------> HEARTBEAT
//	  ^ |  more than Down %: x 0.8 | ^                          |
//	  | |  fewer than Down/5 %: x 2| +--------------------------+
//	  +-+--------------------------+       a success
//	       at most Down % fail: 2/s
//
// A pace has no bound once it has reached Max. A lost Redis changes no pace, and a broker that has
// not read the paces yet takes every adaptive consumer for slow.
package balance

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/redisq"
)

// A Rule says when the pace of a consumer changes.
type Rule struct {
	Period time.Duration
	Down   float64 // percent of failures above which a consumer is slowed down by a fifth
	Slow   float64 // percent of failures above which it gets one attempt a second
	Max    int     // attempts per second from which nothing is held back any more
}

// Rates of the modes that are not normal.
var (
	slow      = redisq.Rate{N: 1, Per: time.Second}
	heartbeat = redisq.Rate{N: 1, Per: time.Minute}
)

// Next returns the pace after p at that time. Within its period p stays.
func (r Rule) Next(p durable.Pace, nowMs int64) durable.Pace {
	took := time.Duration(nowMs-p.SinceMs) * time.Millisecond
	all := p.Good + p.Strained
	if took >= 0 && took < r.Period {
		return p
	}
	if all == 0 { // nothing was learnt
		p.SinceMs = nowMs
		return p
	}
	share := 100 * float64(p.Strained) / float64(all)
	switch p.Mode {
	case durable.PaceHeartbeat:
		if p.Strained == 0 {
			p.Mode = durable.PaceSlow
		}
	case durable.PaceSlow:
		if p.Good == 0 {
			p.Mode = durable.PaceHeartbeat
		} else if share <= r.Down {
			p.Mode, p.PerSecond = durable.PaceNormal, 2
		}
	default:
		p = r.normal(p, share, float64(all)/max(took.Seconds(), 0.001))
	}
	p.Good, p.Strained, p.SinceMs = 0, 0, nowMs
	return p
}

// normal is Next of a pace in the normal mode, whose attempts came at that rate per second.
func (r Rule) normal(p durable.Pace, share, observed float64) durable.Pace {
	switch {
	case share > r.Slow:
		p.Mode, p.PerSecond = durable.PaceSlow, 0
	case share > r.Down:
		base := observed
		if p.PerSecond > 0 {
			base = min(base, float64(p.PerSecond))
		}
		p.PerSecond = max(int(base*0.8), 1)
	case share <= r.Down/5 && p.PerSecond > 0:
		if p.PerSecond *= 2; p.PerSecond >= r.Max {
			p.PerSecond = 0
		}
	}
	return p
}

// RateOf returns the rate of a pace, the zero value where it has no bound.
func RateOf(p durable.Pace) redisq.Rate {
	switch {
	case p.Mode == durable.PaceSlow:
		return slow
	case p.Mode == durable.PaceHeartbeat:
		return heartbeat
	case p.PerSecond > 0:
		return redisq.Rate{N: p.PerSecond, Per: time.Second}
	}
	return redisq.Rate{}
}

// A Store has the paces: the durable store.
type Store interface {
	CountPace(ctx context.Context, consumerNo uint32, url string, good, strained int, nowMs int64,
		next func(durable.Pace) durable.Pace) (before, after durable.Pace, err error)
	Paces(ctx context.Context) ([]durable.Pace, error)
}

// Options assemble a Balancer.
type Options struct {
	Rule      Rule
	Store     Store
	Catalogue *catalogue.Catalogue
	Policies  *policy.Book
	NowMs     func() int64 // the clock of the store
	// Repaced is told of a consumer whose pace has changed, on every broker. Slowed is called once,
	// on the broker that made a consumer slow: its alert is stored. Neither may block.
	Repaced func(consumer uint32)
	Slowed  func()
	Metrics prometheus.Registerer // nil: no metrics
	Log     *slog.Logger
}

// attempts are counted and not stored yet.
type attempts struct{ good, strained int }

// An address is where attempts of a consumer went. Those to a former one do not count.
type address struct {
	consumer uint32
	url      string
}

// A Balancer counts attempts and knows paces. It is safe for concurrent use.
type Balancer struct {
	o           Options
	transitions *prometheus.CounterVec

	mu     sync.Mutex
	counts map[address]attempts
	paces  map[uint32]durable.Pace
	loaded bool
}

// New returns a balancer. It learns paces while Run runs.
func New(o Options) *Balancer {
	b := &Balancer{
		o: o, counts: map[address]attempts{}, paces: map[uint32]durable.Pace{},
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_rate_transitions_total", Help: "Changes of the mode of adaptive consumers that this broker made, " +
				"by new mode.",
		}, []string{"rate"}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(b.transitions)
	}
	return b
}

// Pace returns the present rate of an adaptive consumer, the zero value where it has no bound.
func (b *Balancer) Pace(consumer uint32) redisq.Rate {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.loaded {
		return slow
	}
	return RateOf(b.paces[consumer])
}

// Mode returns the mode of a consumer.
func (b *Balancer) Mode(consumer uint32) durable.PaceMode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paces[consumer].Mode
}

// Count counts the end of an attempt at a URL of a consumer.
func (b *Balancer) Count(consumer uint32, url string, strained bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := address{consumer, url}
	c := b.counts[at]
	if strained {
		c.strained++
	} else {
		c.good++
	}
	b.counts[at] = c
}

// ticks is how often in a period the counts are stored and the paces read.
const ticks = 6

// Run stores counts and reads paces until ctx ends.
func (b *Balancer) Run(ctx context.Context) {
	every := max(b.o.Rule.Period/ticks, 10*time.Millisecond)
	for failing := false; ; {
		if err := b.round(ctx); err != nil && ctx.Err() == nil {
			if !failing {
				b.o.Log.Warn("the paces of adaptive consumers cannot be stored or read; they stay as they are", "error", err)
			}
			failing = true
		} else {
			failing = false
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// round stores the counts of all consumers, and reads the paces if a consumer is adaptive.
func (b *Balancer) round(ctx context.Context) error {
	b.mu.Lock()
	counts := b.counts
	b.counts = map[address]attempts{}
	loaded := b.loaded
	b.mu.Unlock()
	for at, c := range counts {
		before, after, err := b.o.Store.CountPace(ctx, at.consumer, at.url, c.good, c.strained, b.o.NowMs(),
			func(p durable.Pace) durable.Pace {
				return b.o.Rule.Next(p, b.o.NowMs())
			})
		if err != nil {
			b.keep(counts)
			return err
		}
		delete(counts, at)
		b.tell(before, after)
	}
	adaptive := b.adaptive()
	if loaded && len(adaptive) == 0 {
		b.adopt(nil, adaptive)
		return nil
	}
	paces, err := b.o.Store.Paces(ctx)
	if err != nil {
		return err
	}
	b.adopt(paces, adaptive)
	return nil
}

// keep counts attempts again that could not be stored.
func (b *Balancer) keep(counts map[address]attempts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, c := range counts {
		now := b.counts[at]
		b.counts[at] = attempts{now.good + c.good, now.strained + c.strained}
	}
}

// adaptive returns the adaptive consumers.
func (b *Balancer) adaptive() map[uint32]*durable.Consumer {
	out := map[uint32]*durable.Consumer{}
	for _, no := range b.o.Catalogue.ConsumerNos() {
		if k := b.o.Catalogue.ConsumerByNo(no); k != nil && k.Type == durable.Push && b.o.Policies.Of(k.Policy).Adaptive {
			out[no] = k
		}
	}
	return out
}

// adopt makes these the known paces of the adaptive consumers.
func (b *Balancer) adopt(paces []durable.Pace, adaptive map[uint32]*durable.Consumer) {
	known := map[uint32]durable.Pace{}
	for _, p := range paces {
		if adaptive[p.ConsumerNo] != nil {
			known[p.ConsumerNo] = p
		}
	}
	b.mu.Lock()
	before := b.paces
	first := !b.loaded
	b.paces, b.loaded = known, true
	b.mu.Unlock()
	for no := range adaptive {
		p := known[no]
		if first || RateOf(before[no]) != RateOf(p) {
			b.o.Repaced(no)
		}
	}
}

// tell logs and counts a transition that this broker made.
func (b *Balancer) tell(before, after durable.Pace) {
	if before.Mode == after.Mode && before.PerSecond == after.PerSecond {
		return
	}
	rate := RateOf(after)
	b.o.Log.Info("the pace of an adaptive consumer changed", "consumer", after.ConsumerNo, "rate", after.Mode.String(),
		"attempts", rate.N, "per", rate.Per, "good", before.Good, "failed", before.Strained)
	if before.Mode == after.Mode {
		return
	}
	b.transitions.WithLabelValues(after.Mode.String()).Inc()
	if before.Mode == durable.PaceNormal && b.o.Slowed != nil {
		b.o.Slowed()
	}
}
