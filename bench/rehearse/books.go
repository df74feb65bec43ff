package rehearse

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// A fate is what a producer knows about a message.
type fate uint8

const (
	unknown  fate = iota // posted, and no answer says what became of it
	accepted             // the broker has promised it
	refused              // the broker has not stored it
)

// A phase is one of the three parts of a rehearsal.
type phase uint8

const (
	calm phase = iota
	outage
	after
	phases
)

// The consumers of a rehearsal.
const (
	push = iota
	pull
	consumers
)

// A record is one message. Times are since the beginning of the rehearsal; 0: not yet.
type record struct {
	posted, told time.Duration // the first post, and the answer that says its fate
	arrived      [consumers]time.Duration
	fate         fate
	phase        phase
}

// Books have what became of each message.
type books struct {
	prefix string // of message IDs
	began  time.Time

	mu       sync.Mutex
	records  []record
	phase    phase
	refusals map[string]int // by what the broker said
	repeated [consumers]int
	foreign  int           // deliveries of what was never posted
	late     time.Duration // a delivery later than this shows an outage
	// When the last post that was not accepted was made, and the last delivery came that was late.
	unaccepted time.Duration
	overdue    [consumers]time.Duration
	longest    [consumers]time.Duration // between two deliveries, or the last one and now
	last       [consumers]time.Duration
}

// lateAnyway is what a delivery may take at least.
const lateAnyway = 2 * time.Second

func newBooks(prefix string) *books {
	return &books{prefix: prefix, began: time.Now(), refusals: map[string]int{}, late: lateAnyway}
}

func (b *books) now() time.Duration { return time.Since(b.began) }

// id is the message ID of a record.
func (b *books) id(n int) string { return b.prefix + strconv.Itoa(n) }

// index is the record of a message ID, -1 if it is none of ours.
func (b *books) index(id string) int {
	rest, ours := strings.CutPrefix(id, b.prefix)
	n, err := strconv.Atoi(rest)
	if !ours || err != nil || n < 0 || n >= len(b.records) {
		return -1
	}
	return n
}

// begin opens the next record.
func (b *books) begin() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = append(b.records, record{posted: b.now(), phase: b.phase})
	return len(b.records) - 1
}

// enter begins a phase. What calm has shown is the measure of what is late.
func (b *books) enter(p phase) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p == outage {
		for _, r := range b.records {
			for _, at := range r.arrived {
				b.late = max(b.late, 3*(at-r.posted))
			}
		}
		b.overdue = [consumers]time.Duration{}
	}
	b.phase = p
	return b.now()
}

// tell records an answer. Of a message without one (unknown) it is known that it had none in time.
func (b *books) tell(n int, f fate, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &b.records[n]
	if f != accepted {
		b.unaccepted = max(b.unaccepted, r.posted)
	}
	if r.fate != unknown || f == unknown {
		return
	}
	r.fate, r.told = f, b.now()
	if f == refused {
		b.refusals[reason]++
	}
}

// arrive records a delivery.
func (b *books) arrive(consumer int, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.index(id)
	if n < 0 {
		b.foreign++
		return
	}
	now, r := b.now(), &b.records[n]
	b.longest[consumer] = max(b.longest[consumer], now-b.last[consumer])
	b.last[consumer] = now
	if r.arrived[consumer] != 0 {
		b.repeated[consumer]++
		return
	}
	r.arrived[consumer] = now
	if now-r.posted > b.late {
		b.overdue[consumer] = now
	}
}

// A state is how things are at a moment.
type state struct {
	accepted, open    int           // open: accepted, and a consumer does not have it
	asked, unanswered int           // posts whose fate is not known, and those that have waited for long
	waits             time.Duration // of the oldest message that is open
	trouble           time.Duration // the last moment at which something was refused or late
}

// state looks at all that was posted, and at the deliveries to the consumers that are used.
func (b *books) state(used []int) (s state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	s.trouble = b.unaccepted
	for _, k := range used {
		s.trouble = max(s.trouble, b.overdue[k])
	}
	for _, r := range b.records {
		switch r.fate {
		case unknown:
			s.asked++
			if now-r.posted > b.late {
				s.unanswered++
				s.trouble = now
			}
			continue
		case refused:
			continue
		}
		s.accepted++
		for _, k := range used {
			if r.arrived[k] == 0 {
				s.open++
				s.waits = max(s.waits, now-r.posted)
			}
		}
	}
	if s.waits > b.late {
		s.trouble = now
	}
	return s
}
