package pull

import (
	"container/list"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The first waiting claim of each consumer claims again from time to time, for work that arrived
// without a wake-up. That is rare: every broker tells the others. A claim that finds nothing takes
// some seven commands in Redis, so claimsPerSecond bounds those of all consumers together, while
// none of them waits longer than lookLatest.
const (
	lookEvery       = time.Second
	lookLatest      = 10 * time.Second
	claimsPerSecond = 50
	// longLine is the number of waiting claims behind which a new one does not look before it waits.
	longLine = 16
)

// A waiters holds the long polls of this broker that wait for work, by consumer. A wake-up goes to
// the longest waiting poll. A poll that leaves work behind wakes the next one. So fifty waiting
// workers cost one claim per arrival, not fifty.
type waiters struct {
	places *share.Bound
	mu     sync.Mutex
	byNo   map[uint32]*line
}

// A line is the queue of a consumer's long polls.
type line struct {
	tickets list.List // of *ticket
	looked  time.Time // when one of them claimed
	due     time.Time // when a job is due, as that claim learned; zero: not known
}

// A ticket is a place in a line.
type ticket struct {
	w       *waiters
	no      uint32
	wake    chan struct{} // capacity 1
	lead    chan struct{} // capacity 1: the ticket has become the first
	element *list.Element
	changed <-chan struct{} // what the request was admitted with has changed
	unwatch func()
}

// join adds a ticket at the end of the line. It returns nil if the consumer has its share of those
// that wait.
func (w *waiters) join(consumer uint32, st *catalogue.Standing) *ticket {
	if !w.places.Take(share.Consumer(consumer), 1) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byNo == nil {
		w.byNo = map[uint32]*line{}
	}
	l := w.byNo[consumer]
	if l == nil {
		l = &line{}
		w.byNo[consumer] = l
	}
	t := &ticket{w: w, no: consumer, wake: make(chan struct{}, 1), lead: make(chan struct{}, 1)}
	t.changed, t.unwatch = st.Await()
	t.element = l.tickets.PushBack(t)
	return t
}

// long reports whether so many claims of the consumer wait that a new one is not the next to get a
// job. Jobs that came before it wake those.
func (w *waiters) long(consumer uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.byNo[consumer]
	return l != nil && l.tickets.Len() >= longLine
}

// leave removes the ticket, if there is one, from the line. An unused wake-up goes to the next
// ticket.
func (t *ticket) leave() {
	if t == nil {
		return
	}
	t.unwatch()
	t.w.mu.Lock()
	l := t.w.byNo[t.no]
	led := l.tickets.Front() == t.element
	l.tickets.Remove(t.element)
	switch first := l.tickets.Front(); {
	case first == nil:
		delete(t.w.byNo, t.no)
	case led:
		select {
		case first.Value.(*ticket).lead <- struct{}{}:
		default:
		}
	}
	t.w.mu.Unlock()
	t.w.places.Give(share.Consumer(t.no), 1)
	select {
	case <-t.wake:
		t.w.Wake(t.no)
	default:
	}
}

// looked tells the line what a claim of the ticket, if there is one, learned. Where the claim names tasks
// and found nothing, the job that it was woken for may be one for another worker.
func (t *ticket) looked(nextDue time.Duration, passes bool) {
	if t == nil {
		return
	}
	if passes {
		t.pass()
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	l := t.w.byNo[t.no]
	l.looked, l.due = time.Now(), time.Time{}
	if nextDue > 0 {
		l.due = l.looked.Add(nextDue)
	}
}

// next returns when the ticket claims again without a wake-up: at the end of its wait or, as the
// first of its line, when a job is due or the last claim is long ago.
func (t *ticket) next(end time.Time) time.Time {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	l := t.w.byNo[t.no]
	if l.tickets.Front() != t.element {
		return end
	}
	again := time.Duration(len(t.w.byNo)) * time.Second / claimsPerSecond
	at := l.looked.Add(min(max(again, lookEvery), lookLatest))
	if !l.due.IsZero() && l.due.Before(at) {
		at = l.due
	}
	if end.Before(at) {
		return end
	}
	return at
}

// due reports whether the ticket claims again now.
func (t *ticket) due(end time.Time) bool { return !time.Now().Before(t.next(end)) }

// rest returns the time until the ticket claims again, or its client is looked for.
func (t *ticket) rest(end time.Time) time.Duration { return min(time.Until(t.next(end)), goneCheck) }

// Wake reports that a consumer may have due jobs. It never blocks.
func (w *waiters) Wake(consumer uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.byNo[consumer]
	if l == nil {
		return
	}
	for e := l.tickets.Front(); e != nil; e = e.Next() {
		select {
		case e.Value.(*ticket).wake <- struct{}{}:
			return
		default: // already woken and not yet run: try the next one
		}
	}
}
