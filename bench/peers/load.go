package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-broker/penstock/bench"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A load is one closed-loop measurement of a peer, with the same window, counters and ledger as
// `bench run`.
type load struct {
	o          *options
	publishers int
	server     server

	id       uint64 // of this run
	base     time.Time
	payloads *bench.Payloads
	ledger   *bench.Ledger
	issued   atomic.Uint64

	measureFrom, measureTo atomic.Int64 // ns since base

	ack, delivery *bench.Recorder

	mu      sync.Mutex
	errors  map[string]int64
	samples map[string]string
}

// marks are the values of the counters at one time.
type marks struct{ at, acked, delivered int64 }

const (
	errPause     = 20 * time.Millisecond  // of a publisher after an error
	answerWithin = 10 * time.Second       // bound of the wait for the last answers
	quietTime    = 500 * time.Millisecond // copies may follow the last message
	ackedWithin  = 10 * time.Second       // for the server to take the last acknowledgements
	openAtOnce   = 16                     // connections being opened
)

func newLoad(o *options, publishers int, srv server) (*load, error) {
	l := &load{
		o: o, publishers: publishers, server: srv, id: rand.Uint64(), base: time.Now(),
		ack: bench.NewRecorder(), delivery: bench.NewRecorder(), errors: map[string]int64{}, samples: map[string]string{},
	}
	const never = 1<<63 - 1
	l.measureFrom.Store(never)
	l.measureTo.Store(never)
	mix, err := bench.ParseMix("0")
	if err != nil {
		return nil, err
	}
	if l.payloads, err = bench.NewPayloads(o.payload); err != nil {
		return nil, err
	}
	l.ledger = bench.NewLedger(bench.LedgerOptions{
		Run: l.id, Channels: 1, Mix: mix, LateNs: int64(time.Second), Consumers: []bench.Subscription{{Name: "consumer"}},
	})
	return l, nil
}

// now is the time in ns since the base, by the monotonic clock.
func (l *load) now() int64 { return int64(time.Since(l.base)) }

// unix turns ns since the base into Unix ns.
func (l *load) unix(ns int64) int64 { return l.base.UnixNano() + ns }

func (l *load) measured(at int64) bool {
	return at >= l.measureFrom.Load() && at < l.measureTo.Load()
}

func (l *load) marks() marks {
	acked, _, _ := l.ledger.Counts()
	return marks{at: l.now(), acked: acked, delivered: l.ledger.Delivered()}
}

// run loads the server once. unacked is the server's count at the end, -1 if it could not be read. A
// result with an error is a measurement that proves nothing.
func (l *load) run(ctx context.Context) (r *bench.Result, unacked int64, err error) {
	var turn atomic.Int64
	c, err := l.server.Consume(func(body []byte) { l.received(int(turn.Add(1)&0xffff), body) })
	if err != nil {
		return nil, -1, fmt.Errorf("start the consumer: %w", err)
	}
	consuming := true
	stopConsumer := func() error {
		if !consuming {
			return nil
		}
		consuming = false
		return c.Close()
	}
	defer func() { err = errors.Join(err, stopConsumer()) }()
	publishers, err := l.open(ctx)
	defer func() {
		for _, p := range publishers {
			_ = p.Close() // everything it sent was answered, or is counted as uncertain
		}
	}()
	if err != nil {
		return nil, -1, err
	}

	r = &bench.Result{Started: time.Now().UTC(), PayloadBytes: l.payloads.Size()}
	from, to, cpu := l.publish(ctx, publishers)
	r.CPUSeconds = cpu
	l.drain(ctx)
	if err := stopConsumer(); err != nil {
		return nil, -1, fmt.Errorf("stop the consumer: %w", err)
	}
	if ctx.Err() != nil {
		return nil, -1, context.Cause(ctx)
	}
	unacked, err = l.unacked(ctx)
	return r, unacked, errors.Join(err, l.result(r, from, to, unacked))
}

// open connects all publishers.
func (l *load) open(ctx context.Context) ([]publisher, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	slots := make([]publisher, l.publishers)
	var g errgroup.Group
	g.SetLimit(openAtOnce)
	for i := range slots {
		g.Go(func() (err error) {
			slots[i], err = l.server.Publisher(ctx)
			return err
		})
	}
	err := g.Wait()
	var opened []publisher
	for _, p := range slots {
		if p != nil {
			opened = append(opened, p)
		}
	}
	if err != nil {
		return opened, fmt.Errorf("connect the publishers: %w", err)
	}
	return opened, nil
}

