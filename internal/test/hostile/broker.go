package hostile

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Broker is a running broker with one state for all channels.
type Broker struct {
	URL string
	// Clock is how much the clock of the broker is off, in Date and Deadline.
	Clock time.Duration
	// Strange: answers have members and headers that no client knows.
	Strange bool

	mu         sync.Mutex
	faults     []*Fault
	tokens     map[string]string // by path of the resource
	types      map[string]string // of consumers
	messages   map[string]*message
	jobs       []*Job
	requests   []Request
	violations []string
	open, peak int
	changed    chan struct{} // closed when something changes
	down       chan struct{} // closed at the end
	numbers    int
}

// A Request is one request that came.
type Request struct {
	At    time.Time
	Door  string
	Limit int    // of a claim
	ID    string // of a publish
	Body  string
	Moves []Move // of a report
}

// A Move is one entry of a report, and what became of it.
type Move struct {
	ID, Lease, NextState string
	IncrementalTimeout   int64
	Timeout, Delay       int64
	Failed               bool
	Reason, Detail       string

	MessageID string `json:"-"`
	Status    int    `json:"-"` // 0: the request was not taken
	Code      string `json:"-"`
}

// A Job is a job of the one queue.
type Job struct {
	ID, MessageID, Task, Payload string
	State                        string // QUEUED, INFLIGHT, DELIVERED or DEAD
	Attempts, LeasesLost         int
	GivenBack                    int
	due, until                   time.Time
	lease                        string
}

type message struct{ body, content string }

// Start runs a broker until the test ends.
func Start(t testing.TB, faults ...Fault) *Broker {
	t.Helper()
	b := &Broker{tokens: map[string]string{}, types: map[string]string{}, messages: map[string]*message{},
		changed: make(chan struct{}), down: make(chan struct{})}
	for i := range faults {
		b.faults = append(b.faults, &faults[i])
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.URL = "http://" + l.Addr().String()
	s := &http.Server{Handler: b, ConnState: b.count}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { close(b.down); _ = s.Close() })
	return b
}

// count follows how many connections are open.
func (b *Broker) count(_ net.Conn, s http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch s {
	case http.StateNew:
		b.open++
		b.peak = max(b.peak, b.open)
	case http.StateClosed, http.StateHijacked:
		b.open--
	}
}

// Peak is the most connections that were open together.
func (b *Broker) Peak() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// Add puts a job into the queue, as if a producer had published it.
func (b *Broker) Add(messageID, task, payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(messageID, task, payload)
}

func (b *Broker) add(messageID, task, payload string) {
	b.numbers++
	b.jobs = append(b.jobs, &Job{ID: fmt.Sprintf("06gvk862do%010d", b.numbers), MessageID: messageID, Task: task,
		Payload: payload, State: "QUEUED"})
	b.wake()
}

// wake lets those look again who wait for a change. b.mu is held.
func (b *Broker) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Changed is closed at the next change.
func (b *Broker) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// Jobs are the jobs as they are now.
func (b *Broker) Jobs() (all []Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(time.Now())
	for _, j := range b.jobs {
		all = append(all, *j)
	}
	return all
}

// Requests are those that came to a door, in their order.
func (b *Broker) Requests(door string) (all []Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r.Door == door || door == "" {
			r.Moves = slices.Clone(r.Moves) // what becomes of them is noted later
			all = append(all, r)
		}
	}
	return all
}

// Moves are the entries of reports that were taken, in their order; with a state only those.
func (b *Broker) Moves(state string) (all []Move) {
	for _, r := range b.Requests("jobs") {
		for _, m := range r.Moves {
			if m.Status != 0 && (state == "" || m.NextState == state) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Violations are what clients have sent that no client may send.
func (b *Broker) Violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.violations...)
}

// violation notes one. b.mu is held.
func (b *Broker) violation(format string, args ...any) {
	b.violations = append(b.violations, fmt.Sprintf(format, args...))
}

// end gives a job that is leased to somebody else, who ends it: the lease of its worker is lost.
func (b *Broker) end(messageID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		if j.MessageID == messageID {
			j.State, j.lease = "DELIVERED", "another.1"
		}
	}
	b.wake()
}

// expire ends leases. b.mu is held.
func (b *Broker) expire(now time.Time) {
	for _, j := range b.jobs {
		if j.State == "INFLIGHT" && now.After(j.until) {
			j.State, j.lease = "QUEUED", ""
			j.LeasesLost++
			b.wake()
		}
	}
}

// doorOf is the name of the door that a request goes to.
func doorOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	switch {
	case r.Method == http.MethodPost && last == "broadcast":
		return "publish"
	case r.Method == http.MethodPost && (last == "claim" || last == "jobs" || last == "batch" || last == "request"):
		return last
	case r.Method == http.MethodGet && last == "responses":
		return last
	case (r.Method == http.MethodPut || r.Method == http.MethodGet) && len(parts)%2 == 0:
		return "manage"
	}
	return "other"
}
