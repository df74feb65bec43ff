package bench

import (
	"context"
	"maps"
	"sync"
	"time"
)

// samplePeriod is the resolution of the curves.
const samplePeriod = time.Second

// A Sample is one point of the curves, for the time since the previous sample.
type Sample struct {
	At         float64 // seconds since the start of the load
	Acked      float64 // messages per second
	Delivered  float64 // first deliveries per second
	Backlog    int64   // deliveries owed at this moment
	Errors     int64   // so far
	P50, P99   float64 // ack latency in ms
	DeliverP99 float64
	Warm       bool // part of the measurement
}

// A Live has the numbers of a progress line.
type Live struct {
	Sample
	Left     time.Duration // of the publishing; 0 when unknown
	Draining bool
}

// A sampler follows a window and turns it into a Result.
type sampler struct {
	w         *window
	processes []Process
	watch     func(Live)

	mu         sync.Mutex // guards the fields below, which Run and published write
	started    time.Time
	samples    []Sample
	last       marks // of the previous sample
	from, to   *marks
	meter      *CPUMeter
	cpu        map[string]float64
	switches   map[string]float64
	memory     map[string]Memory
	drain      Drain
	isDraining bool
}

// marks are the values of the counters at one time.
type marks struct {
	at        int64 // ns since the base
	acked     int64
	delivered int64
	issued    uint64
}

func newSampler(w *window, processes []Process, watch func(Live)) *sampler {
	return &sampler{w: w, processes: processes, watch: watch, started: time.Now(), memory: map[string]Memory{}}
}

func (s *sampler) marks() marks {
	acked, _, _ := s.w.ledger.Counts()
	return marks{at: s.w.now(), acked: acked, delivered: s.w.ledger.Delivered(), issued: s.w.schedule.Issued()}
}

// Run samples until ctx ends.
func (s *sampler) Run(ctx context.Context) {
	warm := time.NewTimer(s.w.config.Warmup)
	defer warm.Stop()
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.sample()
			return
		case <-warm.C:
			s.begin()
		case <-tick.C:
			s.sample()
		}
	}
}

// begin records the end of the warm-up.
func (s *sampler) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		return
	}
	m := s.marks()
	s.from, s.meter = &m, NewCPUMeter(s.processes)
}

// published records the end of the publishing.
func (s *sampler) published() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil { // the run was shorter than the warm-up
		s.from, s.meter = &marks{}, NewCPUMeter(s.processes)
	}
	m := s.marks()
	s.to = &m
	s.cpu, s.switches = s.meter.Seconds(), s.meter.Switches()
	s.meter = NewCPUMeter(s.processes)
	s.w.measureTo.Store(m.at)
	s.isDraining = true
}

// drained records the deliveries after the publishing.
func (s *sampler) drained(arrived int64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain = Drain{Deliveries: arrived, Seconds: took.Seconds(), CPUSeconds: s.meter.Seconds()}
}

func (s *sampler) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.marks()
	seconds := float64(m.at-s.last.at) / 1e9
	if seconds <= 0.05 {
		return
	}
	ack, deliver := s.w.ack.Interval(), s.w.delivery.Interval()
	s.w.mu.Lock()
	var errs int64
	for _, n := range s.w.errors {
		errs += n
	}
	s.w.mu.Unlock()
	p := Sample{
		At: float64(m.at) / 1e9, Acked: float64(m.acked-s.last.acked) / seconds, Delivered: float64(
			m.delivered-s.last.delivered) / seconds,
		Backlog: max(s.w.ledger.Owed(), 0), Errors: errs,
		P50: float64(ack.ValueAtQuantile(50)) / 1000, P99: float64(ack.ValueAtQuantile(99)) / 1000,
		DeliverP99: float64(deliver.ValueAtQuantile(99)) / 1000,
		// Whole intervals between warm-up and end only.
		Warm: s.from != nil && !s.isDraining && s.last.at >= s.from.at,
	}
	s.last = m
	s.samples = append(s.samples, p)
	for _, p := range s.processes {
		if mb, ok := p.ResidentMB(); ok && s.from != nil && !s.isDraining {
			s.memory[p.Name] = s.memory[p.Name].with(mb)
		}
	}
	if s.watch != nil {
		live := Live{Sample: p, Draining: s.isDraining}
		c := s.w.config
		if c.Messages == 0 {
			live.Left = max(0, c.Warmup+c.Duration-time.Duration(m.at))
		} else if p.Acked > 0 {
			live.Left = time.Duration(float64(c.Messages-min(m.issued, c.Messages)) / p.Acked * 1e9)
		}
		s.watch(live)
	}
}

// result reconciles and sums up. Call it when Run has returned and all consumers are gone.
func (s *sampler) result(ask Ask) (*Result, error) {
	w := s.w
	s.mu.Lock()
	defer s.mu.Unlock()
	issued := w.schedule.Issued()
	r := &Result{
		Started: s.started.UTC(), Seconds: float64(s.to.at-s.from.at) / 1e9, CPUSeconds: s.cpu, Switches: s.switches,
		Series: s.samples, Errors: maps.Clone(w.errors), ErrorSamples: w.sample, PayloadBytes: w.payloads.Size(),
		Messages: s.to.acked - s.from.acked, BacklogAtEnd: max(0,
			s.to.acked*int64(w.config.consumersPerChannel())-s.to.delivered),
	}
	if r.Seconds > 0 {
		r.AckedRate = float64(r.Messages) / r.Seconds
		r.DeliveredRate = float64(s.to.delivered-s.from.delivered) / r.Seconds
	}
	if r.Messages > 0 {
		r.CPUMicros = total(s.cpu) * 1e6 / float64(r.Messages)
	}
	if open, ok := w.schedule.(*openLoop); ok {
		r.Unsent = int64(open.limit - issued)
	}
	var err error
	if r.Ack, err = Summary(w.ack.Total()); err != nil {
		return nil, err
	}
	if r.Service, err = Summary(w.service.Total()); err != nil {
		return nil, err
	}
	if r.Delivery, err = Summary(w.delivery.Total()); err != nil {
		return nil, err
	}
	if r.Transit = r.Delivery; w.config.Rate > 0 {
		if r.Transit, err = Summary(w.transit.Total()); err != nil {
			return nil, err
		}
	}
	for level, rec := range w.byLevel {
		l := LevelLatency{Priority: w.mix.Priority(level)}
		if l.Delivery, err = Summary(rec.Total()); err != nil {
			return nil, err
		}
		r.Levels = append(r.Levels, l)
	}
	r.Memory, r.Drain = s.memory, s.drain
	r.Ledger = w.ledger.Reconcile(issued, ask)
	r.Ledger.Receipts = w.receipts.Load()
	w.promises.tell(r.Ledger)
	return r, nil
}
