package penstock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Handler does one job. nil: it is done. An error: the attempt failed, and the job is due again after the
// backoff of the consumer; Reject, RetryIn and GiveBack say otherwise. A panic is an error.
//
// The context ends with the cause ErrLeaseLost when another worker may have the job, and with ErrStopped
// when the worker ends at once. It does not end when the worker stops in order: running jobs finish.
type Handler func(ctx context.Context, d *Delivery) error

// WorkerOptions are the settings of a Worker; all have defaults.
type WorkerOptions struct {
	Concurrency int           // jobs at a time, up to 500; 1
	Lease       time.Duration // of a job, whole seconds; it is renewed at a third. PENSTOCK_LEASE (seconds), 30 s
	Wait        time.Duration // of a claim at the broker for the first job, up to 20 s; 20 s
	Name        string        // of the worker. PENSTOCK_WORKER, host-pid-random
	Version     string        // of the program; this client's
	// StopTimeout is how long Run waits for running jobs after its context has ended; then it does what
	// Abort does. 0: as long as they take.
	StopTimeout time.Duration
	// Channel and Consumer of the queue, where they have other names than it.
	Channel, Consumer string
}

// Bounds of the worker protocol.
const (
	defaultLease = 30 * time.Second
	mostClaimed  = 500
	mostTasks    = 64
	// lastReports is how long a worker that ends tries to report what is done.
	lastReports = 10 * time.Second
	// abortGrace is how long handlers have after Abort to end by themselves, and the reports afterwards.
	abortGrace = time.Second
	// unknownBack and as much again is when a job with an unknown task is due again, in seconds.
	unknownBack = 10
)

// A Worker takes jobs of one queue. Handle says what it does, Run does it.
type Worker struct {
	c                        *Client
	o                        WorkerOptions
	log                      *slog.Logger
	queue, channel, consumer string
	handlers                 map[string]Handler
	other                    Handler
	name                     string // X-Broker-Worker

	leases  leases
	reports reporter
	known   knownDone

	mu      sync.Mutex
	running int
	fatal   error
	freed   chan struct{} // has a token when a slot is free, or reports go through again
	abort   chan struct{} // closed: end now
	aborted sync.Once
	ended   chan struct{} // closed with the last handler
	unknown map[string]bool
}

// Worker makes a worker for a queue: consumer q of channel q, which are made where management is open.
func (c *Client) Worker(queue string, o WorkerOptions) (*Worker, error) {
	text, err := c.o.environment("PENSTOCK_LEASE")
	if err == nil && o.Lease == 0 && text != "" {
		seconds, wrong := strconv.Atoi(text)
		o.Lease = time.Duration(seconds) * time.Second
		if wrong != nil || seconds < 1 {
			err = fmt.Errorf("penstock: PENSTOCK_LEASE must be whole seconds from 1")
		}
	}
	if o.Name == "" && err == nil {
		o.Name, err = c.o.environment("PENSTOCK_WORKER")
	}
	o.Lease, o.Wait = cmp.Or(o.Lease, defaultLease), cmp.Or(o.Wait, 20*time.Second)
	o.Concurrency, o.Version = cmp.Or(o.Concurrency, 1), cmp.Or(o.Version, "penstock-go/"+Version)
	switch {
	case err != nil:
		return nil, err
	case queue == "":
		return nil, errors.New("penstock: a worker needs the name of its queue")
	case o.Concurrency < 1 || o.Concurrency > mostClaimed:
		return nil, fmt.Errorf("penstock: Concurrency must be from 1 to %d", mostClaimed)
	case o.Lease < time.Second || o.Lease%time.Second != 0 || o.Lease > 7*24*time.Hour:
		return nil, errors.New("penstock: Lease must be whole seconds, from 1 s to a week")
	case o.Wait < time.Second || o.Wait > 20*time.Second:
		return nil, errors.New("penstock: Wait must be from 1 s to 20 s")
	}
	if o.Name == "" {
		host, _ := os.Hostname()
		o.Name = fmt.Sprintf("%s-%d-%s", cmp.Or(host, "worker"), os.Getpid(), strings.ToLower(rand.Text()[:4]))
	}
	w := &Worker{c: c, o: o, queue: queue, channel: cmp.Or(o.Channel, queue), consumer: cmp.Or(o.Consumer, queue),
		log: c.o.Logger.With("queue", queue, "worker", o.Name), handlers: map[string]Handler{},
		freed: make(chan struct{}, 1), abort: make(chan struct{}), ended: make(chan struct{}, 1),
		unknown: map[string]bool{}}
	w.leases.w, w.reports.w = w, w
	w.leases.held, w.leases.changed = map[string]*Delivery{}, make(chan struct{}, 1)
	w.reports.come, w.reports.closed = make(chan struct{}, 1), make(chan struct{})
	return w, nil
}

// Handle registers the handler of a task. Call it before Run.
func (w *Worker) Handle(task string, h Handler) { w.handlers[task] = h }

// HandleOther registers the handler of every job without a handler of its task, messages that are no Job
// included. Without it, such a job goes back and is due again within 20 s, for a worker that knows its
// task; one that is no Job is a dead letter.
func (w *Worker) HandleOther(h Handler) { w.other = h }

