package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-broker/penstock/bench/rawhttp"
)

// A window is one measurement: it creates a subject, loads it, waits for the
// deliveries and reconciles.
type window struct {
	config   *Config
	control  *Control
	addr     string // host:port of the data plane
	run      uint64
	base     time.Time // zero of all times in ns
	subject  *subject
	mix      Mix
	payloads *Payloads
	ledger   *Ledger
	promises *promises
	audit    *audit // nil: none
	schedule Schedule
	single   []*rawhttp.Template // by channel and priority level
	batch    []*rawhttp.Template // by channel

	measureFrom int64        // ns since base; messages intended before are warm-up
	measureTo   atomic.Int64 // set when the measurement has ended

	receipts atomic.Int64 // messages that were answered with 202

	ack, service, delivery, transit *Recorder   // as in Result
	byLevel                         []*Recorder // deliveries by priority level; nil if there is only one

	mu     sync.Mutex
	errors map[string]int64
	sample map[string]string // the first answer of each kind
}

// maxErrorKinds bounds the recorded kinds of answers without success.
const maxErrorKinds = 50

// now is the time in ns since the base, by the monotonic clock.
func (w *window) now() int64 { return int64(time.Since(w.base)) }

// unix turns ns since the base into Unix ns.
func (w *window) unix(ns int64) int64 { return w.base.UnixNano() + ns }

func (w *window) measured(intended int64) bool {
	return intended >= w.measureFrom && intended < w.measureTo.Load()
}

// answered notes an acknowledged message: its ID if the answer has one, and its latency.
func (w *window) answered(worker int, seq uint64, status int, location []byte, sent, now int64) {
	intended := w.schedule.Intended(seq, sent)
	w.ledger.Acked(seq, now, messageID(location))
	if status == http.StatusAccepted {
		w.receipts.Add(1)
	}
	if w.measured(intended) {
		w.ack.Record(worker, now-intended)
		w.service.Record(worker, now-sent)
	}
}

// failed counts an answer without success.
func (w *window) failed(kind string, detail []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.errors[kind]; !known && len(w.errors) >= maxErrorKinds {
		kind = "other"
	}
	if w.errors[kind]++; w.sample[kind] == "" {
		w.sample[kind] = clip(detail, 200)
	}
}

// received notes a delivery that a consumer accepts.
func (w *window) received(consumer, worker int, a arrival) {
	if consumer >= len(w.subject.consumers) {
		return // of another run: the sink's address was used before
	}
	now := w.now()
	id, err := identityOf(a.identity, a.body)
	d := Delivery{Consumer: consumer, ID: id, Known: err == nil, Sum: sum(a.body), NowNs: w.unix(now),
		StartNs: w.base.UnixNano()}
	if err != nil {
		d.Label = a.details().messageID
	}
	if w.audit != nil {
		w.audit.compare(w.subject.consumers[consumer].id, d, a)
	}
	first := w.ledger.Received(d)
	if first {
		w.promises.took(consumer, string(a.key), id.Seq)
	}
	if first && w.measured(id.Intended-d.StartNs) {
		w.delivery.Record(worker, d.NowNs-id.Intended)
		if w.config.Rate > 0 { // a closed loop intends to send when it sends
			w.transit.Record(worker, d.NowNs-id.Sent)
		}
		if w.byLevel != nil {
			w.byLevel[w.mix.Level(id.Seq)].Record(worker, d.NowNs-id.Intended)
		}
	}
}

