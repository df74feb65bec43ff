package publishrate

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// A Queue is the part of redisq.Queue used here.
type Queue interface {
	TakePlaces(ctx context.Context, n int, rates []redisq.PublishRate) (redisq.Places, error)
}

const (
	// askWithin bounds the wait for Redis. A publish that is not answered by then is counted here.
	askWithin = 250 * time.Millisecond
	// aloneFor is how long this broker counts by itself before it asks Redis again.
	aloneFor = time.Second
)

// errUsedUp is the refusal, without which rate it is about.
var errUsedUp = problem.New(429, "publish_rate_exceeded",
	"A publish rate is used up. Nothing was stored; try again later.")

// Options assemble a Limiter.
type Options struct {
	Queue     Queue
	Catalogue *catalogue.Catalogue
	Registry  prometheus.Registerer // nil: no metrics
	Log       *slog.Logger
}

// A Limiter gives places to messages. It is safe for concurrent use; nil gives all that are wanted.
type Limiter struct {
	o       Options
	refused *prometheus.CounterVec
	alone   prometheus.Counter

	mu      sync.Mutex
	windows map[string]*window // while Redis does not answer; nil: it does
	again   time.Time          // when to ask Redis
}

// kinds are what a rate may be of, as in the names of the rates.
var kinds = map[byte]string{'p': "producer", 'c': "channel", 'g': "group"}

// New returns a limiter.
func New(o Options) *Limiter {
	l := &Limiter{o: o}
	l.refused = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_publish_rate_refused_total",
		Help: "Messages refused with 429 because a publish rate was used up, by what has the rate."}, []string{"of"})
	l.alone = prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_publish_rate_alone_total",
		Help: "Messages that this broker counted by itself against a publish rate, because Redis did not answer."})
	for _, kind := range kinds {
		l.refused.WithLabelValues(kind)
	}
	if o.Registry != nil {
		o.Registry.MustRegister(l.refused, l.alone)
	}
	return l
}

// Limited reports whether a publish rate bounds the messages of a producer in a channel.
func (l *Limiter) Limited(ch *catalogue.Channel, producer uint32) bool {
	if l == nil {
		return false
	}
	if ch.Intake.PublishRate.N > 0 {
		return true
	}
	if ch.Group != "" {
		if g := l.o.Catalogue.Group(ch.Group); g != nil && g.Limits.PublishRate.N > 0 {
			return true
		}
	}
	set := l.o.Catalogue.Bounds()
	return len(set) > 0 && set[producer].Publish.N > 0
}

// rates are those that bound the messages of a producer in a channel.
func (l *Limiter) rates(ch *catalogue.Channel, producer uint32) (out []redisq.PublishRate) {
	add := func(kind byte, no uint32, r policy.Rate) {
		if r.N > 0 {
			name := string(kind) + strconv.FormatUint(uint64(no), 10)
			out = append(out, redisq.PublishRate{Name: name, N: r.N, Per: r.Per})
		}
	}
	add('p', producer, l.o.Catalogue.Bounds()[producer].Publish)
	add('c', ch.No, ch.Intake.PublishRate)
	if ch.Group != "" {
		if g := l.o.Catalogue.Group(ch.Group); g != nil {
			add('g', g.No, g.Limits.PublishRate)
		}
	}
	return out
}

// Take takes places for n messages of a producer in a channel. The first taken of them have theirs; err is
// why the others have none, a *problem.Problem, nil where taken is n.
func (l *Limiter) Take(ctx context.Context, ch *catalogue.Channel, p *durable.Producer, n int) (taken int,
	err error) {
	if n == 0 || !l.Limited(ch, p.No) {
		return n, nil
	}
	taken, wait, by := l.Some(ctx, ch, p.No, n)
	if taken == n {
		return n, nil
	}
	l.refused.WithLabelValues(kinds[by.Name[0]]).Add(float64(n - taken))
	refusal := *errUsedUp
	refusal.RetryAfter = max(int((wait+time.Second-1)/time.Second), 1)
	refusal.Detail = fmt.Sprintf("The publish rate of the %s, %s, is used up. Nothing was stored; try again later.",
		kinds[by.Name[0]], policy.Rate{N: by.N, Per: by.Per})
	return taken, &refusal
}

// Some takes places for up to n messages, counts no refusal, and returns how long to wait for the next one
// where there are fewer, and the rate that has it last.
func (l *Limiter) Some(ctx context.Context, ch *catalogue.Channel, producer uint32, n int) (taken int,
	wait time.Duration, by redisq.PublishRate) {
	if !l.Limited(ch, producer) {
		return n, 0, by
	}
	rates := l.rates(ch, producer)
	if len(rates) == 0 { // none is set any more
		return n, 0, by
	}
	got, asked := l.ask(ctx, n, rates)
	if !asked {
		got = l.count(n, rates)
	}
	if got.N < n {
		by = rates[max(got.By, 0)]
	}
	return got.N, got.Wait, by
}

// ask asks Redis, unless it did not answer just now.
func (l *Limiter) ask(ctx context.Context, n int, rates []redisq.PublishRate) (got redisq.Places, ok bool) {
	l.mu.Lock()
	alone := l.windows != nil && time.Now().Before(l.again)
	if l.windows != nil && !alone { // one message tries
		l.again = time.Now().Add(aloneFor)
	}
	l.mu.Unlock()
	if alone {
		return got, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
	defer cancel()
	got, err := l.o.Queue.TakePlaces(ctx, n, rates)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil && l.windows == nil:
		l.o.Log.Warn("Redis does not count publish rates; this broker counts by itself", "error", err)
		l.windows = map[string]*window{}
		fallthrough
	case err != nil:
		l.again = time.Now().Add(aloneFor)
		return got, false
	case l.windows != nil:
		l.o.Log.Info("Redis counts publish rates again")
		l.windows = nil
	}
	return got, true
}

// count counts at this broker alone.
func (l *Limiter) count(n int, rates []redisq.PublishRate) redisq.Places {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alone.Add(float64(n))
	windows := l.windows
	if windows == nil { // Redis has answered another one meanwhile
		return redisq.Places{N: n, By: -1}
	}
	return places(windows, n, rates, time.Now())
}
