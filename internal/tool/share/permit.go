package share

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

const (
	// young is Options.Young by default: the rate of a younger permit says nothing yet.
	young = time.Second
	// pressAgain is the interval at which a permit that waits looks for another one to end.
	pressAgain = 100 * time.Millisecond
	// pressEvery bounds how often permits are compared: under an attack most takes are refused.
	pressEvery = 10 * time.Millisecond
	// pressPause is that interval for each permit of a bound that is Rash. A comparison takes some 20 ns
	// for each.
	pressPause = 200 * time.Nanosecond
)

// A Permit is what one request, connection or answer holds of a bound. It may be ended under
// pressure: while it rests, or when it moves slower than others.
type Permit struct {
	b       *Bound
	key     Key
	end     func()
	began   time.Time
	n       int64        // held; under mu of the bound
	moved   atomic.Int64 // bytes or other steps, since began
	resting atomic.Int64 // Unix ns since when it rests; working or over
}

// The values of Permit.resting that are no times. A permit that is over stays so.
const (
	working = 0
	over    = -1
)

// Permit begins a permit of a key that holds nothing yet. end is called once at most, from another
// goroutine, without locks: it makes the owner give up soon, and call Close.
func (b *Bound) Permit(k Key, end func()) *Permit {
	h := &Permit{b: b, key: k, end: end, began: time.Now()}
	b.mu.Lock()
	b.permits[h] = struct{}{}
	b.mu.Unlock()
	return h
}

// Take counts n more, unless that is more than the share of the key. It then ends the slowest permit of
// a key that has more.
func (h *Permit) Take(n int64) bool {
	b := h.b
	b.mu.Lock()
	ok := b.take(h.key, n)
	var victim *Permit
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

// Add counts n more, whether it fits or not: it was accepted already.
func (h *Permit) Add(n int64) {
	h.b.mu.Lock()
	h.n += n
	h.b.mu.Unlock()
	h.b.Add(h.key, n)
}

// Wait is Bound.Wait for a permit. While it waits, it ends the slowest permit of a key that has more, again
// and again.
func (h *Permit) Wait(ctx context.Context, n int64) error {
	w := &waiter{key: h.key, n: n, permit: h}
	if h.b.enter(w) {
		return nil
	}
	again := time.NewTicker(pressAgain)
	defer again.Stop()
	for {
		h.press(n)
		select {
		case <-w.ready:
			return nil
		case <-ctx.Done():
			return h.b.leave(ctx, w)
		case <-again.C:
		}
	}
}

// press ends a permit so that h can take n.
func (h *Permit) press(n int64) {
	h.b.mu.Lock()
	victim := h.b.press(h, n)
	h.b.mu.Unlock()
	if victim != nil {
		h.b.ended.Add(1)
		victim.end()
	}
}

// Await is Wait with an end: it takes at once, or waits for its turn at most for patience.
func (h *Permit) Await(ctx context.Context, n int64, patience time.Duration) bool {
	if h.Take(n) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return h.Wait(ctx, n) == nil
}

// Give gives a part back.
func (h *Permit) Give(n int64) {
	h.b.mu.Lock()
	h.n -= n
	h.b.mu.Unlock()
	h.b.Give(h.key, n)
}

// Close gives everything back. A closed permit takes nothing any more; to close it again does no harm.
func (h *Permit) Close() {
	h.b.mu.Lock()
	delete(h.b.permits, h)
	n := h.n
	h.n = 0
	h.b.mu.Unlock()
	if n != 0 {
		h.b.Give(h.key, n)
	}
}

// Keep ends the permit and leaves what it holds counted, for the caller to give back under its key.
func (h *Permit) Keep() (n int64) {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	delete(h.b.permits, h)
	n, h.n = h.n, 0
	return n
}

// Moved tells that n bytes came or went.
func (h *Permit) Moved(n int) { h.moved.Add(int64(n)) }

// Rest tells that the permit waits for its user, as a connection does between requests. It costs no
// lock.
func (h *Permit) Rest() { h.RestSince(time.Now()) }

// RestSince is Rest as of a time.
func (h *Permit) RestSince(t time.Time) { h.resting.CompareAndSwap(working, t.UnixNano()) }

// Work tells that it does not rest any longer. It returns false if the permit was ended. It costs no
// lock.
func (h *Permit) Work() bool {
	since := h.resting.Load()
	return since == working || since != over && h.resting.CompareAndSwap(since, working)
}

// press chooses the permit to end so that by can take n: of the keys that hold at least as much as
// the key of by would, the one that rests longest, or else the slowest. It needs mu.
func (b *Bound) press(by *Permit, n int64) *Permit {
	now := time.Now()
	pause := pressEvery
	if b.o.Rash {
		pause = time.Duration(len(b.permits)) * pressPause
	}
	if now.Sub(b.pressed) < pause {
		return nil
	}
	b.pressed = now
	least := n
	if a := b.accounts[by.key]; a != nil {
		least += a.main + a.reserved
	}
	var worst candidate
	for h := range b.permits {
		c := candidate{h, h.resting.Load()}
		if h == by || h.end == nil || h.n == 0 || c.since == over || !b.slow(c, now) {
			continue
		}
		if a := b.accounts[h.key]; h.key == by.key && b.o.Others || h.key != by.key && a.main+a.reserved < least {
			continue
		}
		if worst.Permit == nil || c.worse(worst, now) {
			worst = c
		}
	}
	if worst.Permit == nil || !worst.resting.CompareAndSwap(worst.since, over) { // it has begun to rest or to work
		return nil
	}
	return worst.Permit
}

// slow reports whether a permit may be ended under pressure.
func (b *Bound) slow(c candidate, now time.Time) bool {
	age := now.Sub(c.began)
	switch {
	case age < cmp.Or(b.o.Young, young) && !b.o.Rash:
		return false
	case c.since == working:
		return !b.o.Resting && (b.o.Fast == 0 || float64(c.moved.Load()) < b.o.Fast*age.Seconds())
	}
	return true
}

// A candidate is a permit as it was when it was looked at.
type candidate struct {
	*Permit
	since int64
}

// worse reports whether c should be ended before o.
func (c candidate) worse(o candidate, now time.Time) bool {
	switch {
	case c.since != working && o.since != working:
		return c.since < o.since
	case c.since != working || o.since != working:
		return c.since != working
	}
	return float64(c.moved.Load())/float64(now.Sub(c.began)) < float64(o.moved.Load())/float64(now.Sub(o.began))
}
