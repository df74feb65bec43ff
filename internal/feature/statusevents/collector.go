package statusevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/exchange"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
	"github.com/penstock-broker/penstock/internal/tool/guard"
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
	// Ensure returns the channel of replies to a producer with a reply URL, which it makes where there is none.
	Ensure  func(ctx context.Context, p *durable.Producer) (channelNo uint32, err error)
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

const (
	// Pause is the time from the begin of a round to that of the next one. BatchEvents and PerRound bound
	// what one producer gets in a round: 5000 events a second.
	Pause       = time.Second
	BatchEvents = 500
	PerRound    = 10
	// idle is the pause while no producer wants events: then only what is left over is sent.
	idle = 30 * time.Second
	// sendFor bounds the way of one batch.
	sendFor = 10 * time.Second
	// leftovers is the number of batches of earlier rounds that are read at once.
	leftovers = 16
	// atOnce bounds the producers that are worked for at a time.
	atOnce = 16
)

// A Collector makes batches of the events of the producers that its broker owns.
type Collector struct {
	o       Options
	events  prometheus.Counter
	batches *prometheus.CounterVec // by the way they take
}

// New returns a collector. Nothing runs before Run.
func New(o Options) *Collector {
	c := &Collector{o: o,
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_status_events_total",
			Help: "Events about messages that this broker put into batches for their producers."}),
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_status_batches_total",
			Help: "Batches of events that this broker published, by the way they take: channel or reply."}, []string{"way"}),
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(c.events, c.batches)
	}
	return c
}

// Run works until ctx ends, and then until what was begun is published.
func (c *Collector) Run(ctx context.Context) {
	guard.Loop(ctx, "status events", func(ctx context.Context) {
		failing := false
		last := time.Time{}
		tick := time.NewTicker(Pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
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

// round publishes what earlier rounds left over, and then new batches: of each producer one in a turn,
// so that nobody waits for the many batches of another producer.
func (c *Collector) round(ctx context.Context) error {
	held, failure := c.resume(ctx)
	var turn []uint32
	for no := uint32(0); ; {
		next, err := c.o.Store.NextStatusProducer(ctx, no)
		if err != nil {
			return errors.Join(failure, err)
		}
		if next == 0 {
			break
		}
		if no = next; c.o.Owns(no) && !held[no] {
			turn = append(turn, no)
		}
	}
	for range PerRound {
		if len(turn) == 0 {
			break
		}
		var err error
		turn, err = c.each(ctx, turn, c.batch)
		failure = errors.Join(failure, err)
	}
	return failure
}

// resume publishes the batches that earlier rounds left over. It returns the producers of those that are
// still left: they get no other batch before these.
func (c *Collector) resume(ctx context.Context) (held map[uint32]bool, failure error) {
	held = map[uint32]bool{}
	for after := (ident.ID{}); ; {
		left, err := c.o.Store.StatusBatches(ctx, after, leftovers)
		if err != nil {
			return held, errors.Join(failure, err)
		}
		of := map[uint32][]durable.StatusBatch{}
		var producers []uint32
		for _, b := range left {
			after = b.ID
			if !c.o.Owns(b.ProducerNo) || held[b.ProducerNo] {
				continue
			}
			if of[b.ProducerNo] == nil {
				producers = append(producers, b.ProducerNo)
			}
			of[b.ProducerNo] = append(of[b.ProducerNo], b)
		}
		still, err := c.each(ctx, producers, func(ctx context.Context, no uint32) (bool, error) {
			for i := range of[no] {
				if err := c.send(ctx, &of[no][i]); err != nil {
					return true, err
				}
			}
			return false, nil
		})
		if failure == nil {
			failure = err
		}
		for _, no := range still {
			held[no] = true
		}
		if len(left) < leftovers {
			return held, failure
		}
	}
}

// each works for producers, a few at a time, unless the broker stops or looks after them no longer. It
// returns those for which there is more to do, and the first failure, which does not end the work for others.
func (c *Collector) each(ctx context.Context, producers []uint32,
	work func(ctx context.Context, producerNo uint32) (more bool, err error)) (left []uint32, err error) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	more := make([]bool, len(producers))
	for i, no := range producers {
		g.Go(func() error {
			return guard.Do("status events", func() (err error) {
				if ctx.Err() == nil && c.o.Owns(no) {
					more[i], err = work(ctx, no)
				}
				return err
			})
		})
	}
	err = g.Wait()
	for i, no := range producers {
		if more[i] {
			left = append(left, no)
		}
	}
	return left, err
}

// batch makes a batch of the events of one producer and publishes it. It reports whether there may be
// more to publish now.
func (c *Collector) batch(ctx context.Context, producerNo uint32) (more bool, err error) {
	events, err := c.o.Store.StatusEvents(ctx, producerNo, BatchEvents)
	if err != nil || len(events) == 0 {
		return false, err
	}
	batch := durable.StatusBatch{ID: c.o.IDs(), ProducerNo: producerNo}
	p, err := c.producer(ctx, producerNo)
	if err != nil {
		return false, err
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
		if err := c.send(ctx, &batch); err != nil {
			return false, err
		}
	}
	return len(events) == BatchEvents, nil
}

// producer returns a producer by its number. A copy of the catalogue that is behind may lack it.
func (c *Collector) producer(ctx context.Context, no uint32) (*durable.Producer, error) {
	if p := c.o.Catalogue.ProducerByNo(no); p != nil {
		return p, nil
	}
	if err := c.o.Catalogue.Refresh(ctx); err != nil {
		return nil, err
	}
	if p := c.o.Catalogue.ProducerByNo(no); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("statusevents: there is no producer with the number %d", no)
}

// send publishes a batch, with the replies to its producer where that has a reply URL, else on the channel
// of all, and removes it. A broker that stops finishes it. The batch of a deleted producer is dropped.
func (c *Collector) send(ctx context.Context, b *durable.StatusBatch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendFor)
	defer cancel()
	p, err := c.producer(ctx, b.ProducerNo)
	if err != nil {
		return err
	}
	if p.Deleted {
		return c.o.Store.FinishStatus(ctx, b.ID)
	}
	m, way, err := c.message(ctx, p, b)
	if err != nil {
		return err
	}
	err = c.o.Publish(ctx, m)
	failpoint.At(failpoint.AfterStatusSent)
	switch {
	case err == nil:
		c.batches.WithLabelValues(way).Inc()
	case errors.Is(err, durable.ErrDuplicate): // a broker died before it removed the batch
	default:
		return err
	}
	return c.o.Store.FinishStatus(ctx, b.ID)
}

// message is the message of a batch, and the way that it takes. Its ID is that of the batch, so a
// repetition is refused.
func (c *Collector) message(ctx context.Context, p *durable.Producer, b *durable.StatusBatch) (m *durable.Message,
	way string, err error) {
	m = &durable.Message{Key: key(b), ContentType: apitype.MediaJSON, Payload: b.Body}
	if policy.SenderOf(p.Settings).ReplyURL != "" {
		m.Headers = []byte(exchange.RepliedChannel + ":" + ident.StatusChannel + "\n") // unlike a reply
		m.ChannelNo, err = c.o.Ensure(ctx, p)
		return m, "reply", err
	}
	ch := c.o.Catalogue.Channel(ident.StatusChannel)
	if ch == nil {
		return nil, "", errors.New("statusevents: the channel " + ident.StatusChannel + " does not exist")
	}
	m.ChannelNo = ch.No
	return m, "channel", nil
}

// key is the message ID of a batch, and so its webhook-id.
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