func newWindow(c *Config, control *Control, addr string) (*window, error) {
	w := &window{
		config: c, control: control, addr: addr, run: rand.Uint64(),
		ack: NewRecorder(), service: NewRecorder(), delivery: NewRecorder(), transit: NewRecorder(),
		errors: map[string]int64{}, sample: map[string]string{},
	}
	w.measureTo.Store(1<<63 - 1)
	var err error
	if w.mix, err = ParseMix(c.Priority); err != nil {
		return nil, err
	}
	if w.mix.Len() > 1 {
		for range w.mix.Len() {
			w.byLevel = append(w.byLevel, NewRecorder())
		}
	}
	if w.payloads, err = c.payloads(); err != nil {
		return nil, err
	}
	w.subject = newSubject(w.run, c)
	o := LedgerOptions{
		Run: w.run, Channels: c.Channels, Stripe: c.Batch, Messages: c.Messages, Mix: w.mix,
		SlackNs: int64(c.Slack), LateNs: int64(c.Late), Consumers: w.subject.subscriptions(),
	}
	if c.MessageIDs {
		o.Key = func(seq uint64) string { return string(appendKey(nil, w.run, seq)) }
	}
	w.ledger = NewLedger(o)
	w.promises = newPromises(c, len(w.subject.consumers))
	var metadata []string
	if w.payloads.Real() {
		metadata = []string{"X-Broker-Metadata-Headers", identityHeader}
	}
	if c.Audit {
		w.audit = &audit{run: w.run, payloads: w.payloads, contentType: c.ContentType}
		if w.payloads.Real() {
			metadata[1] += ", " + nameHeader
		}
	}
	for ch := range c.Channels {
		for level := range w.mix.Len() {
			fields := metadata
			if p := w.mix.Priority(level); p != 0 {
				fields = append([]string{"X-Broker-Message-Priority", fmt.Sprint(p)}, metadata...)
			}
			w.single = append(w.single, w.subject.publishTemplate(ch, "broadcast", addr, c.ContentType, fields...))
		}
		w.batch = append(w.batch, w.subject.publishTemplate(ch, "batch", addr, "application/x-ndjson"))
	}
	return w, nil
}

// Window loads the broker once and returns the measurement. It calls watch with the live numbers.
// processes are those whose CPU time is part of the cost.
func (w *window) Window(ctx context.Context, processes []Process, watch func(Live)) (_ *Result, err error) {
	c := w.config
	behaviour, err := ParseBehaviour(c.Sink)
	if err != nil {
		return nil, err
	}
	w.base = time.Now() // foreign deliveries may arrive before the load starts
	var turn atomic.Int64
	sink, err := StartSink(behaviour, func(consumer int, a arrival) {
		w.received(consumer, int(turn.Add(1)), a)
	}, func(consumer int) { w.promises.asked(consumer, w.unix(w.now())) })
	if err != nil {
		return nil, err
	}
	closeSink := sync.OnceValue(sink.Close)
	defer func() { err = errors.Join(err, closeSink()) }()
	if err := w.subject.create(ctx, w.control, sink.URL); err != nil {
		return nil, err
	}

	consuming, stopConsumers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopConsumers()
	consumers := &errgroup.Group{}
	consumers.Go(func() error { return w.scrape(consuming) })
	if !c.ConsumeAfter {
		w.startPullers(consuming, consumers)
	}
	defer func() {
		stopConsumers()
		err = errors.Join(err, consumers.Wait())
	}()

	s := newSampler(w, processes, watch)
	sampling, stopSampling := context.WithCancel(context.Background())
	defer stopSampling()
	w.start()
	var sampled sync.WaitGroup
	sampled.Go(func() { s.Run(sampling) })
	if err := w.publish(ctx); err != nil {
		return nil, err
	}
	s.published()
	if c.ConsumeAfter {
		w.startPullers(consuming, consumers)
	}
	s.drained(w.drain(ctx))
	stopSampling()
	sampled.Wait()
	stopConsumers()
	if err := consumers.Wait(); err != nil {
		return nil, err
	}
	_ = closeSink() // returned at the end
	return w.conclude(ctx, s)
}

