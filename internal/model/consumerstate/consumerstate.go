// Package consumerstate changes the states of consumers, and pauses channels and groups.
//
// The row of the consumer in the durable store decides. Each change is one transaction with a
// precondition, so of several brokers that want the same change one makes it: one transition has
// one line in the log, one count and one Transition for the functions that Watch adds. Every
// broker gates on its copy of the catalogue, which learns a change by a hint, or at the latest
// after catalogue.PollInterval.
package consumerstate

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// A Store is the part of durable.Store used here.
type Store interface {
	SetConsumerState(ctx context.Context, c durable.StateChange) (durable.Consumer, bool, error)
	SetChannelPaused(ctx context.Context, id string, paused bool) (durable.Channel, bool, error)
	SetGroupPaused(ctx context.Context, id string, paused bool) (durable.Group, bool, error)
	TakeProbe(ctx context.Context, consumerNo uint32, untilMs int64) (bool, error)
	ReturnProbe(ctx context.Context, consumerNo uint32, untilMs int64) error
	Secret(ctx context.Context, name string) ([]byte, error)
}

// Options assemble a Keeper.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Announce  func() // tells other brokers that the catalogue changed; nil: there are none
	NowMs     func() int64
	// PublicURL is the address of the brokers in links, without a slash at the end. Empty: links
	// are paths.
	PublicURL string
	// Changed is called after each transition that this broker makes; nil: nobody is told. It must
	// not block.
	Changed func()
	// Released is called for a consumer whose hold by an answer a person has ended, at this broker; nil:
	// there are no holds. It must not block.
	Released func(consumer uint32)
	Metrics  prometheus.Registerer // nil: no metrics
	Log      *slog.Logger
}

// A Keeper changes states. It is safe for concurrent use.
type Keeper struct {
	o           Options
	transitions *prometheus.CounterVec

	mu  sync.Mutex
	key []byte // of links; nil: not read yet
}

// New returns a keeper.
func New(o Options) *Keeper {
	k := &Keeper{o: o, transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_consumer_transitions_total", Help: "Changes of the state of consumers that this broker made, by " +
			"new state.",
	}, []string{"state"})}
	if o.Metrics != nil {
		o.Metrics.MustRegister(k.transitions)
	}
	return k
}

// change makes a change and tells every party of it.
func (p *Keeper) change(ctx context.Context, c durable.StateChange) (durable.Consumer, error) {
	k, changed, err := p.o.Store.SetConsumerState(ctx, c)
	if err == nil && c.Release && p.o.Released != nil {
		p.o.Released(k.No)
	}
	if err == nil && changed {
		p.refresh(ctx)
		p.tell(k)
	}
	return k, err
}

// refresh brings the change to this broker's copy, and to the others.
func (p *Keeper) refresh(ctx context.Context) {
	if err := p.o.Catalogue.Refresh(ctx); err != nil {
		p.o.Log.Warn("the catalogue could not be refreshed after a change of state; it is polled", "error", err)
	}
	if p.o.Announce != nil {
		p.o.Announce()
	}
}

// tell logs, counts and hands on a transition.
func (p *Keeper) tell(k durable.Consumer) {
	channel := ""
	if ch := p.o.Catalogue.ChannelByNo(k.ChannelNo); ch != nil {
		channel = ch.ID
	}
	name := k.State.String()
	if k.State == durable.StateProbing {
		name = "PROBING"
	}
	p.transitions.WithLabelValues(name).Inc()
	p.o.Log.Info("the state of a consumer changed", "channel", channel, "consumer", k.ID, "state", name, "reason",
		k.StateReason)
	if p.o.Changed != nil {
		p.o.Changed()
	}
}

// only is the set of one state.
func only(s durable.ConsumerState) []durable.ConsumerState { return []durable.ConsumerState{s} }

// Pause holds an active consumer. It changes no other state: a consumer that is dead or gone is
// held already.
func (p *Keeper) Pause(ctx context.Context, k *durable.Consumer) (durable.Consumer, error) {
	return p.change(ctx, durable.StateChange{ConsumerNo: k.No, From: only(durable.StateActive),
		To: durable.StatePaused, Reason: "paused by a request", Release: true})
}

// Resume ends a pause, the hold after a 410, and one by Retry-After. A dead consumer stays dead: Revive ends that.
func (p *Keeper) Resume(ctx context.Context, k *durable.Consumer) (durable.Consumer, error) {
	return p.end(ctx, k, durable.StatePaused, durable.StateGone)
}