// publish runs the warm-up and the measured time and returns the counters at both ends of the
// latter.
func (l *load) publish(ctx context.Context, publishers []publisher) (from, to marks, cpu map[string]float64) {
	length := l.o.warmup + l.o.duration
	ctx, cancel := context.WithTimeout(ctx, length+answerWithin)
	defer cancel()
	begin := l.now()
	l.measureFrom.Store(begin + int64(l.o.warmup))
	end := l.base.Add(time.Duration(begin) + length)
	var running sync.WaitGroup
	for i, p := range publishers {
		running.Go(func() { l.publishOne(ctx, i, p, end) })
	}
	select {
	case <-ctx.Done():
	case <-time.After(l.o.warmup):
	}
	from = l.marks()
	meter := bench.NewCPUMeter(l.server.Processes())
	running.Wait()
	to = l.marks()
	cpu = meter.Seconds()
	l.measureTo.Store(to.at)
	return from, to, cpu
}

func (l *load) publishOne(ctx context.Context, no int, p publisher, end time.Time) {
	var body []byte
	for time.Now().Before(end) && ctx.Err() == nil {
		seq := l.issued.Add(1) - 1
		sent := l.now()
		body = l.payloads.Append(body[:0], bench.Identity{Run: l.id, Seq: seq, Intended: l.unix(sent), Sent: l.unix(sent)})
		l.ledger.Plan(seq, sum(body))
		err := p.Publish(ctx, body)
		now := l.now()
		if err != nil {
			l.ledger.Uncertain(seq)
			l.failed(err)
			time.Sleep(errPause)
			continue
		}
		l.ledger.Acked(seq, now, ident.ID{})
		if l.measured(sent) {
			l.ack.Record(no, now-sent)
		}
	}
}

// received notes a delivery.
func (l *load) received(worker int, body []byte) {
	id, err := bench.ParseIdentity(body)
	d := bench.Delivery{ID: id, Known: err == nil, Sum: sum(body), Label: "unknown", NowNs: l.unix(l.now()), StartNs: l.base.UnixNano()}
	if l.ledger.Received(d) && l.measured(id.Intended-d.StartNs) {
		l.delivery.Record(worker, d.NowNs-id.Intended)
	}
}

// failed counts an error. Connections that break have texts of their own each:
// only the first is kept.
func (l *load) failed(err error) {
	const kind = "publish"
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errors[kind]++; l.samples[kind] == "" {
		l.samples[kind] = err.Error()
	}
}

// drain waits until everything that is owed has arrived, or until the drain time ends.
func (l *load) drain(ctx context.Context) {
	end := time.Now().Add(l.o.drain)
	last, since := l.ledger.Delivered(), time.Now()
	for time.Now().Before(end) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		if d := l.ledger.Delivered(); d != last {
			last, since = d, time.Now()
		}
		if l.ledger.Owed() <= 0 && time.Since(since) > quietTime {
			return
		}
	}
}

// unacked asks the server for its remaining count, until the count equals the owed deliveries or
// ackedWithin has passed, since the server may process the last acknowledgements late.
func (l *load) unacked(ctx context.Context) (unacked int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, ackedWithin)
	defer cancel()
	owed := max(l.ledger.Owed(), 0)
	for {
		if unacked, err = l.server.Left(ctx); err == nil && unacked == owed {
			return unacked, nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return -1, fmt.Errorf("read the remaining count: %w", err)
			}
			return unacked, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// result fills r. The error is the reason why r proves nothing.
func (l *load) result(r *bench.Result, from, to marks, unacked int64) (err error) {
	r.Seconds = float64(to.at-from.at) / 1e9
	r.Messages = to.acked - from.acked
	r.BacklogAtEnd = max(0, to.acked-to.delivered)
	if r.Seconds > 0 {
		r.AckedRate = float64(r.Messages) / r.Seconds
		r.DeliveredRate = float64(to.delivered-from.delivered) / r.Seconds
	}
	if r.Messages > 0 {
		for name, s := range r.CPUSeconds {
			if !bench.Foreign(name) {
				r.CPUMicros += s * 1e6 / float64(r.Messages)
			}
		}
	}
	if r.Ack, err = bench.Summary(l.ack.Total()); err != nil {
		return err
	}
	if r.Delivery, err = bench.Summary(l.delivery.Total()); err != nil {
		return err
	}
	r.Service, r.Transit = r.Ack, r.Delivery // a closed loop intends to send when it sends
	r.Errors, r.ErrorSamples = l.errors, l.samples
	r.Ledger = l.ledger.Reconcile(l.issued.Load(), standing(unacked))
	if r.Messages == 0 {
		return fmt.Errorf("nothing was acknowledged: %v", l.samples)
	}
	if rest := unacked - r.Ledger.Pending; unacked >= 0 && rest > r.Ledger.Uncertain {
		return fmt.Errorf("the server has %d messages more than the undelivered ones", rest)
	}
	return nil
}

// standing returns the standing of messages that did not arrive. These servers cannot look up a
// single message, so their count decides: as many messages as the server still has are pending, all
// others are lost.
func standing(unacked int64) bench.Ask {
	return func(int, uint64, ident.ID) bench.Standing {
		if unacked--; unacked >= 0 {
			return bench.StandingPending
		}
		return bench.StandingGone
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum that the ledger compares.
func sum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }
