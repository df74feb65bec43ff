package exchange

import (
	"net"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/intake"
	"github.com/penstock-broker/penstock/internal/problem"
)

const (
	// MaxWait is the longest time for which a client waits for responses.
	MaxWait = 60 * time.Second
	// goneCheck is the interval at which a wait looks whether its client is still connected.
	goneCheck = time.Second
	// writeWithin is the time for the answer after a wait.
	writeWithin = 30 * time.Second
)

// ErrWaiting refuses a client because too many others wait.
var ErrWaiting = problem.New(503, "overloaded", "Too many clients wait for responses at this broker.")

// Await waits until the responses to a message are there that the client on the connection waits
// for, the broker stops, or the time is over. gone reports that the client has left.
func (b *Board) Await(c net.Conn, channelNo uint32, h durable.Head, until Until, wait time.Duration, stopping <-chan struct{}) (gone bool, err error) {
	t := b.Join(channelNo, h, until)
	if t == nil {
		return false, ErrWaiting
	}
	defer t.Leave()
	// The server set the deadline of writing when the request came.
	if err := c.SetWriteDeadline(time.Now().Add(wait + writeWithin)); err != nil {
		return true, nil
	}
	end := time.Now().Add(wait)
	timer := time.NewTimer(min(wait, goneCheck))
	defer timer.Stop()
	for {
		select {
		case <-t.Ready:
			return intake.Gone(c), nil
		case <-stopping:
			return false, nil
		case <-timer.C:
		}
		left := time.Until(end)
		if intake.Gone(c) {
			return true, nil
		}
		if left <= 0 {
			return false, nil
		}
		timer.Reset(min(left, goneCheck))
	}
}
