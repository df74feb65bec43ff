package share

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the size of a bound and its name.
type Options struct {
	Name    string // in metrics, as in docs/explain/limits*.md
	Most    int64  // bytes or places
	Reserve int64  // beside Most: for management, and for takes of up to Small
	Small   int64  // the largest take of other keys that may use the reserve
	Resting bool   // only permits that rest are ended
	Rash    bool   // permits are ended however young they are, and more often

	// Young is the age below which a permit is not ended under pressure, Fast the rate, steps a second,
	// from which it is not. 0: a second, and no rate.
	Young time.Duration
	Fast  float64
	// Others spares the permits of the key that wants more: its own wait for each other.
	Others bool
}

// A Bound is a number of bytes or places that keys share. Its methods may be called at once.
type Bound struct {
	o     Options
	total atomic.Int64 // held of Most and Reserve together; written under mu

	mu       sync.Mutex
	main     int64 // held of Most
	reserved int64 // held of Reserve
	accounts map[Key]*account
	waiting  Turns[*waiter]
	permits  map[*Permit]struct{}
	pressed  time.Time // when a permit was last ended

	refused, ended atomic.Int64
}

// An account is what one key holds.
type account struct{ main, reserved int64 }

type waiter struct {
	key    Key
	n      int64
	permit *Permit       // that gets n; nil: the key alone
	ready  chan struct{} // closed when n is taken for it
}

// keptAccounts is the number of accounts up to which those of keys that hold nothing are kept:
// they are used again by the next request.
const keptAccounts = 1 << 10

// New returns a bound. It is used by reference.
func New(o Options) *Bound {
	return &Bound{o: o, accounts: map[Key]*account{}, permits: map[*Permit]struct{}{}}
}

// Take counts n under a key, unless that is more than its share.
func (b *Bound) Take(k Key, n int64) bool {
	b.mu.Lock()
	ok := b.take(k, n)
	b.mu.Unlock()
	if !ok {
		b.refused.Add(1)
	}
	return ok
}

// take needs mu.
func (b *Bound) take(k Key, n int64) bool {
	a := b.account(k)
	switch {
	case a.main+n <= b.o.Most-b.main:
		a.main += n
		b.main += n
	case (k.kind == management || n <= b.o.Small) && a.reserved+n <= b.o.Reserve-b.reserved:
		a.reserved += n
		b.reserved += n
	default:
		b.forget(k, a)
		return false
	}
	b.total.Store(b.main + b.reserved)
	return true
}

func (b *Bound) account(k Key) *account {
	a := b.accounts[k]
	if a == nil {
		a = &account{}
		b.accounts[k] = a
	}
	return a
}

func (b *Bound) forget(k Key, a *account) {
	if a.main == 0 && a.reserved == 0 && len(b.accounts) > keptAccounts {
		delete(b.accounts, k)
	}
}

// Add counts n that is kept whether it fits or not: it was accepted already.
func (b *Bound) Add(k Key, n int64) {
	b.mu.Lock()
	b.account(k).main += n
	b.main += n
	b.total.Store(b.main + b.reserved)
	b.mu.Unlock()
}

// Give is the end of Take, Wait and Add: n of what the key holds is free again, that of the reserve
// first.
func (b *Bound) Give(k Key, n int64) {
	b.mu.Lock()
	a := b.account(k)
	small := min(n, a.reserved)
	a.reserved -= small
	b.reserved -= small
	a.main -= n - small
	b.main -= n - small
	b.total.Store(b.main + b.reserved)
	b.forget(k, a)
	b.serve()
	b.mu.Unlock()
}

// Wait counts n under a key as soon as its share allows it, in turn with other keys that wait. It
// returns the error of ctx if that ends first; n is not counted then.
func (b *Bound) Wait(ctx context.Context, k Key, n int64) error {
	w := &waiter{key: k, n: n}
	if b.enter(w) {
		return nil
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		return b.leave(ctx, w)
	}
}

// enter takes for w at once, or lets it wait.
func (b *Bound) enter(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.waiting.Has(w.key) && b.take(w.key, w.n) {
		if w.permit != nil {
			w.permit.n += w.n
		}
		return true
	}
	w.ready = make(chan struct{})
	b.waiting.Push(w.key, w)
	return false
}

// leave is the end of a wait whose ctx has ended.
func (b *Bound) leave(ctx context.Context, w *waiter) error {
	b.mu.Lock()
	left := b.waiting.Remove(w.key, w)
	if left {
		b.serve() // the next of this key may be smaller
	}
	b.mu.Unlock()
	if left {
		b.refused.Add(1)
		return ctx.Err()
	}
	return nil // taken at the last moment
}

// serve takes for those that wait what there is now, a key at a time. It needs mu.
func (b *Bound) serve() {
	b.waiting.Serve(func(w *waiter) bool {
		if !b.take(w.key, w.n) {
			return false
		}
		if w.permit != nil {
			if w.permit.n == 0 {
				w.permit.began = time.Now() // it could not move while it waited
			}
			w.permit.n += w.n
		}
		close(w.ready)
		return true
	})
}

// Taken returns how much is held.
func (b *Bound) Taken() int64 { return b.total.Load() }

// Most returns the size of the bound without its reserve.
func (b *Bound) Most() int64 { return b.o.Most }

// Held returns how much a key holds.
func (b *Bound) Held(k Key) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.accounts[k]; a != nil {
		return a.main + a.reserved
	}
	return 0
}
