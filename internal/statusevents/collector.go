package statusevents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/apitype"
	"github.com/penstock-broker/penstock/internal/catalogue"
	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
	"github.com/penstock-broker/penstock/internal/ident"
	"github.com/penstock-broker/penstock/internal/policy"
)

// A Store is the part of durable.Store used here.
type Store interface {
	NextStatusProducer(ctx context.Context, after uint32) (uint32, error)
	StatusEvents(ctx context.Context, producerNo uint32, limit int) ([]durable.StatusEvent, error)
	BatchStatus(ctx context.Context, b durable.StatusBatch, events []durable.StatusEvent) (bool, error)
	StatusBatches(ctx context.Context, after ident.ID, limit int) ([]durable.StatusBatch, error)
	FinishStatus(ctx context.Context, id ident.ID) error
	Senders(ctx context.Context, channelNo uint32, ids []ident.ID) ([]durable.Message, error)
}

// Options assemble a Collector.
type Options struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Owns      func(no uint32) bool // whether this broker looks after that producer
	IDs       func() ident.ID      // a new ID
	// Publish stores a message that the broker makes. Its error is that of the store's Insert.
	Publish func(ctx context.Context, m *durable.Message) error
	// Post posts a batch to the reply URL of a producer; nil: batches go to the channel only.
	Post    func(ctx context.Context, p *durable.Producer, id string, body []byte) error
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

const (
	// Pause is the time between two rounds. BatchEvents and PerRound bound what one producer gets in
	// a round: 5000 events a second.
	Pause       = time.Second
	BatchEvents = 500
	PerRound    = 10
	// idle is the pause while no producer wants events: then only what is left over is sent.
	idle = 30 * time.Second
	// sendFor bounds the way of one batch, and atOnce the batches under way.
	sendFor = 10 * time.Second
	atOnce  = 8
	// leftovers is the number of batches of earlier rounds that are read at once.
	leftovers = 16
)

// A Collector makes batches of the events of the producers that its broker owns.
type Collector struct {
	o       Options
	events  prometheus.Counter
	batches *prometheus.CounterVec // by the way they take
	pause   time.Duration

	mu     sync.Mutex
	delays map[uint32]*delay // producers whose reply URL takes nothing
}

// New returns a collector. Nothing runs before Run.
func New(o Options) *Collector {
	c := &Collector{o: o, pause: Pause, delays: map[uint32]*delay{},
		events:  prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_status_events_total", Help: "Events about messages that this broker put into batches for their producers."}),
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_status_batches_total", Help: "Batches of events that this broker sent, by the way they took: channel or reply."}, []string{"way"}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(c.events, c.batches)
	}
	return c
}

// Run works until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	guard.Loop(ctx, "status events", func(ctx context.Context) {
		failing := false
		last := time.Time{}
		for {
			timer := time.NewTimer(c.pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if len(c.o.Catalogue.StatusEvents()) == 0 && time.Since(last) < idle {
				continue
			}
			last = time.Now()
			err := c.round(ctx)
			if err != nil && ctx.Err() == nil && !failing {
				c.o.Log.Warn("status events are late; the broker tries again", "error", err)
			}
			failing = err != nil
		}
	})
}

// round sends what earlier rounds left over, and then new batches.
func (c *Collector) round(ctx context.Context) error {
	busy := map[uint32]bool{} // producers with a batch on its way, which get no other one
	for after := (ident.ID{}); ; {
		left, err := c.o.Store.StatusBatches(ctx, after, leftovers)
		if err != nil {
			return err
		}
		send := c.parallel()
		for i := range left {
			b := &left[i]
			after = b.ID
			if c.o.Owns(b.ProducerNo) {
				busy[b.ProducerNo] = true
				send.Go(func() error { return guard.Do("status batch", func() error { return c.send(ctx, b) }) })
			}
		}
		if err := send.Wait(); err != nil {
			return err
		}
		if len(left) < leftovers {
			break
		}
	}
	collect := c.parallel()
	for no := uint32(0); ; {
		next, err := c.o.Store.NextStatusProducer(ctx, no)
		if err != nil || next == 0 {
			return errors.Join(collect.Wait(), err)
		}
		no = next
		if c.o.Owns(no) && !busy[no] {
			collect.Go(func() error { return guard.Do("status events", func() error { return c.collect(ctx, next) }) })
		}
	}
}

// parallel returns a group that lets few producers wait for a slow one.
func (c *Collector) parallel() *errgroup.Group {
	g := new(errgroup.Group)
	g.SetLimit(atOnce)
	return g
}

// collect makes batches of the events of one producer and sends them.
func (c *Collector) collect(ctx context.Context, producerNo uint32) error {
	for range PerRound {
		events, err := c.o.Store.StatusEvents(ctx, producerNo, BatchEvents)
		if err != nil || len(events) == 0 {
			return err
		}
		batch := durable.StatusBatch{ID: c.o.IDs(), ProducerNo: producerNo}
		p := c.o.Catalogue.ProducerByNo(producerNo)
		if p == nil {
			return nil // the copy will have it
		}
		if !p.Deleted { // a deleted one wants nothing
			if batch.Body, err = c.body(ctx, p.ID, events); err != nil {
				return err
			}
		}
		won, err := c.o.Store.BatchStatus(ctx, batch, events)
		if err != nil || !won { // another broker has them
			return err
		}
		failpoint.At(failpoint.AfterStatusBatch)
		if batch.Body != nil {
			c.events.Add(float64(len(events)))
			if err := c.send(ctx, &batch); err != nil || c.waits(producerNo) {
				return err
			}
		}
		if len(events) < BatchEvents {
			return nil
		}
	}
	return nil
}

// send brings a batch to the reply URL of its producer, else to the channel, and removes it. A
// broker that stops finishes it. The batch of a deleted producer is dropped. A reply URL that does not take a batch gets it again later, which
// is no error; after patience the channel gets it.
func (c *Collector) send(ctx context.Context, b *durable.StatusBatch) error {
	p := c.o.Catalogue.ProducerByNo(b.ProducerNo)
	if p != nil && p.Deleted {
		return c.o.Store.FinishStatus(ctx, b.ID)
	}
	if p != nil && c.o.Post != nil && policy.SenderOf(p.Settings).ReplyURL != "" {
		if c.waits(p.No) {
			return nil
		}
		try, cancel := finish(ctx)
		err := c.o.Post(try, p, key(b), b.Body)
		cancel()
		if c.tried(p, err) {
			return nil
		}
		if err == nil {
			c.batches.WithLabelValues("reply").Inc()
			failpoint.At(failpoint.AfterStatusSent)
			return c.o.Store.FinishStatus(context.WithoutCancel(ctx), b.ID)
		}
	}
	return c.publish(ctx, b)
}

// publish publishes a batch on the channel and removes it.
func (c *Collector) publish(ctx context.Context, b *durable.StatusBatch) error {
	ch := c.o.Catalogue.Channel(ident.StatusChannel)
	if ch == nil {
		return errors.New("statusevents: the channel " + ident.StatusChannel + " does not exist")
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	err := c.o.Publish(ctx, &durable.Message{ChannelNo: ch.No, Key: key(b), ContentType: apitype.MediaJSON, Payload: b.Body})
	failpoint.At(failpoint.AfterStatusSent)
	switch {
	case err == nil:
		c.batches.WithLabelValues("channel").Inc()
	case errors.Is(err, durable.ErrDuplicate): // a broker died before it removed the batch
	default:
		return err
	}
	return c.o.Store.FinishStatus(ctx, b.ID)
}

// finish returns the context of a step that a broker which stops still makes.
func finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), sendFor)
}

// key is the message ID of a batch, and its webhook-id.
func key(b *durable.StatusBatch) string { return "status-" + b.ID.String() }

// body is the JSON of a batch.
func (c *Collector) body(ctx context.Context, producerID string, events []durable.StatusEvent) ([]byte, error) {
	names, err := c.names(ctx, events)
	if err != nil {
		return nil, err
	}
	view := apitype.StatusNotice{ProducerID: producerID, Events: make([]apitype.StatusEvent, len(events))}
	for i := range events {
		e := &events[i]
		v := apitype.StatusEvent{MessageID: names[e.ID()], Event: e.Kind().String(), At: apitype.Time{Time: time.UnixMilli(e.AtMs())},
			Attempt: e.Attempt, Status: e.StatusCode}
		if e.Kind() == durable.StatusDead {
			v.ReasonCode = e.Reason.String()
		}
		if v.MessageID == "" { // it is not stored any more
			v.MessageID = e.ID().String()
		}
		if k := c.o.Catalogue.ConsumerByNo(e.ConsumerNo()); k != nil {
			v.ConsumerID, v.JobID = k.ID, e.ID().Job(k.Position).String()
			if ch := c.o.Catalogue.ChannelByNo(k.ChannelNo); ch != nil {
				v.ChannelID = ch.ID
			}
		}
		view.Events[i] = v
	}
	return json.Marshal(view)
}

// names returns the IDs under which the producer knows the messages of events.
func (c *Collector) names(ctx context.Context, events []durable.StatusEvent) (map[ident.ID]string, error) {
	channels := map[uint32][]ident.ID{}
	for i := range events {
		if k := c.o.Catalogue.ConsumerByNo(events[i].ConsumerNo()); k != nil {
			channels[k.ChannelNo] = append(channels[k.ChannelNo], events[i].ID())
		}
	}
	names := map[ident.ID]string{}
	for no, ids := range channels {
		found, err := c.o.Store.Senders(ctx, no, ids)
		if err != nil {
			return nil, err
		}
		for i := range found {
			names[found[i].ID] = found[i].PublicID()
		}
	}
	return names, nil
}