// conclude asks the broker about what is uncertain and returns the result.
func (w *window) conclude(ctx context.Context, s *sampler) (*Result, error) {
	patience := askWithin
	if ctx.Err() != nil { // the user has interrupted the run
		patience = askBriefly
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	r, err := s.result(w.inquiry(asking))
	if err == nil {
		w.balance(asking, r.Ledger)
	}
	if err != nil || w.audit == nil {
		return r, err
	}
	r.Audit, err = w.audit.close(asking, w, r)
	return r, err
}

// start fixes the zero of time and the schedule.
func (w *window) start() {
	c := w.config
	w.base = time.Now()
	w.measureFrom = int64(c.Warmup)
	limit := c.Messages
	if limit == 0 {
		limit = MaxMessages
	}
	total := c.Warmup + c.Duration
	if c.Rate > 0 {
		w.schedule = newOpenLoop(&openLoop{rate: c.Rate, batch: c.Batch, limit: limit, base: w.base, length: total,
			grace: openLoopGrace})
		return
	}
	loop := &closedLoop{batch: c.Batch, limit: limit}
	if c.MaxBacklog > 0 {
		loop.full = func() bool { return w.ledger.Owed() > c.MaxBacklog }
	}
	if c.Messages == 0 {
		loop.end = w.base.Add(total)
	}
	w.schedule = loop
}

// openLoopGrace is how long after the end messages that are overdue are still sent.
const openLoopGrace = 3 * time.Second

// publish runs the producers until the schedule is done or ctx ends.
func (w *window) publish(ctx context.Context) error {
	var producers errgroup.Group
	open, isOpen := w.schedule.(*openLoop)
	if isOpen {
		producers.Go(func() error { return open.Run(ctx) })
	}
	for i := range w.config.Connections {
		conn := rawhttp.New(w.addr, w.config.Timeout)
		if w.config.Batch > 1 {
			p := &batchPublisher{w: w, no: i, conn: conn}
			producers.Go(func() error { return p.Run(ctx) })
		} else {
			p := &publisher{w: w, no: i, conn: conn}
			producers.Go(func() error { return p.Run(ctx) })
		}
	}
	err := producers.Wait()
	if isOpen {
		// Messages that were due and never sent have waited at least until now. To leave them out
		// would be the omission that an open loop avoids.
		now := w.now()
		for seq := open.Issued(); seq < open.Unsent(time.Now()); seq++ {
			if intended := open.Intended(seq, now); w.measured(intended) {
				w.ack.Record(int(seq), now-intended)
			}
		}
	}
	return err
}

func (w *window) startPullers(ctx context.Context, g *errgroup.Group) {
	for i, k := range w.subject.consumers {
		if !k.pull {
			continue
		}
		feed := &pullFeed{}
		for n := range w.config.PullWorkers {
			conn := rawhttp.New(w.addr, w.config.Timeout)
			if w.config.PullBatch > 1 {
				p := &batchPullWorker{w: w, consumer: i, no: n, conn: conn}
				g.Go(func() error { return p.Run(ctx) })
			} else {
				p := &pullWorker{w: w, consumer: i, no: n, feed: feed, conn: conn}
				g.Go(func() error { return p.Run(ctx) })
			}
		}
	}
}

// maxDrains bounds a drain that still makes progress, in multiples of Config.Drain.
const maxDrains = 20

// drain waits until everything that is owed has arrived, or until nothing has arrived for
// Config.Drain. Counters alone cannot show the end, since copies and uncertain messages may follow,
// so drain also waits until nothing has arrived for Config.Quiet. It returns the number of
// deliveries in that time and its length.
func (w *window) drain(ctx context.Context) (arrived int64, took time.Duration) {
	if len(w.subject.consumers) == 0 {
		return 0, 0
	}
	start, before := time.Now(), w.ledger.Delivered()
	end := time.Now().Add(maxDrains * w.config.Drain)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last, since := w.ledger.Delivered(), time.Now()
	for time.Now().Before(end) && ctx.Err() == nil {
		<-tick.C
		if d := w.ledger.Delivered(); d != last {
			last, since = d, time.Now()
		}
		quiet := time.Since(since)
		if w.ledger.Owed() <= 0 && quiet > w.config.Quiet || quiet > w.config.Drain {
			break
		}
	}
	return last - before, since.Sub(start)
}
