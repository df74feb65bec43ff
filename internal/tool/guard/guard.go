// Package guard decides what a panic ends. A goroutine without it ends the whole
// process, whatever it worked on.
//
// Do is for work on bytes from outside (a request, a row, an answer of Redis or of a
// consumer): the panic is an error like any other, of that request or job only.
//
// Loop is for loops that repair, poll or renew, and that keep nothing from one round
// to the next which a panic could leave half done: they begin again.
//
// Vital is for the bookkeeping that all requests share (queues, slots, locks). After a
// panic there it may be wrong, and a lock may be held for good: a broker that hangs or
// miscounts is worse than one that is gone, since whatever was accepted is in the
// store and any broker, this one after its restart included, takes over. So it is
// logged, and ends the process.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Panics counts the panics that were caught. A broker registers it.
var Panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "penstock_panics_total", Help: "Panics outside of request handlers, by the part of the broker.",
}, []string{"where"})

// ErrPanic is the error of work that panicked. The panic itself is in the log.
var ErrPanic = errors.New("guard: panic")

// BeforeEnd is called when a panic has been logged that ends the process: the log is not only in memory
// when it returns. A program may set it before it starts.
var BeforeEnd = func() {}

// pause is how long a Loop waits before it begins again.
const pause = time.Second

// Do calls f and returns its error, or one that is ErrPanic when it panics. where is
// one of few names; attributes go into the log line.
func Do(where string, f func() error, attributes ...any) (err error) {
	defer func() {
		if v := recover(); v != nil {
			tell(where, "the work under way failed", v, attributes)
			err = fmt.Errorf("%w in %s", ErrPanic, where)
		}
	}()
	return f()
}

// Loop calls f, and calls it again after a panic, until f returns or ctx ends.
func Loop(ctx context.Context, where string, f func(context.Context)) {
	for !once(ctx, where, f) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func once(ctx context.Context, where string, f func(context.Context)) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			tell(where, "beginning again", v, nil)
		}
	}()
	f(ctx)
	return true
}

// Vital calls f. A panic of it is logged and goes on, to end the process.
func Vital(where string, f func()) {
	defer Watch(where)
	f()
}

// Watch is deferred where Vital would need a function of its own.
func Watch(where string) {
	if v := recover(); v != nil {
		tell(where, "the broker ends: what it keeps in memory may be wrong; nothing that was acknowledged is lost", v, nil)
		BeforeEnd()
		panic(v)
	}
}

func tell(where, consequence string, v any, attributes []any) {
	Panics.WithLabelValues(where).Inc()
	all := append([]any{"where", where, "consequence", consequence, "panic", fmt.Sprint(v), "stack",
		string(debug.Stack())}, attributes...)
	slog.Error("panic", all...)
}
