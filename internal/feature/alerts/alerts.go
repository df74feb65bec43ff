// Package alerts tells people what became of consumers: an alert is a message on the system
// channel ~alerts. Where that is configured, the channel has consumers of the broker itself, which
// hand the alerts on to a mail server and a webhook, see consumers.go.
//
// The store keeps an alert from the moment of what happened: the row of a transition is written
// in the transaction of the transition. The broker that made the transition publishes the alert
// at once. The others learn of the transition by the catalogue and look a moment later whether
// the row is still there. Publishing ends the row. A row belongs to the broker that claimed it,
// until the time of the claim ends, so of several brokers one publishes the alert, and after a
// crash another one does.
//
// The message on the channel is exactly one: its message ID is made of event, consumer and time.
//
// Some alerts are about a state that lasts: dead letters that grow, late and unpolled consumers, silent
// channels. Such an alarm is a row of the store from its alert to that of its end (durable/alarm.go). One
// broker of all looks for them, see alarms.go.
//
// Nothing here blocks a transition: the loops of this package read the store by themselves.
package alerts

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// A Store is the part of durable.Store used here.
type Store interface {
	RaiseAlert(ctx context.Context, a durable.Alert) error
	DueAlerts(ctx context.Context, sink durable.Sink, nowMs int64, limit int) (due []durable.Alert,
		nextMs int64, err error)
	ClaimAlert(ctx context.Context, a durable.Alert, untilMs int64) (bool, error)
	FinishAlert(ctx context.Context, a durable.Alert) error
	ForgetAlerts(ctx context.Context, beforeMs int64) error
	NextDeadConsumer(ctx context.Context, after uint32) (uint32, error)
	DeadSince(ctx context.Context, consumerNo uint32, sinceMs int64, limit int) (int, error)
	NewestDead(ctx context.Context, consumerNo uint32) (durable.DeadJob, error)
	Alarms(ctx context.Context) ([]durable.Alarm, error)
	OpenAlarm(ctx context.Context, a durable.Alert) (opened bool, err error)
	CloseAlarm(ctx context.Context, a durable.Alert) (closed bool, err error)
	Rhythms(ctx context.Context) ([]durable.Rhythm, error)
	KeepRhythm(ctx context.Context, r durable.Rhythm) error
	ForgetRhythm(ctx context.Context, channelNo uint32) error
	NewestMessage(ctx context.Context, channelNo uint32) (ident.ID, error)
}

// Options assemble Alerts.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	NowMs     func() int64 // the store's clock
	// Publish stores a message that the broker makes. Its error is that of the store's Insert.
	Publish func(ctx context.Context, m *durable.Message) error
	// Link returns the link that revives a consumer which is dead or gone; "": alerts have none.
	Link    func(ctx context.Context, a *durable.Alert) (string, error)
	Growth  *Growth // nil: growth of dead letters is not looked for
	Alarms  *Alarms // nil: neither late nor unpolled consumers nor silent channels are looked for
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

const (
	// poll is the interval in which the store is asked without any hint.
	poll = 30 * time.Second
	// grace is the time that the broker which made a transition has to publish the alert.
	grace = 2 * time.Second
	// page is the number of alerts that one round handles.
	page = 100
	// oldest is the age at which an alert of an older release, for a mail or webhook that is no longer
	// configured, is dropped.
	oldest = 24 * time.Hour
)

// Alerts is the part of one broker in alerting. It is safe for concurrent use.
type Alerts struct {
	o       Options
	publish chan struct{} // capacity 1: there may be alerts for the channel
	learned atomic.Bool   // a look at the transitions of others is due soon
	parts   parts

	published *prometheus.CounterVec // by event
	failures  prometheus.Counter
}

// New returns the alerts of a broker. Nothing runs before Run.
func New(o Options) *Alerts {
	a := &Alerts{o: o, publish: make(chan struct{}, 1),
		published: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_alerts_total",
			Help: "Alerts that this broker published on the channel ~alerts, by event."}, []string{"event"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_alert_failures_total",
			Help: "Failed tries to publish an alert on the channel ~alerts."})}
	if o.Metrics != nil {
		o.Metrics.MustRegister(a.published, a.failures)
	}
	o.Catalogue.Watch(a.learn)
	return a
}

// Run works until ctx ends. looks says whether this broker looks for states that are alerted, besides
// publishing alerts.
func (a *Alerts) Run(ctx context.Context, looks bool) {
	var wg sync.WaitGroup
	start := func(name string, wake func() <-chan struct{}, round func(context.Context) (time.Duration, error)) {
		wg.Go(func() {
			guard.Loop(ctx, name, func(ctx context.Context) { a.loop(ctx, name, wake, round) })
		})
	}
	start("alerts", func() <-chan struct{} { return a.publish }, a.publishRound)
	start("alerts of an older release", func() <-chan struct{} { return nil }, a.carryRound)
	if looks && a.o.Alarms != nil {
		w := newWatch(a, *a.o.Alarms)
		start("watch of late consumers and silent channels", w.sampled, w.round)
	}
	if looks && a.o.Growth != nil {
		g := &growthCheck{Alerts: a, Growth: *a.o.Growth}
		start("growth of dead letters", func() <-chan struct{} { return nil }, g.round)
	}
	wg.Wait()
}

// loop runs rounds. A round returns when the next one is useful without a hint.
func (a *Alerts) loop(ctx context.Context, name string, wake func() <-chan struct{},
	round func(context.Context) (time.Duration, error)) {
	failing := false
	for {
		hint := wake() // from before the round: a hint during it is not lost
		next, err := round(ctx)
		if err != nil {
			if ctx.Err() == nil && !failing {
				a.o.Log.Warn("alerts are late: the store cannot be asked; the broker tries again", "loop", name, "error", err)
			}
			next = max(next, grace)
		}
		failing = err != nil
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-hint:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// Wake says that this broker stored an alert, with a transition. It never blocks.
func (a *Alerts) Wake() {
	select {
	case a.publish <- struct{}{}:
	default:
	}
}

// learn looks at a changed consumer. The transition may be that of a broker that died since.
func (a *Alerts) learn(k *durable.Consumer) {
	if a.o.NowMs()-k.StateMs < time.Minute.Milliseconds() && k.StateMs != k.ChangedAt.UnixMilli() &&
		!a.learned.Swap(true) {
		time.AfterFunc(grace, func() {
			a.learned.Store(false)
			a.Wake()
		})
	}
}

// again is the pause until an alert is due.
func (a *Alerts) again(nextMs int64) time.Duration {
	if nextMs == 0 {
		return poll
	}
	return min(max(time.Duration(nextMs-a.o.NowMs())*time.Millisecond, 10*time.Millisecond), poll)
}
