package alerts

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/sampler"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// Alarms say what is looked for with each sample of the jobs of all consumers: late consumers, consumers
// whose jobs no worker asks for, and silent channels.
type Alarms struct {
	Samples  Samples
	Policies *policy.Book
	Contacts Contacts
	// NoWorkerAfter is the time of no_worker without a worker.
	NoWorkerAfter time.Duration
	// NoWorker returns the reason no_worker of the why of a consumer, where it has it.
	NoWorker func(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer) (apitype.WhyReason, bool)
	// Retention is the age at which a message may be removed; 0: never.
	Retention time.Duration
	Owns      func(no uint32) bool // whether this broker looks; nil: it does
}

// Samples are the counts of jobs: a sampler.Sampler.
type Samples interface {
	Latest() *sampler.Sample
	Watch(f func(*sampler.Sample))
}

// Contacts knows when workers last asked for jobs: a presence.Keeper.
type Contacts interface {
	LastContact(ctx context.Context, consumer uint32) (claim, contact, renewal time.Time, workers int, err error)
}

// stale is the age from which a sample says nothing: the stores cannot be asked.
const stale = 3 * sampler.Every

// A watch looks for alarms. Its memory saves work, and keeps an alarm from ending too early; none of it
// decides whether an alarm is open.
type watch struct {
	*Alerts
	Alarms
	hint chan struct{} // capacity 1: there is a new sample

	late    map[uint32]int64     // consumers with an alarm -> when they were last seen to be late
	unheard map[uint32]time.Time // consumers with due jobs and without a contact -> the first look
	asked   uint32               // the consumer that the last round ended with, of those that were asked about
	newest  map[uint32]int64     // channel -> time of the newest message that is known
	read    uint32               // the channel that the last round ended with, of those that were read
}

func newWatch(a *Alerts, o Alarms) *watch {
	w := &watch{Alerts: a, Alarms: o, hint: make(chan struct{}, 1), late: map[uint32]int64{}, newest: map[uint32]int64{},
		unheard: map[uint32]time.Time{}}
	o.Samples.Watch(func(*sampler.Sample) {
		select {
		case w.hint <- struct{}{}:
		default:
		}
	})
	return w
}

func (w *watch) sampled() <-chan struct{} { return w.hint }

// round looks once, with the last sample. Without an alarm that is open and without a field that asks for one
// it reads a small table.
func (w *watch) round(ctx context.Context) (time.Duration, error) {
	ch := w.o.Catalogue.Channel(ident.AlertsChannel)
	if ch == nil || w.Owns != nil && !w.Owns(ch.No) {
		clear(w.late) // what is true when this broker looks again is seen then
		clear(w.newest)
		clear(w.unheard)
		return poll, nil
	}
	open, err := w.open(ctx)
	if err != nil {
		return poll, err
	}
	if s := w.Samples.Latest(); s != nil && w.o.NowMs()-s.At.UnixMilli() < stale.Milliseconds() {
		err = errors.Join(w.lateness(ctx, s, open[durable.ConsumerLate]),
			w.polling(ctx, s, open[durable.ConsumerUnpolled]))
	}
	return poll, errors.Join(err, w.silence(ctx, open[durable.ChannelSilent]))
}

// An alarms set has the open alarms, by event, with the time from which they are open.
type alarmSet map[durable.Event]map[uint32]int64

func (a *Alerts) open(ctx context.Context) (alarmSet, error) {
	rows, err := a.o.Store.Alarms(ctx)
	open := alarmSet{}
	for _, row := range rows {
		if open[row.Event] == nil {
			open[row.Event] = map[uint32]int64{}
		}
		open[row.Event][row.No] = row.SinceMs
	}
	return open, err
}

// raise opens an alarm about a consumer, or about a channel. One that does not exist has none.
func (a *Alerts) raise(ctx context.Context, event durable.Event, no uint32, reason string) error {
	return a.alerted(a.o.Store.OpenAlarm(ctx, a.alarm(event, no, reason)))
}

// close ends an alarm.
func (a *Alerts) close(ctx context.Context, event durable.Event, no uint32, reason string) error {
	return a.alerted(a.o.Store.CloseAlarm(ctx, a.alarm(event, no, reason)))
}

func (a *Alerts) alarm(event durable.Event, no uint32, reason string) durable.Alert {
	return durable.Alert{Event: event, ConsumerNo: no, AtMs: a.o.NowMs(), Reason: reason}
}

func (a *Alerts) alerted(changed bool, err error) error {
	if changed {
		a.Wake()
	}
	if errors.Is(err, durable.ErrNotFound) { // a store that was restored has never had it
		return nil
	}
	return err
}
