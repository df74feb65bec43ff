package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/feature/journal"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

var (
	errRefused = errors.New("simulation: refused, nothing has happened")
	errLost    = errors.New("simulation: the answer was lost")
)

// happened reports whether a call that returned err may have had its effect.
func happened(err error) bool { return err != nil && !errors.Is(err, errRefused) }

// A life is one broker process from its start to its end. All its calls go through the life. After
// its end they have no effect.
type life struct {
	w    *world
	no   int // number of the life, from 1
	slot int
	over chan struct{} // closed by crash

	mu      sync.Mutex
	crashed bool
	calls   map[callName]uint64
	frozen  time.Time // the process is paused until then
	opened  []*journal.Journal
}

type callName struct {
	op       string
	consumer uint32
}

func newLife(w *world, no, slot int) *life {
	return &life{w: w, no: no, slot: slot, over: make(chan struct{}), calls: map[callName]uint64{}}
}

// note adds an event to the history.
func (l *life) note(what string, consumer uint32, id ident.ID, detail string) {
	l.w.history.add(event{life: l.no, what: what, consumer: consumer, id: id, detail: detail})
}

// crash ends the life: kill -9.
func (l *life) crash(where string) {
	l.mu.Lock()
	if l.crashed {
		l.mu.Unlock()
		return
	}
	l.crashed = true
	l.mu.Unlock()
	l.note("killed", 0, ident.ID{}, where)
	l.w.checker.disturb(l.no, l.w.now(), l.w.now())
	l.w.disk.lost(l)
	close(l.over)
}

func (l *life) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.crashed
}

// freeze pauses the process, as SIGSTOP does.
func (l *life) freeze(span time.Duration) {
	l.mu.Lock()
	l.frozen = time.Now().Add(span)
	l.mu.Unlock()
	l.note("paused", 0, ident.ID{}, span.String())
	l.w.checker.disturb(l.no, l.w.now(), l.w.now()+span)
}

// thaw ends a pause.
func (l *life) thaw() {
	l.mu.Lock()
	l.frozen = time.Time{}
	l.mu.Unlock()
}

// awake waits until the process is not paused. It returns false if the process is dead.
func (l *life) awake() bool {
	for {
		l.mu.Lock()
		left, dead := time.Until(l.frozen), l.crashed
		l.mu.Unlock()
		if dead {
			return false
		}
		if left <= 0 {
			return true
		}
		if !l.sleep(context.Background(), min(left, 50*time.Millisecond)) && l.dead() {
			return false
		}
	}
}

// sleep waits and reports whether the time has passed before the end of ctx and of the process.
func (l *life) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-l.over:
	}
	return false
}

// chance returns the random stream of the next call of that name.
func (l *life) chance(op string, consumer uint32) chance {
	name := callName{op, consumer}
	l.mu.Lock()
	n := l.calls[name]
	l.calls[name]++
	l.mu.Unlock()
	return draw(l.w.seed, uint64(l.no), word(op), uint64(consumer), n)
}

// A call is one call of the store or the queue.
type call struct {
	op       string
	consumer uint32
	rates    seamRates
	away     func() bool
	crash    int // more than other calls, per thousand
	effect   func()
	// overdue is the effect of a request that reaches the server after its
	// client has given up on it; nil: the same as effect.
	overdue func()
}

// A fate is the result of a call.
type fate struct {
	before, after, late     time.Duration
	refuse, lose, overdue   bool
	crashBefore, crashAfter bool
}

func (l *life) fate(c call) fate {
	r := l.chance(c.op, c.consumer)
	f := fate{before: r.between(10*time.Microsecond, 200*time.Microsecond), after: r.between(10*time.Microsecond,
		200*time.Microsecond)}
	if !l.w.faulty() {
		return f
	}
	p := &l.w.plan
	f.refuse, f.lose, f.overdue = r.hit(c.rates.before), r.hit(c.rates.after), r.hit(c.rates.late)
	f.crashBefore, f.crashAfter = r.hit(p.crash+c.crash), r.hit(p.crash+c.crash)
	f.late = r.between(time.Millisecond, p.lateness)
	if r.hit(p.slow) {
		longest := []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond}[r.below(3)]
		f.before, f.after = r.between(0, longest), r.between(0, longest)
	}
	return f
}

// patience is how long a call waits for a server that is away.
const patience = 400 * time.Millisecond

// do makes a call. It returns nil if the effect has happened and the caller has the reply. For
// errors see happened.
func (l *life) do(ctx context.Context, c call) error {
	if !l.awake() {
		return context.Canceled
	}
	f := l.fate(c)
	if !l.sleep(ctx, f.before) {
		return errors.Join(errRefused, ctx.Err())
	}
	for waited := time.Duration(0); c.away() && l.w.faulty(); waited += 20 * time.Millisecond {
		if waited > patience || !l.sleep(ctx, 20*time.Millisecond) {
			return errors.Join(errRefused, ctx.Err())
		}
	}
	if !l.w.faulty() { // the quiet phase has begun
		f = fate{after: f.after}
	}
	switch {
	case f.crashBefore:
		l.crash("before " + c.op)
		if f.overdue { // the request was on its way
			l.overdue(c, f)
		}
		return context.Canceled
	case l.dead():
		return context.Canceled
	case f.refuse:
		l.note(c.op+" refused", c.consumer, ident.ID{}, "")
		return errRefused
	case f.overdue:
		l.note(c.op+" is late", c.consumer, ident.ID{}, f.late.String())
		l.overdue(c, f)
		return errLost
	}
	c.effect()
	if f.crashAfter {
		l.crash("after " + c.op)
	}
	slept := l.sleep(ctx, f.after)
	switch {
	case !l.awake():
		return context.Canceled
	case f.lose:
		l.note(c.op+" answer lost", c.consumer, ident.ID{}, "")
		return errLost
	case !slept:
		return errors.Join(errLost, ctx.Err())
	}
	return nil
}

// overdue runs the effect some time after the caller got an error.
func (l *life) overdue(c call, f fate) {
	effect := c.overdue
	if effect == nil {
		effect = c.effect
	}
	l.w.acting.Go(func() {
		time.Sleep(f.late)
		effect()
	})
}
