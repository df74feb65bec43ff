package history

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/metrics"
)

const (
	// MaxResources is how many consumers, and how many channels, have rows of one broker in one slot.
	MaxResources = 1000
	// maxWaiting bounds the rows that wait for the store: about 15 MB.
	maxWaiting = 50_000
	// writeWithin bounds the writes of one turn, lastWithin those of a broker that stops.
	writeWithin = 5 * time.Second
	lastWithin  = 2 * time.Second
	// A row is given up when its slot has been over for writableFor. The rows of a slot that has been over
	// for mergeAfter are merged.
	writableFor = 30 * time.Minute
	mergeAfter  = time.Hour
	// sweepEvery is the interval of the removals, sweepSlots the most slots of a step that one removes.
	sweepEvery = time.Minute
	sweepSlots = 30
)

// A Store keeps the history: the durable store.
type Store interface {
	KeepHistory(ctx context.Context, rows []durable.HistoryRow) error
	MergeHistory(ctx context.Context, step int, beforeMs int64, limit int, add func(to, from *durable.HistoryRow)) error
	ForgetHistory(ctx context.Context, step int, beforeMs int64, limit int) (slots int, err error)
	KeepMark(ctx context.Context, m durable.HistoryMark) error
	KeepVersion(ctx context.Context, version string, m durable.HistoryMark) error
	ForgetMarks(ctx context.Context, beforeMs int64, keep int) error
}

// Options assemble a Recorder.
type Options struct {
	Store Store
	Book  func() metrics.Snapshot
	// ChannelOf returns the channel of a consumer, 0 for one that was deleted.
	ChannelOf func(consumer uint32) (channel uint32)
	// Oldest returns the age in ms of the oldest waiting job of each consumer that has one, as it was
	// counted lately. nil: it is not known.
	Oldest func() map[uint32]int64
	// Owns reports whether this broker looks after a number: one broker writes the ages of a consumer.
	Owns       func(no uint32) bool
	NowMs      func() int64 // the store's clock
	Version    string
	Name       string // of this broker, for its mark
	Registerer prometheus.Registerer
	Log        *slog.Logger
}

// A Recorder writes what this broker counts.
type Recorder struct {
	o     Options
	tally *tally

	before            metrics.Snapshot // the last one
	beforeK           metrics.ConsumerCounts
	beforeCh          metrics.ChannelCounts
	beforeMs, sweptAt int64
	marks             []mark // that are still to be written
	failing           bool

	rows, lost, omitted prometheus.Counter
}

// A mark is a mark of the start of a broker, or of its version.
type mark struct {
	durable.HistoryMark
	version string // "": it is not of a version
}

// New returns a Recorder. It counts from now on.
func New(o Options) *Recorder {
	r := &Recorder{o: o, tally: newTally(MaxResources, maxWaiting), beforeMs: o.NowMs(), sweptAt: o.NowMs()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_history_" + name, Help: help})
		o.Registerer.MustRegister(c)
		return c
	}
	r.rows = counter("rows_total", "Rows of the history that this broker wrote.")
	r.lost = counter("lost_rows_total",
		"Rows of the history that were given up, because the store took none for too long.")
	r.omitted = counter("omitted_total",
		"Consumers and channels that had no place in a slot of the history, each once in a slot.")
	r.remember(o.Book())
	at := durable.HistoryMark{AtMs: r.beforeMs, No: rand.Uint32(), Kind: durable.MarkStart,
		Text: "The broker " + o.Name + " started, version " + o.Version + "."}
	first := durable.HistoryMark{AtMs: r.beforeMs, No: rand.Uint32(), Kind: durable.MarkVersion,
		Text: "Version " + o.Version + " ran for the first time."}
	r.marks = []mark{{HistoryMark: at}, {HistoryMark: first, version: o.Version}}
	return r
}

func (r *Recorder) remember(s metrics.Snapshot) {
	r.before = s
	r.beforeK, r.beforeCh = s.Sum()
}

// Run writes when a slot of ten seconds is over, until ctx ends, and then once more.
func (r *Recorder) Run(ctx context.Context) {
	r.write(ctx)
	for {
		wait := finest.Milliseconds() - (r.o.NowMs() - begin(r.o.NowMs(), finest.Milliseconds()))
		timer := time.NewTimer(time.Duration(wait) * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWithin)
			defer cancel()
			r.turn(last)
			return
		case <-timer.C:
		}
		r.turn(ctx)
		r.sweep(ctx)
	}
}

// turn counts what happened since the last turn, and writes it.
func (r *Recorder) turn(ctx context.Context) {
	now := r.o.NowMs()
	// The middle of the turn is in the slot that most of it was in, whenever the timer fires.
	at := begin(r.beforeMs+(now-r.beforeMs)/2, finest.Milliseconds())
	omitted, lost := r.tally.add(at, r.count())
	r.beforeMs = now
	r.omitted.Add(float64(omitted))
	r.lost.Add(float64(lost + r.tally.expire(now-writableFor.Milliseconds())))
	r.write(ctx)
}

