package share

import (
	"sync/atomic"
	"time"
)

const (
	// young is the age below which a hold is not ended under pressure: its rate says nothing yet.
	young = time.Second
	// pressEvery bounds how often holds are compared: under an attack most takes are refused.
	pressEvery = 10 * time.Millisecond
)

// A Hold is what one request, connection or exchange holds of a bound. It may be ended under
// pressure: while it rests, or when it moves slower than others.
type Hold struct {
	b       *Bound
	key     Key
	end     func()
	began   time.Time
	n       int64        // held; under mu of the bound
	over    bool         // was ended; under mu of the bound
	moved   atomic.Int64 // bytes or other steps, since began
	resting atomic.Int64 // Unix ns since when it rests; 0: it works
}

// Hold begins a hold of a key that holds nothing yet. end is called once at most, from another
// goroutine, without locks: it makes the owner give up soon, and call Close.
func (b *Bound) Hold(k Key, end func()) *Hold {
	h := &Hold{b: b, key: k, end: end, began: time.Now()}
	b.mu.Lock()
	b.holds[h] = struct{}{}
	b.mu.Unlock()
	return h
}

// Take counts n more, unless that is more than the share of the key. It then ends the slowest hold of
// a key that has more.
func (h *Hold) Take(n int64) bool {
	b := h.b
	b.mu.Lock()
	ok := b.take(h.key, n)
	var victim *Hold
	if ok {
		h.n += n
	} else {
		victim = b.press(h, n)
	}
	b.mu.Unlock()
	if ok {
		return true
	}
	b.refused.Add(1)
	if victim != nil {
		b.ended.Add(1)
		victim.end()
	}
	return false
}

// Give gives a part back.
func (h *Hold) Give(n int64) {
	h.b.mu.Lock()
	h.n -= n
	h.b.mu.Unlock()
	h.b.Give(h.key, n)
}

// Close gives everything back. A closed hold must not be used.
func (h *Hold) Close() {
	h.b.mu.Lock()
	delete(h.b.holds, h)
	n := h.n
	h.n = 0
	h.b.mu.Unlock()
	if n != 0 {
		h.b.Give(h.key, n)
	}
}

// Keep ends the hold and leaves what it holds counted, for the caller to give back under its key.
func (h *Hold) Keep() (n int64) {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	delete(h.b.holds, h)
	n, h.n = h.n, 0
	return n
}

// Moved tells that n bytes came or went.
func (h *Hold) Moved(n int) { h.moved.Add(int64(n)) }

// Rest tells that the hold waits for its user, as a connection does between requests.
func (h *Hold) Rest() { h.resting.Store(time.Now().UnixNano()) }

// Work tells that it does not rest any longer. It returns false if the hold was ended.
func (h *Hold) Work() bool {
	h.resting.Store(0)
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	return !h.over
}

// press chooses the hold to end so that by can take n: of the keys that hold at least as much as
// the key of by would, the one that rests longest, or else the slowest. It needs mu.
func (b *Bound) press(by *Hold, n int64) *Hold {
	now := time.Now()
	if now.Sub(b.pressed) < pressEvery {
		return nil
	}
	b.pressed = now
	least := n
	if a := b.accounts[by.key]; a != nil {
		least += a.main + a.reserved
	}
	var worst *Hold
	for h := range b.holds {
		if h == by || h.over || h.end == nil || h.n == 0 || now.Sub(h.began) < young {
			continue
		}
		if a := b.accounts[h.key]; h.key != by.key && a.main+a.reserved < least {
			continue
		}
		if worst == nil || h.worse(worst, now) {
			worst = h
		}
	}
	if worst != nil {
		worst.over = true
	}
	return worst
}

// worse reports whether h should be ended before o.
func (h *Hold) worse(o *Hold, now time.Time) bool {
	mine, others := h.resting.Load(), o.resting.Load()
	switch {
	case mine != 0 && others != 0:
		return mine < others
	case mine != 0 || others != 0:
		return mine != 0
	}
	return float64(h.moved.Load())/float64(now.Sub(h.began)) < float64(o.moved.Load())/float64(now.Sub(o.began))
}
