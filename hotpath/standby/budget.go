package standby

import (
	"container/heap"
	"sync"
	"time"
)

// budgets tell submissions whose budget is over. One timer serves all of them, because almost every
// submission has its answer long before its budget is over.
type budgets struct {
	mu      sync.Mutex
	waiting byEnd
	timer   *time.Timer
	armed   time.Time // when the timer ends; zero: it does not run
}

// A budget is how long one submission waits for the store.
type budget struct {
	until time.Time
	over  chan<- bool // receives false once the budget is over; it has room for it
	index int         // in budgets.waiting, from begin on; -1: it is not there any more
}

// begin starts the time of a budget. An end that is past is told as well.
func (b *budgets) begin(one *budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	heap.Push(&b.waiting, one)
	b.arm()
}

// end ends a budget that is not needed any more. The timer goes on, for the budgets after it.
func (b *budgets) end(one *budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.index >= 0 {
		heap.Remove(&b.waiting, one.index)
	}
}

// arm lets the timer end with the first budget, unless it ends before.
func (b *budgets) arm() {
	if len(b.waiting) == 0 {
		return
	}
	first := b.waiting[0].until
	if !b.armed.IsZero() && !first.Before(b.armed) {
		return
	}
	b.armed = first
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Until(first), b.tell)
	} else {
		b.timer.Reset(time.Until(first))
	}
}

// tell tells the submissions whose budget is over.
func (b *budgets) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for now := time.Now(); len(b.waiting) > 0 && !b.waiting[0].until.After(now); {
		heap.Pop(&b.waiting).(*budget).over <- false
	}
	b.armed = time.Time{}
	b.arm()
}

// byEnd is a heap of budgets, the first to end at its top.
type byEnd []*budget

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].until.Before(h[j].until) }

func (h byEnd) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byEnd) Push(x any) {
	one := x.(*budget)
	one.index = len(*h)
	*h = append(*h, one)
}

func (h *byEnd) Pop() any {
	last := len(*h) - 1
	one := (*h)[last]
	one.index = -1
	(*h)[last] = nil
	*h = (*h)[:last]
	return one
}
