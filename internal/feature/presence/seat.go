package presence

import (
	"sync"
	"time"
)

// A Kind is what a contact was.
type Kind uint8

// The kinds of contacts. Their numbers are places in a view, which brokers tell each other.
const (
	Claim Kind = iota
	List
	Move
	Renewal
	kinds
)

const (
	// Living is the time for which a worker that is not heard of is shown: three of the longest waits
	// of a claim.
	Living = time.Minute
	// mostWorkers bounds the workers of a consumer that a broker remembers. A further one takes the
	// place of the one that was heard of longest ago.
	mostWorkers = 256
)

// A seat has the contacts of one consumer that this broker saw.
type seat struct {
	mu      sync.Mutex
	at      [kinds]int64        // Unix ms of the last contact of each kind; 0: none
	waiting int                 // claims that wait now
	workers map[string]*present // by the header
	fresh   bool                // something is not written
	written int64               // Unix ms of the last write; 0: none
}

// A present is a worker that this broker heard of.
type present struct {
	Worker
	seen    int64 // Unix ms
	waiting int   // its claims that wait now
	address string
	told    bool // the header has its tasks; else they are those of its last claim
}

// contact notes a contact, of the worker that the header names if it can be read.
func (s *seat) contact(now int64, kind Kind, header []byte, address func() string) *present {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[kind], s.fresh = max(s.at[kind], now), true
	if len(header) == 0 {
		return nil
	}
	p := s.workers[string(header)]
	if p == nil {
		w, ok := Parse(string(header))
		if !ok {
			return nil
		}
		p = s.enter(string(header), w)
	}
	p.seen, p.address = max(p.seen, now), address()
	return p
}

// enter gives a worker a place, with mu held.
func (s *seat) enter(header string, w Worker) *present {
	if s.workers == nil {
		s.workers = map[string]*present{}
	}
	if len(s.workers) >= mostWorkers {
		oldest := ""
		for name, p := range s.workers {
			if o := s.workers[oldest]; p.waiting == 0 && (o == nil || p.seen < o.seen) {
				oldest = name
			}
		}
		if oldest == "" { // all of them wait: this one is not remembered
			return &present{Worker: w, told: w.Tasks != nil}
		}
		delete(s.workers, oldest)
	}
	p := &present{Worker: w, told: w.Tasks != nil}
	s.workers[header] = p
	return p
}

// takes notes the tasks of a worker.
func (s *seat) takes(p *present, tasks []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.told {
		p.Tasks = tasks
	}
}

// wait notes that a claim begins to wait, by one, or ends to, by minus one.
func (s *seat) wait(now int64, p *present, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += by
	s.at[Claim], s.fresh = max(s.at[Claim], now), true
	if p != nil {
		p.waiting += by
		p.seen = max(p.seen, now)
	}
}

// view is what this broker knows at a time. It forgets the workers that are gone.
func (s *seat) view(now int64) view {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting > 0 {
		s.at[Claim] = max(s.at[Claim], now)
	}
	v := view{At: s.at}
	for header, p := range s.workers {
		if p.waiting > 0 {
			p.seen = max(p.seen, now)
		}
		if now-p.seen > Living.Milliseconds() {
			delete(s.workers, header)
			continue
		}
		v.Workers = append(v.Workers, Seen{Worker: p.Worker, AtMs: p.seen, Address: p.address})
	}
	return v
}

// due reports how long the last write is ago if there is something to write: a contact, or a claim
// that waits and was not written for a while.
func (s *seat) due(now int64) (ago int64, urgent, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ago = now - s.written
	return ago, s.fresh, s.fresh && ago >= writeEvery.Milliseconds() || s.waiting > 0 && ago >= beatEvery.Milliseconds()
}

// begin notes the begin of a write, and reports whether it is the first one.
func (s *seat) begin(now int64) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = s.written == 0
	s.written, s.fresh = now, false
	return first
}

// again notes that a write failed.
func (s *seat) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = true
}
