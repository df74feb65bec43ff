package api

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// lateHead is how soon the head of the request must come on a late connection.
	lateHead = time.Second
	// lateMost bounds the late connections.
	lateMost = 256
	// unserved is for how much longer a connection without a whole head seems to rest than it does.
	unserved = time.Hour
)

// Places are the connections that clients may have at once, with a share for each address. At the
// end of its share a connection of the address goes that rests: the oldest that never sent a whole
// head, or else the one whose last request is longest ago. A connection for which there is no place is late. It must
// send a request soon, and gets an answer if that is a probe or management; any other is refused,
// and the connection ends.
type Places struct{ main, late *share.Bound }

// NewPlaces returns places for most connections, the late ones included.
func NewPlaces(most int) *Places {
	late := min(lateMost, max(most/8, 1))
	return &Places{
		main: share.New(share.Options{Name: "connections", Most: int64(most - late), Resting: true, Rash: true}),
		late: share.New(share.Options{Name: "connections_late", Most: int64(late), Resting: true, Rash: true}),
	}
}

// Bounds returns the bounds, for metrics.
func (p *Places) Bounds() []*share.Bound { return []*share.Bound{p.main, p.late} }

// A seat is the place of a connection. Its methods cost no lock, except when the place changes.
type seat struct {
	hold atomic.Pointer[share.Hold] // nil: none is counted, or the connection was ended
	late bool                       // it is one of the late places; read by the goroutine that serves
	due  time.Time                  // when the head must be there, if late
}

// admit gives a connection that was accepted a place.
func (p *Places) admit(c *clientConn) bool {
	if p.enter(p.main, c) {
		return true
	}
	c.seat.late, c.seat.due = true, time.Now().Add(lateHead)
	return p.enter(p.late, c)
}

// enter takes a place of a bound instead of the one that the connection has.
func (p *Places) enter(b *share.Bound, c *clientConn) bool {
	var h *share.Hold
	h = b.Hold(c.address(), func() { c.giveUp(h) })
	took := h.Take(1)
	if !took { // that may have made another connection go
		took = h.Take(1)
	}
	if !took {
		h.Close()
		return false
	}
	if old := c.seat.hold.Swap(h); old != nil {
		old.Close()
	}
	return true
}

func (c *clientConn) address() share.Key { return share.Address(share.AddressOf(c.RemoteAddr())) }

// giveUp ends a connection that rests. What its client has sent already is still read and answered:
// only the side that reads is closed, and the server then closes the connection.
func (c *clientConn) giveUp(h *share.Hold) {
	if c.seat.hold.CompareAndSwap(h, nil) {
		h.Close()
		_ = c.CloseRead() // it is closed already
	}
}

// leave gives the place back.
func (c *clientConn) leave() {
	if h := c.seat.hold.Swap(nil); h != nil {
		h.Close()
	}
}

// await says that the connection waits for its first request.
func (c *clientConn) await() {
	if h := c.seat.hold.Load(); h != nil {
		h.RestSince(time.Now().Add(-unserved))
	}
}

// rest says that the connection waits for the next request.
func (c *clientConn) rest() {
	if h := c.seat.hold.Load(); h != nil {
		h.Rest()
	}
}

// work says that a request is there. It returns false if the connection was ended.
func (c *clientConn) work() bool {
	h := c.seat.hold.Load()
	return h != nil && h.Work()
}

// seated marks the connection as at work while h runs. A late one gets a place if there is one now.
func seated(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		c, ok := rc.Conn().(*clientConn)
		if !ok || c.from.places == nil {
			h(rc)
			return
		}
		ends := !c.work()
		if c.seat.late && c.from.places.enter(c.from.places.main, c) {
			c.seat.late, ends = false, false
		}
		if c.seat.late {
			c.seat.due, ends = time.Now().Add(readTimeout), true
		}
		h(rc)
		if ends { // after h, which may begin its answer anew
			rc.SetConnectionClose()
		}
	}
}

// resting is told of the states of connections.
func resting(conn net.Conn, state fasthttp.ConnState) {
	if state != fasthttp.StateIdle {
		return
	}
	if c, ok := conn.(*clientConn); ok {
		c.rest()
	}
}

// errNoPlace refuses a request on a late connection.
var errNoPlace = &problem.Problem{Status: fasthttp.StatusServiceUnavailable, Code: "overloaded", RetryAfter: 1,
	Detail: "Too many connections are open from this address, or in all. Nothing was changed; try again, and close " +
		"what is not used."}

// late reports whether the request came on a connection without a place.
func late(rc *fasthttp.RequestCtx) bool {
	c, ok := rc.Conn().(*clientConn)
	return ok && c.seat.late
}

// urgent reports whether requests with this access are served on a late connection.
func (access Access) urgent() bool {
	switch access {
	case AccessOps, AccessManagement, AccessAdmin, AccessOwn, AccessForm, AccessRetrigger, AccessUI,
		AccessTokens:
		return true
	}
	return false
}

// punctual refuses the requests of late connections.
func (a *API) punctual(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		if late(rc) {
			a.fail(rc, errNoPlace)
			return
		}
		next(rc)
	}
}
