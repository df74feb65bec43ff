package bench

import (
	"context"
	"sync/atomic"
	"time"
)

// A Ticket is the right to send a run of consecutive messages.
type Ticket struct {
	First uint64
	N     int
}

// A Schedule gives the time at which each message should be sent. Times are ns since the start of
// the run.
type Schedule interface {
	// Next waits until the next ticket is due. ok is false after the last ticket.
	Next(ctx context.Context) (t Ticket, ok bool)
	// Intended is when a message of a ticket should have been sent; now where
	// the schedule has no opinion.
	Intended(seq uint64, now int64) int64
	// Issued returns the number of tickets so far.
	Issued() uint64
}

// A closedLoop returns a ticket whenever a connection asks. Each connection sends its next request
// after the answer to the one before, so a slow broker gets fewer requests. A closed loop finds the
// capacity; its latencies say little about those that users would see.
type closedLoop struct {
	batch   int
	limit   uint64 // messages
	end     time.Time
	full    func() bool // reports whether the backlog of the consumers is too large; may be nil
	started atomic.Uint64
}

// fullPause is the interval at which a paused producer asks full again.
const fullPause = time.Millisecond

func (c *closedLoop) Next(ctx context.Context) (Ticket, bool) {
	for {
		if ctx.Err() != nil || !c.end.IsZero() && !time.Now().Before(c.end) {
			return Ticket{}, false
		}
		if c.full == nil || !c.full() {
			break
		}
		pause(ctx, fullPause)
	}
	first := c.started.Add(uint64(c.batch)) - uint64(c.batch)
	if first >= c.limit {
		return Ticket{}, false
	}
	return Ticket{First: first, N: int(min(uint64(c.batch), c.limit-first))}, true
}

func (c *closedLoop) Intended(_ uint64, now int64) int64 { return now }

func (c *closedLoop) Issued() uint64 { return min(c.started.Load(), c.limit) }

// An openLoop sends at a fixed rate, independent of the broker. A message that is due while every
// connection is busy is sent late, but its latency counts from its intended time. A broker that
// stalls for a second therefore shows a second of bad latencies instead of one bad request (no
// coordinated omission).
type openLoop struct {
	batch  int
	limit  uint64
	rate   float64       // messages per second
	base   time.Time     // intended time of message 0
	length time.Duration // messages intended later are not sent; 0: until limit
	grace  time.Duration // how long after that overdue messages may still be sent
	out    chan Ticket
	issued atomic.Uint64
}

// newOpenLoop completes a loop whose settings are filled in.
func newOpenLoop(o *openLoop) *openLoop {
	if o.length > 0 {
		o.limit = min(o.limit, uint64(o.rate*o.length.Seconds()))
	} else {
		o.length = time.Duration(float64(o.limit) / o.rate * 1e9)
	}
	o.out = make(chan Ticket)
	return o
}

// Run issues tickets until ctx ends, all are issued, or the grace is over.
func (o *openLoop) Run(ctx context.Context) error {
	defer close(o.out)
	giveUp := time.NewTimer(time.Until(o.base.Add(o.length + o.grace)))
	defer giveUp.Stop()
	for first := uint64(0); first < o.limit; {
		t := Ticket{First: first, N: int(min(uint64(o.batch), o.limit-first))}
		last := first + uint64(t.N) - 1
		if !sleepUntil(ctx, o.base.Add(time.Duration(o.Intended(last, 0)))) {
			return nil
		}
		select {
		case o.out <- t:
		case <-ctx.Done():
			return nil
		case <-giveUp.C:
			return nil
		}
		first += uint64(t.N)
		o.issued.Store(first)
	}
	return nil
}

func (o *openLoop) Next(context.Context) (Ticket, bool) {
	t, ok := <-o.out
	return t, ok
}

func (o *openLoop) Intended(seq uint64, _ int64) int64 { return int64(float64(seq) / o.rate * 1e9) }

func (o *openLoop) Issued() uint64 { return o.issued.Load() }

// Unsent are the messages that were due and never sent: from Issued up to the
// returned sequence. Call it when Run has returned.
func (o *openLoop) Unsent(now time.Time) uint64 {
	due := uint64(max(now.Sub(o.base).Seconds()*o.rate, 0))
	return max(min(due, o.limit), o.issued.Load())
}

// sleepUntil returns false when ctx ended first. The last stretch is slept in
// the kernel: the runtime's poller rounds short waits up to a millisecond, which
// would be taken for latency of the broker.
func sleepUntil(ctx context.Context, t time.Time) bool {
	const stretch = 1500 * time.Microsecond
	for {
		d := time.Until(t)
		if d <= 0 {
			return ctx.Err() == nil
		}
		if d <= stretch {
			napFor(d)
			continue
		}
		timer := time.NewTimer(d - stretch)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}
