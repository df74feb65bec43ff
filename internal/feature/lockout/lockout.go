package lockout

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Window is how long failures count, and how long a limit holds.
	Window = time.Minute
	// most bounds the addresses in memory, about 100 bytes each.
	most = 10_000
	// mostLines bounds the lines of the log in a minute.
	mostLines = 20
)

// An entry is what is known of one address.
type entry struct {
	began    time.Time // of the window
	failures int
	limited  time.Time // until when; zero: it is not
}

// A Lockout is safe for concurrent use. A nil one limits nothing.
type Lockout struct {
	after int // failures
	log   *slog.Logger
	now   func() time.Time

	until atomic.Int64 // Unix ns until when any address is limited: requests look here first
	mu    sync.Mutex   // guards what is below
	of    map[netip.Prefix]*entry
	turn  time.Time // when the lines of the log began to be counted
	lines int

	failed, refused prometheus.Counter
}

// New returns a limiter of addresses after that many failures in a minute, nil for 0: there is none.
func New(after int, log *slog.Logger) *Lockout {
	if after <= 0 {
		return nil
	}
	return &Lockout{after: after, log: log, now: time.Now, of: map[netip.Prefix]*entry{},
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_failed_authentications_total",
			Help: "Requests with a wrong token, password or signature."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "penstock_lockout_refusals_total",
			Help: "Requests refused because their address had sent too many wrong tokens."}),
	}
}

// Collectors are its metrics.
func (l *Lockout) Collectors() []prometheus.Collector {
	if l == nil {
		return nil
	}
	return []prometheus.Collector{l.failed, l.refused}
}

// network is what counts as one address.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the zero prefix for an address that is none: those share one count
	return p
}

// Limited returns how long an address is still limited, 0 if it is not, and counts the refusal that follows.
func (l *Lockout) Limited(a netip.Addr) time.Duration {
	if l == nil {
		return 0
	}
	now := l.now()
	if now.UnixNano() >= l.until.Load() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limited(network(a), now)
}

// limited is Limited with mu held.
func (l *Lockout) limited(of netip.Prefix, now time.Time) time.Duration {
	if e := l.of[of]; e != nil && now.Before(e.limited) {
		l.refused.Inc()
		return e.limited.Sub(now)
	}
	return 0
}

// Failed notes a wrong token, and returns how long the address was limited already: 0 means that the request is
// answered as what it is.
func (l *Lockout) Failed(a netip.Addr) time.Duration {
	if l == nil {
		return 0
	}
	l.failed.Inc()
	now, of := l.now(), network(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.limited(of, now); wait > 0 {
		return wait
	}
	e := l.of[of]
	if e == nil {
		l.makeRoom(now)
		e = new(entry)
		l.of[of] = e
	}
	if now.Sub(e.began) >= Window {
		*e = entry{began: now}
	}
	if e.failures++; e.failures >= l.after {
		*e = entry{began: now, limited: now.Add(Window)}
		l.until.Store(max(l.until.Load(), e.limited.UnixNano()))
		l.tell(of, now)
	}
	return 0
}

// looked is how many addresses makeRoom looks at: a flood of addresses must not make each of them dear.
const looked = 16

// makeRoom forgets an address, where there are too many: of a few, one that is not limited, else any. mu is held.
func (l *Lockout) makeRoom(now time.Time) {
	if len(l.of) < most {
		return
	}
	var last netip.Prefix
	n := 0
	for of, e := range l.of { // in no order
		if last = of; !now.Before(e.limited) {
			break
		}
		if n++; n == looked {
			break
		}
	}
	delete(l.of, last)
}

// tell writes a line of the log, of each address once in a minute and of few addresses. mu is held.
func (l *Lockout) tell(of netip.Prefix, now time.Time) {
	if now.Sub(l.turn) >= Window {
		l.turn, l.lines = now, 0
	}
	if l.lines++; l.lines > mostLines || l.log == nil {
		return
	}
	l.log.Warn("an address has sent too many wrong tokens and is limited for a minute", "address", of.String(), "failures",
		l.after)
}
