package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// An event is one line of the history. Its text is made only when it is printed.
type event struct {
	at       time.Duration // since the run began
	life     int           // 0: the world
	what     string
	consumer uint32
	id       ident.ID
	detail   string
	routine  bool // of no interest to those who look at one job
}

func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12.6fs ", e.at.Seconds())
	if e.life > 0 {
		fmt.Fprintf(&b, "broker %-2d ", e.life)
	} else {
		b.WriteString("world     ")
	}
	b.WriteString(e.what)
	if e.consumer > 0 {
		fmt.Fprintf(&b, " consumer %d", e.consumer)
	}
	if !e.id.IsZero() {
		b.WriteString(" " + e.id.String())
	}
	if e.detail != "" {
		b.WriteString(" " + e.detail)
	}
	return b.String()
}

// kept is how many events a history holds, tail how many a failure prints.
const (
	kept = 1 << 12
	tail = 60
)

// A history is the last events of a run, with a digest of all of them.
type history struct {
	start time.Time

	mu     sync.Mutex
	events []event // a ring
	next   int
	closed bool // something is wrong: later events do not matter
	digest uint64
}

func (h *history) add(e event) {
	e.at = time.Since(h.start)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if len(h.events) < kept {
		h.events = append(h.events, e)
	} else {
		h.events[h.next%kept] = e
	}
	h.next++
	c := draw(h.digest, uint64(e.at), uint64(e.life), word(e.what), uint64(e.consumer))
	h.digest = c.next()
}

// end adds the last event.
func (h *history) end(e event) {
	h.add(e)
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
}

// last returns the end of the history; with a job only what concerns it.
func (h *history) last(n int, about ident.ID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for i := h.next - 1; i >= 0 && i >= h.next-len(h.events) && len(lines) < n; i-- {
		e := h.events[i%kept]
		if about.IsZero() || e.id == about || e.id.IsZero() && e.consumer == 0 && !e.routine {
			lines = append(lines, e.String())
		}
	}
	var b strings.Builder
	for i := len(lines) - 1; i >= 0; i-- {
		b.WriteString("  " + lines[i] + "\n")
	}
	return b.String()
}