// end makes a consumer active.
func (p *Keeper) end(ctx context.Context, k *durable.Consumer, from ...durable.ConsumerState) (durable.Consumer,
	error) {
	return p.change(ctx, durable.StateChange{ConsumerNo: k.No, From: from, To: durable.StateActive, Release: true})
}

// Revive ends the hold of a consumer that is dead or gone, or that asked for it. The failures up to now do not count
// any more. A dead push consumer gets one job, the probe, and nothing else until it is answered.
func (p *Keeper) Revive(ctx context.Context, k *durable.Consumer) (durable.Consumer, error) {
	return p.revive(ctx, k, 0)
}

func (p *Keeper) revive(ctx context.Context, k *durable.Consumer, sinceMs int64) (durable.Consumer, error) {
	c := durable.StateChange{ConsumerNo: k.No, SinceMs: sinceMs, To: durable.StateActive, Forget: true, Release: true,
		From: []durable.ConsumerState{durable.StateDead, durable.StateGone}}
	switch {
	case k.Type == durable.Pull: // its workers come by themselves
		c.From = append(c.From, durable.StateProbing)
	case k.State == durable.StateDead:
		c.From, c.To = only(durable.StateDead), durable.StateProbing
		c.Reason = "revived; the answer to one probe decides. Before: " + k.StateReason
	default:
		c.From = only(durable.StateGone)
	}
	return p.change(ctx, c)
}

// Gone holds a consumer that answered 410 to a job, unless its state or its callback has changed
// since it was seen.
func (p *Keeper) Gone(ctx context.Context, seen *durable.Consumer, job string) error {
	at := time.UnixMilli(p.o.NowMs()).UTC().Format(time.RFC3339)
	_, err := p.change(ctx, durable.StateChange{ConsumerNo: seen.No, SinceMs: seen.StateMs, URL: seen.CallbackURL,
		To:     durable.StateGone,
		From:   []durable.ConsumerState{durable.StateActive, durable.StateProbing},
		Reason: "answered 410 at " + at + " to job " + job})
	return err
}

// Probed ends the probe of a revived consumer.
func (p *Keeper) Probed(ctx context.Context, seen *durable.Consumer, delivered bool, reason string) error {
	c := durable.StateChange{ConsumerNo: seen.No, From: only(durable.StateProbing), SinceMs: seen.StateMs,
		To: durable.StateActive}
	if !delivered {
		c.To, c.Reason = durable.StateDead, reason
	}
	_, err := p.change(ctx, c)
	return err
}

// TakeProbe is that of the store.
func (p *Keeper) TakeProbe(ctx context.Context, consumer uint32, untilMs int64) (bool, error) {
	return p.o.Store.TakeProbe(ctx, consumer, untilMs)
}

// ReturnProbe is that of the store.
func (p *Keeper) ReturnProbe(ctx context.Context, consumer uint32, untilMs int64) error {
	return p.o.Store.ReturnProbe(ctx, consumer, untilMs)
}

// trippedTimeout bounds how long the next outcomes wait for the news of a dead consumer.
const trippedTimeout = time.Second

// Tripped says that the outcomes which were stored just now made a consumer dead.
func (p *Keeper) Tripped(consumer uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), trippedTimeout)
	defer cancel()
	p.refresh(ctx)
	if k := p.o.Catalogue.ConsumerByNo(consumer); k != nil && k.State == durable.StateDead {
		p.tell(*k)
	}
}

// PauseChannel pauses or resumes the intake of a channel.
func (p *Keeper) PauseChannel(ctx context.Context, id string, paused bool) (durable.Channel, error) {
	ch, changed, err := p.o.Store.SetChannelPaused(ctx, id, paused)
	if err == nil && changed {
		p.refresh(ctx)
		p.o.Log.Info("the intake of a channel changed", "channel", id, "paused", paused)
	}
	return ch, err
}

// PauseGroup pauses or resumes the intake of all channels of a group.
func (p *Keeper) PauseGroup(ctx context.Context, id string, paused bool) (durable.Group, error) {
	g, changed, err := p.o.Store.SetGroupPaused(ctx, id, paused)
	if err == nil && changed {
		p.refresh(ctx)
		p.o.Log.Info("the intake of a group changed", "group", id, "paused", paused)
	}
	return g, err
}
