package exchange

import (
	"net"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// MaxWait is the longest time for which a client waits for responses.
	MaxWait = 60 * time.Second
	// goneCheck is the interval at which a wait looks whether its client is still connected.
	goneCheck = time.Second
	// writeWithin is the time for the answer after a wait.
	writeWithin = 30 * time.Second
	// Crowded is Retry-After, seconds, for a client that could not wait.
	Crowded = "5"
)

// A Wish is what a client waits for.
type Wish struct {
	Key       share.Key // of whoever asks
	ChannelNo uint32
	Head      durable.Head // of the message
	Until     Until
	Wait      time.Duration
	Standing  *catalogue.Standing // of whoever asks: the wait ends where it would not be admitted any more
	Stopping  <-chan struct{}     // closed when the broker stops
}

// Await waits until the responses are there that the client on the connection wants, it would
// not be admitted any more, the broker stops, or the time is over. gone reports that the client
// has left; full that it did not wait at all, because as many wait as the key may have.
func (b *Board) Await(c net.Conn, w Wish) (gone, full bool) {
	t := b.Join(w.Key, w.ChannelNo, w.Head, w.Until)
	if t == nil {
		return false, true
	}
	defer t.Leave()
	// The server set the deadline of writing when the request came.
	if err := c.SetWriteDeadline(time.Now().Add(w.Wait + writeWithin)); err != nil {
		return true, false
	}
	end := time.Now().Add(w.Wait)
	timer := time.NewTimer(min(w.Wait, goneCheck))
	defer timer.Stop()
	changed, unwatch := w.Standing.Await()
	defer unwatch()
	if w.Standing.Check() != nil { // since the request came
		return false, false
	}
	for {
		select {
		case <-t.Ready:
			return intake.Gone(c), false
		case <-w.Stopping:
			return false, false
		case <-changed:
		case <-timer.C:
		}
		if w.Standing.Check() != nil {
			return false, false // the caller says so
		}
		left := time.Until(end)
		if intake.Gone(c) {
			return true, false
		}
		if left <= 0 {
			return false, false
		}
		timer.Reset(min(left, goneCheck))
	}
}
