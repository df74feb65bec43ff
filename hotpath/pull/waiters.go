package pull

import (
	"container/list"
	"sync"
)

// A waiters holds the long polls of this broker that wait for work, by consumer. A wake-up goes to
// the longest waiting poll. A poll that leaves work behind wakes the next one. So fifty waiting
// workers cost one claim per arrival, not fifty.
type waiters struct {
	mu   sync.Mutex
	byNo map[uint32]*list.List // of chan struct{}, capacity 1
}

// A ticket is a place in the queue of a consumer's long polls.
type ticket struct {
	w       *waiters
	no      uint32
	wake    chan struct{}
	element *list.Element
}

// join adds a ticket at the end of the queue.
func (w *waiters) join(consumer uint32) *ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byNo == nil {
		w.byNo = map[uint32]*list.List{}
	}
	l := w.byNo[consumer]
	if l == nil {
		l = list.New()
		w.byNo[consumer] = l
	}
	t := &ticket{w: w, no: consumer, wake: make(chan struct{}, 1)}
	t.element = l.PushBack(t)
	return t
}

// leave removes the ticket from the queue. An unused wake-up goes to the next ticket.
func (t *ticket) leave() {
	t.w.mu.Lock()
	l := t.w.byNo[t.no]
	l.Remove(t.element)
	if l.Len() == 0 {
		delete(t.w.byNo, t.no)
	}
	t.w.mu.Unlock()
	select {
	case <-t.wake:
		t.w.Wake(t.no)
	default:
	}
}

// first reports whether the ticket is at the head of the queue. The head also claims periodically
// without a wake-up.
func (t *ticket) first() bool {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	l := t.w.byNo[t.no]
	return l != nil && l.Front() == t.element
}

// Wake reports that a consumer may have due jobs. It never blocks.
func (w *waiters) Wake(consumer uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.byNo[consumer]
	if l == nil {
		return
	}
	for e := l.Front(); e != nil; e = e.Next() {
		select {
		case e.Value.(*ticket).wake <- struct{}{}:
			return
		default: // already woken and not yet run: try the next one
		}
	}
}