// Run takes jobs until the context ends, then stops in order: it claims nothing more, running handlers
// finish, their outcomes are reported, and Run returns nil. It returns an error, also after stopping in
// order, when the broker refuses the worker for good: tokens that do not count, a consumer that is gone or
// of type push. A broker that cannot be reached is waited for. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 && w.other == nil {
		return errors.New("penstock: the worker has no handler")
	}
	w.name = w.header()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	background, end := context.WithCancel(context.Background())
	defer end()
	var parts sync.WaitGroup
	start := func(f func(context.Context)) {
		parts.Add(1)
		go func() { defer parts.Done(); f(background) }()
	}
	start(w.leases.renew)
	start(func(ctx context.Context) {
		select {
		case <-w.abort:
			stop()
		case <-ctx.Done():
		}
	})
	reported := make(chan struct{})
	start(func(ctx context.Context) { defer close(reported); w.reports.send(ctx) })
	w.claim(ctx, background)
	w.finish(reported)
	end()
	parts.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// Abort makes Run return soon: the contexts of running handlers end with ErrStopped, and the jobs of those
// that do not finish within a second go back; the attempt does not count.
func (w *Worker) Abort() { w.aborted.Do(func() { close(w.abort) }) }

// finish waits for the handlers, or for Abort, and for the reports.
func (w *Worker) finish(reported <-chan struct{}) {
	var late <-chan time.Time
	if w.o.StopTimeout > 0 {
		t := time.NewTimer(w.o.StopTimeout)
		defer t.Stop()
		late = t.C
	}
	end := lastReports
	for idle := w.idle(); !idle; idle = w.idle() {
		select {
		case <-w.ended:
			continue
		case <-w.abort:
		case <-late:
		}
		w.leases.cancelAll(ErrStopped)
		for t := time.NewTimer(abortGrace); !w.idle(); {
			select {
			case <-w.ended:
				continue
			case <-t.C:
			}
			break
		}
		w.leases.giveBackAll()
		end = 2 * abortGrace
		break
	}
	close(w.reports.closed)
	t := time.NewTimer(end)
	defer t.Stop()
	select {
	case <-reported:
	case <-t.C:
		w.log.Error("penstock: the broker did not take the last reports; their jobs are done again after their leases",
			"reports", w.reports.count())
	}
}

func (w *Worker) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running == 0
}

// fail ends the worker for good, in order.
func (w *Worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fatal == nil {
		w.fatal = err
		w.log.Error("penstock: the broker refuses this worker", "error", err)
	}
}

// run does a job in a goroutine of its own, or sends it back if there is no handler for it.
func (w *Worker) run(d *Delivery) {
	ctx, cancel := context.WithCancelCause(context.Background())
	d.cancel = cancel
	w.leases.add(d)
	h := w.handlers[d.Task]
	response, done := w.known.of(d)
	switch {
	case done:
		d.response = response
		w.log.Info("penstock: a job that was done here came again, and is not done twice", "task", d.Task, "message",
			d.MessageID)
		w.settle(d, nil)
	case h != nil && !d.isJob:
		w.settle(d, Reject("the payload is no job"))
	case h != nil:
		w.do(ctx, h, d)
	case w.other != nil:
		w.do(ctx, w.other, d)
	case d.Task == "":
		w.settle(d, Reject("the payload is no job"))
	default:
		if !w.unknown[d.Task] {
			w.unknown[d.Task] = true
			w.log.Warn("penstock: this worker does not know the task; its jobs go back", "task", d.Task)
		}
		delay := time.Duration(unknownBack+mathrand.IntN(unknownBack+1)) * time.Second
		w.settle(d, GiveBack(delay, "unknown task: "+d.Task))
	}
}

func (w *Worker) do(ctx context.Context, h Handler, d *Delivery) {
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
	go func() {
		err := w.call(ctx, h, d)
		w.settle(d, err)
		w.mu.Lock()
		w.running--
		w.mu.Unlock()
		wake(w.freed)
		wake(w.ended)
	}()
}

// call calls a handler. A panic is its error.
func (w *Worker) call(ctx context.Context, h Handler, d *Delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("penstock: a handler panicked", "task", d.Task, "message", d.MessageID, "panic", p,
				"stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return h(ctx, d)
}

// wake puts a token into a channel that has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// header is X-Broker-Worker. Tasks that it cannot name are left out.
func (w *Worker) header() string {
	clean := func(text string, most int) string {
		text = strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' || strings.ContainsRune(";|,", r) {
				return '-'
			}
			return r
		}, text)
		return text[:min(len(text), most)]
	}
	tasks := slices.Sorted(maps.Keys(w.handlers))
	named := !slices.ContainsFunc(tasks, func(task string) bool { return clean(task, 128) != task })
	text := fmt.Sprintf("%s; version=%s; slots=%d", clean(w.o.Name, 128), clean(w.o.Version, 64), w.o.Concurrency)
	if w.other == nil && len(tasks) <= mostTasks && named {
		text += "; tasks=" + strings.Join(tasks, ",")
	}
	return text
}
