package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/internal/test/queuemodel"
	"github.com/penstock-broker/penstock/redisq"
)

// A link carries the scripts of one life to Redis, with its epochs, its incarnation
// and its watch of run_ids.
type link struct {
	l *life
	r *server

	incarnation atomic.Uint64
	onLost      func(consumer uint32)
	onRun       func()

	mu     sync.Mutex
	epochs map[uint32]string
	runs   map[int]bool
}

func newLink(l *life, r *server) *link {
	return &link{l: l, r: r, epochs: map[uint32]string{}, runs: map[int]bool{}}
}

func (q *link) Incarnation() uint64 { return q.incarnation.Load() }

// maxRounds as in redisq.
const maxRounds = 6

// run runs a script, which gets the keys and TIME. It can reach Redis for a while
// after its client has given up on it.
func (q *link) run(ctx context.Context, op string, consumer uint32, script func(k *queuemodel.Consumer,
	now int64)) error {
	_, err := q.sent(ctx, op, consumer, script)
	return err
}

// longCall is how long a call may take and still be in time.
const longCall = 100 * time.Millisecond

// sent is run that tells the epoch that the script was sent with last.
func (q *link) sent(ctx context.Context, op string, consumer uint32, script func(k *queuemodel.Consumer,
	now int64)) (string, error) {
	intact := true
	known := q.Epoch(consumer)
	epoch := known
	w := q.l.w
	asked := w.now()
	ended := w.checker.asking(q.l.no)
	err := q.l.do(ctx, call{op: op, consumer: consumer, rates: w.plan.queue, away: w.queueAway.now,
		effect:  func() { epoch, intact = q.rounds(consumer, script) },
		overdue: func() { q.once(consumer, known, script) }})
	ended()
	if took := w.now() - asked; err != nil || took > longCall {
		w.checker.cut(q.l.no, asked, w.now())
		if op == "Notify" { // the others hear of it when they ask Redis themselves
			w.checker.cut(0, asked, w.now()+2*time.Second)
		}
	}
	if err == nil && !intact {
		err = errors.New("simulation: state in Redis is being replaced repeatedly")
	}
	return epoch, err
}

// rounds repeats a script until its epoch is the current one, and returns the last.
func (q *link) rounds(consumer uint32, script func(k *queuemodel.Consumer, now int64)) (known string, done bool) {
	for range maxRounds {
		q.connect()
		known = q.Epoch(consumer)
		var current string
		if current, done = q.once(consumer, known, script); done {
			break
		}
		q.adopt(consumer, known, current)
	}
	return known, done
}

// once runs a script if the epoch is the one known; else it returns the current
// one, made where there was none.
func (q *link) once(consumer uint32, known string, script func(k *queuemodel.Consumer, now int64)) (current string,
	done bool) {
	r := q.r
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.lane(consumer)
	if k.Epoch != "" && k.Epoch == known {
		script(k, r.nowMs())
		if r.flaw == leaseIsForgotten && k.Fence%5 == 4 {
			k.ForgetLeases()
		}
		q.l.w.checker.touched(q.l, consumer, k)
		return known, true
	}
	if k.Epoch == "" {
		r.newEpoch(consumer, k)
	}
	return k.Epoch, false
}

// newEpoch gives a lane another epoch; what begins with it counts as looked at.
func (r *server) newEpoch(consumer uint32, k *queuemodel.Consumer) {
	if k.Epoch == "" {
		k.Looked = r.nowMs()
		if r.behind(consumer) {
			k.Spilled = redisq.MaxPriority
		}
	}
	r.epochs++
	k.Epoch = fmt.Sprintf("e%d", r.epochs)
}

// connect notices another Redis process before anything is asked of it.
func (q *link) connect() {
	q.r.mu.Lock()
	run := q.r.run
	q.r.mu.Unlock()
	q.mu.Lock()
	changed := len(q.runs) > 0 && !q.runs[run]
	q.runs[run] = true
	q.mu.Unlock()
	if changed && q.l.w.flaw != runIsIgnored {
		q.incarnation.Add(1)
		q.onRun()
	}
}

func (q *link) Epoch(consumer uint32) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.epochs[consumer]
}

func (q *link) adopt(consumer uint32, known, current string) {
	q.mu.Lock()
	if q.epochs[consumer] != known || known == current {
		q.mu.Unlock()
		return
	}
	q.epochs[consumer] = current
	q.incarnation.Add(1)
	q.mu.Unlock()
	q.onLost(consumer)
}

// Renew gives the consumer a new epoch if it has the one that is known here.
func (q *link) Renew(ctx context.Context, consumer uint32) error {
	known, current := q.Epoch(consumer), ""
	w := q.l.w
	err := q.l.do(ctx, call{op: "Renew", consumer: consumer, rates: w.plan.queue, away: w.queueAway.now, effect: func() {
		q.connect()
		q.r.mu.Lock()
		defer q.r.mu.Unlock()
		k := q.r.lane(consumer)
		if k.Epoch == known || k.Epoch == "" {
			q.r.newEpoch(consumer, k)
		}
		current = k.Epoch
	}, overdue: func() {
		q.r.mu.Lock()
		defer q.r.mu.Unlock()
		if k := q.r.lane(consumer); k.Epoch == known && known != "" {
			q.r.newEpoch(consumer, k)
		}
	}})
	if err == nil {
		q.adopt(consumer, known, current)
	}
	return err
}
