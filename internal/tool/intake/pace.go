package intake

import (
	"net"
	"sync/atomic"
	"time"
)

// How fast a body must come. The head of a request and the first paceStep bytes
// behind it have the server's read timeout. From then on a body may take a second
// longer for each MinRate bytes that came, and none may pause for longer than
// Patience: a large body on a slow line gets through, and a client that drips or
// stops is ended. The limit of the body bounds the whole time.
const (
	MinRate  = 8 << 10 // bytes a second, on average
	Patience = 30 * time.Second
	paceStep = 64 << 10
)

// A pace moves the read deadline of a connection as its body comes. It costs
// nothing for a body of up to paceStep bytes.
type pace struct {
	conn  net.Conn // nil: nothing is moved
	begun time.Time
	next  int // bytes at which the deadline moves
	ended atomic.Bool
}

func newPace(conn net.Conn, begun time.Time) *pace {
	return &pace{conn: conn, begun: begun, next: paceStep}
}

// reached moves the deadline after got bytes of the body came in all.
func (p *pace) reached(got int) error {
	if got < p.next || p.conn == nil {
		return nil
	}
	p.next = got + paceStep
	err := p.conn.SetReadDeadline(Deadline(p.begun, time.Now(), got))
	if p.ended.Load() { // end may have come before the deadline was moved
		p.end()
	}
	return err
}

// end makes a read under way return: the body is too slow for a broker under pressure.
func (p *pace) end() {
	p.ended.Store(true)
	if p.conn != nil {
		_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // a connection that is closed says so itself
	}
}

// Deadline is the time by which more must have come of a body, or been taken of an
// answer, that began at begun and of which got bytes are through.
func Deadline(begun, now time.Time, got int) time.Time {
	average := begun.Add(Patience + time.Duration(got)*time.Second/MinRate)
	if pause := now.Add(Patience); pause.Before(average) {
		return pause
	}
	return average
}
