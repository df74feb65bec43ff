package intake

import (
	"net"
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
}

// reached moves the deadline after got bytes of the body came in all.
func (p *pace) reached(got int) error {
	if got < p.next || p.conn == nil {
		return nil
	}
	p.next = got + paceStep
	return p.conn.SetReadDeadline(paceDeadline(p.begun, time.Now(), got))
}

// paceDeadline is the time by which more must have come of a body that began to
// come at begun and of which got bytes are there.
func paceDeadline(begun, now time.Time, got int) time.Time {
	average := begun.Add(Patience + time.Duration(got)*time.Second/MinRate)
	if pause := now.Add(Patience); pause.Before(average) {
		return pause
	}
	return average
}

// Due is the time by which more of an answer must have been taken that began to be written at begun
// and of which got bytes are gone. It is the same for bodies.
func Due(begun, now time.Time, got int) time.Time { return paceDeadline(begun, now, got) }