// count returns what changed since the last snapshot.
func (r *Recorder) count() map[of]*sums {
	s := r.o.Book()
	counted := map[of]*sums{}
	at := func(scope durable.HistoryScope, no uint32) *sums {
		o := of{scope, no}
		if counted[o] == nil {
			counted[o] = &sums{}
		}
		return counted[o]
	}
	for no, now := range s.Channels {
		was := r.before.Channels[no]
		if now.Accepted < was.Accepted { // it was taken for one that is gone
			was = metrics.ChannelCounts{}
		}
		if now.Accepted == was.Accepted && now.Ack == was.Ack {
			continue
		}
		ch := at(durable.HistoryOfChannel, no)
		ch.accepted = diff(now.Accepted, was.Accepted)
		ch.acks = now.Ack.Since(&was.Ack)
	}
	for no, now := range s.Consumers {
		was := r.before.Consumers[no]
		d := consumerDiff(&now, &was)
		if d.activity() == 0 && d.deliveries.Count() == 0 {
			continue
		}
		channel := r.o.ChannelOf(no)
		if channel == 0 { // deleted: what it had counts for the whole
			continue
		}
		if ch := counted[of{durable.HistoryOfChannel, channel}]; ch != nil && d.accepted > 0 {
			d.acks = ch.acks
		}
		*at(durable.HistoryOfConsumer, no) = d
		at(durable.HistoryOfChannel, channel).addJobs(&d)
	}
	k, ch := s.Sum()
	whole := consumerDiff(&k, &r.beforeK)
	whole.accepted, whole.acks = diff(ch.Accepted, r.beforeCh.Accepted), ch.Ack.Since(&r.beforeCh.Ack)
	r.addOldest(at, &whole)
	if whole.activity() > 0 || whole.oldestMs > 0 || whole.deliveries.Count() > 0 || whole.acks.Count() > 0 {
		*at(durable.HistoryOfAll, 0) = whole
	}
	r.remember(s)
	return counted
}

// addJobs adds what became of the jobs of a consumer, but not its messages, which the channel has itself.
func (s *sums) addJobs(d *sums) {
	s.delivered += d.delivered
	s.failed += d.failed
	s.dead += d.dead
	s.deliveries.Add(&d.deliveries)
}

// addOldest adds the ages of the consumers that this broker looks after.
func (r *Recorder) addOldest(at func(durable.HistoryScope, uint32) *sums, whole *sums) {
	if r.o.Oldest == nil {
		return
	}
	for no, age := range r.o.Oldest() {
		channel := r.o.ChannelOf(no)
		if age <= 0 || channel == 0 || !r.o.Owns(no) {
			continue
		}
		for _, s := range []*sums{at(durable.HistoryOfConsumer, no), at(durable.HistoryOfChannel, channel), whole} {
			s.oldestMs = max(s.oldestMs, age)
		}
	}
}

func consumerDiff(now, was *metrics.ConsumerCounts) sums {
	if now.Accepted < was.Accepted || now.Delivered < was.Delivered || now.Failed < was.Failed || now.Dead < was.Dead {
		was = &metrics.ConsumerCounts{} // it was taken for one that is gone
	}
	return sums{accepted: diff(now.Accepted, was.Accepted), delivered: diff(now.Delivered, was.Delivered),
		failed: diff(now.Failed, was.Failed), dead: diff(now.Dead, was.Dead), deliveries: now.Delivery.Since(&was.Delivery)}
}

func diff(now, was uint64) int64 { return int64(now - was) }

// write writes the marks and the rows that wait. What fails waits for the next turn.
func (r *Recorder) write(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	err := r.writeAll(within)
	if err != nil && ctx.Err() == nil && !r.failing {
		r.o.Log.Warn("the history cannot be written; what is counted waits in memory", "error", err)
	}
	r.failing = err != nil
}

func (r *Recorder) writeAll(ctx context.Context) error {
	for len(r.marks) > 0 {
		if err := r.writeMark(ctx, r.marks[0]); err != nil {
			return err
		}
		r.marks = r.marks[1:]
	}
	for keys := range slices.Chunk(r.tally.waits(), durable.MaxHistoryRows) {
		if err := r.o.Store.KeepHistory(ctx, r.tally.of(keys)); err != nil {
			return err
		}
		r.tally.written(keys)
		r.rows.Add(float64(len(keys)))
	}
	return nil
}

func (r *Recorder) writeMark(ctx context.Context, m mark) error {
	if m.version != "" {
		return r.o.Store.KeepVersion(ctx, m.version, m.HistoryMark)
	}
	return r.o.Store.KeepMark(ctx, m.HistoryMark)
}

// sweep removes what is too old, on one broker: more of it than one turn removes waits for the next one.
func (r *Recorder) sweep(ctx context.Context) {
	now := r.o.NowMs()
	if now-r.sweptAt < sweepEvery.Milliseconds() && now >= r.sweptAt || !r.o.Owns(0) {
		return
	}
	r.sweptAt = now
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	for _, step := range Steps {
		if _, err := r.o.Store.ForgetHistory(ctx, step.seconds(), step.oldest(now), sweepSlots); err != nil {
			r.o.Log.Debug("old history was not removed; the next turn goes on", "error", err)
			return
		}
		before := step.Begin(now - mergeAfter.Milliseconds()) // the slot before is over for so long
		if step.Keep <= mergeAfter {
			continue
		}
		if err := r.o.Store.MergeHistory(ctx, step.seconds(), before, sweepSlots, merge); err != nil {
			r.o.Log.Debug("the history of several brokers was not merged; the next turn goes on", "error", err)
			return
		}
	}
	if err := r.o.Store.ForgetMarks(ctx, now-marksKept.Milliseconds(), maxMarks); err != nil {
		r.o.Log.Debug("old marks were not removed; the next turn goes on", "error", err)
	}
}
