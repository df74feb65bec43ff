package statusevents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
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
	// sendFor bounds the way of one batch.
	sendFor = 10 * time.Second
	// leftovers is the number of batches of earlier rounds that are read at once.
	leftovers = 16
)

// A Collector makes batches of the events of the producers that its broker owns.
type Collector struct {
	o       Options
	events  prometheus.Counter
	batches *prometheus.CounterVec // by the way they take
	pause   time.Duration
	places  *share.Bound
	sends   sync.WaitGroup
	left    atomic.Int64 // producers whose batches of earlier rounds are in memory

	mu     sync.Mutex
	delays map[uint32]*delay // producers whose reply URL takes nothing
	busy   map[uint32]bool   // producers that are worked for in the background
	err    error             // the first one of that since it was told
}

// New returns a collector. Nothing runs before Run.
func New(o Options) *Collector {
	c := &Collector{o: o, pause: Pause, places: newPlaces(), delays: map[uint32]*delay{}, busy: map[uint32]bool{},
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_status_events_total",
			Help: "Events about messages that this broker put into batches for their producers."}),
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_status_batches_total",
			Help: "Batches of events that this broker sent, by the way they took: channel or reply."}, []string{"way"}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(c.events, c.batches)
	}
	return c
}

// Run works until ctx ends, and then until nothing is under way.
func (c *Collector) Run(ctx context.Context) {
	defer c.sends.Wait()
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
			err := errors.Join(c.round(ctx), c.failure())
			if err != nil && ctx.Err() == nil && !failing {
				c.o.Log.Warn("status events are late; the broker tries again", "error", err)
			}
			failing = err != nil || failing && len(c.underWay()) > 0
		}
	})
}

// round begins to send what earlier rounds left over, and then new batches. It waits for no
// producer: those that are busy are left to a later round.
func (c *Collector) round(ctx context.Context) error {
	begun := c.underWay() // before the first read, which so has no batch that is being sent
	for after := (ident.ID{}); ; {
		left, err := c.o.Store.StatusBatches(ctx, after, leftovers)
		if err != nil {
			return err
		}
		of := map[uint32][]durable.StatusBatch{}
		for _, b := range left {
			if after = b.ID; c.o.Owns(b.ProducerNo) && !begun[b.ProducerNo] {
				of[b.ProducerNo] = append(of[b.ProducerNo], b)
			}
		}
		for _, b := range left { // the producer of the oldest one first
			if batches := of[b.ProducerNo]; batches != nil && !begun[b.ProducerNo] {
				begun[b.ProducerNo] = true // it gets no other batch before these
				c.resume(ctx, b.ProducerNo, batches)
			}
		}
		if len(left) < leftovers {
			break
		}
	}
	for no := uint32(0); ; {
		next, err := c.o.Store.NextStatusProducer(ctx, no)
		if err != nil || next == 0 {
			return err
		}
		no = next
		if c.o.Owns(no) && !begun[no] {
			c.begin(no, func() error { return c.collect(ctx, next) })
		}
	}
}

// resume sends batches of a producer that earlier rounds left over, in their order.
func (c *Collector) resume(ctx context.Context, producerNo uint32, batches []durable.StatusBatch) {
	if c.waits(producerNo) || c.left.Load() >= mostLeft {
		return
	}
	c.left.Add(1)
	c.begin(producerNo, func() error {
		defer c.left.Add(-1)
		for i := range batches {
			more, err := c.inPlace(ctx, producerNo, func(at *place) (bool, error) { return true, c.send(ctx, at, &batches[i]) })
			if err != nil || !more || c.waits(producerNo) {
				return err
			}
		}
		return nil
	})
}

// collect makes batches of the events of one producer and sends them, each in a place of its own.
func (c *Collector) collect(ctx context.Context, producerNo uint32) error {
	for range PerRound {
		more, err := c.inPlace(ctx, producerNo, func(at *place) (bool, error) { return c.batch(ctx, at, producerNo) })
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// batch makes a batch of the events of one producer and sends it. It reports whether there may be
// more to send now.
func (c *Collector) batch(ctx context.Context, at *place, producerNo uint32) (more bool, err error) {
	events, err := c.o.Store.StatusEvents(ctx, producerNo, BatchEvents)
	if err != nil || len(events) == 0 {
		return false, err
	}
	batch := durable.StatusBatch{ID: c.o.IDs(), ProducerNo: producerNo}
	p := c.o.Catalogue.ProducerByNo(producerNo)
	if p == nil {
		return false, nil // the copy will have it
	}
	if !p.Deleted { // a deleted one wants nothing
		if batch.Body, err = c.body(ctx, p.ID, events); err != nil {
			return false, err
		}
	}
	won, err := c.o.Store.BatchStatus(ctx, batch, events)
	if err != nil || !won { // another broker has them
		return false, err
	}
	failpoint.At(failpoint.AfterStatusBatch)
	if batch.Body != nil {
		c.events.Add(float64(len(events)))
		if err := c.send(ctx, at, &batch); err != nil || c.waits(producerNo) {
			return false, err
		}
	}
	return len(events) == BatchEvents, nil
}

// send brings a batch to the reply URL of its producer, else to the channel, and removes it. A
// broker that stops finishes it. The batch of a deleted producer is dropped. A reply URL that does
// not take a batch gets it again later, which is no error; after patience the channel gets it.
func (c *Collector) send(ctx context.Context, at *place, b *durable.StatusBatch) error {
	p := c.o.Catalogue.ProducerByNo(b.ProducerNo)
	if p != nil && p.Deleted {
		return c.o.Store.FinishStatus(ctx, b.ID)
	}
	if p != nil && c.o.Post != nil && policy.SenderOf(p.Settings).ReplyURL != "" {
		if c.waits(p.No) {
			return nil
		}
		err := c.post(ctx, at, p, b)
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
	err := c.o.Publish(ctx, &durable.Message{ChannelNo: ch.No, Key: key(b), ContentType: apitype.MediaJSON,
		Payload: b.Body})
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
		v := apitype.StatusEvent{MessageID: names[e.ID()], Event: e.Kind().String(),
			At:      apitype.Time{Time: time.UnixMilli(e.AtMs())},
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
