package front

import (
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// paceStep is how far a deadline must move to be told: each time costs a message to the goroutine of
// the connection.
const paceStep = time.Second

// A pace is how fast the client of a stream takes an answer. Its least rate is that of a connection
// of TCP: package intake.
type pace struct {
	mu    sync.Mutex
	tell  func(time.Time) error // sets the deadline of the stream; nil: the stream is over
	until time.Time             // the deadline that the HTTP/1.1 server set; zero: none
	told  time.Time
	begun int64 // sent at the time at which until was set
	sent  int64
	write bool // one is under way
}

// writeBy sets the deadline of the answer.
func (p *pace) writeBy(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until, p.begun = t, p.sent
	if p.write || !p.told.IsZero() { // the deadline that was told ends the stream, also where nothing is written
		return p.move(t)
	}
	return nil
}

// move needs mu.
func (p *pace) move(t time.Time) error {
	if p.tell == nil || t.IsZero() || t.Sub(p.told).Abs() < paceStep {
		return nil
	}
	p.told = t
	return p.tell(t)
}

// begin is called before a part of the answer is written.
func (p *pace) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write = true
	due := p.until
	if more := intake.Deadline(p.until.Add(-intake.Patience), time.Now(), int(p.sent-p.begun)); !due.IsZero() &&
		more.After(due) {
		due = more
	}
	return p.move(due)
}

// done is called when n bytes were written.
func (p *pace) done(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write = false
	p.sent += int64(n)
}

// end is the end of the stream: its deadline is not set any more.
func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell = nil
}
