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
	permit atomic.Pointer[share.Permit] // nil: none is counted, or the connection was ended
	late   atomic.Bool                  // it is one of the late places
	due    atomic.Int64                 // when the head must be there, Unix ns, if late
}

// headDue returns when the head of a late connection must be there; zero: it is not late.
func (s *seat) headDue() time.Time {
	if !s.late.Load() {
		return time.Time{}
	}
	return time.Unix(0, s.due.Load())
}

// admit gives a connection that was accepted a place.
func (p *Places) admit(c *clientConn) bool {
	if p.enter(p.main, c) {
		return true
	}
	c.seat.due.Store(time.Now().Add(lateHead).UnixNano())
	c.seat.late.Store(true)
	return p.enter(p.late, c)
}

// enter takes a place of a bound instead of the one that the connection has.
func (p *Places) enter(b *share.Bound, c *clientConn) bool {
	var h *share.Permit
	h = b.Permit(c.address(), func() { c.giveUp(h) })
	took := h.Take(1)
	if !took { // that may have made another connection go
		took = h.Take(1)
	}
	if !took {
		h.Close()
		return false
	}
	if old := c.seat.permit.Swap(h); old != nil {
		old.Close()
	}
	return true
}

func (c *clientConn) address() share.Key { return share.Address(share.AddressOf(c.RemoteAddr())) }

// giveUp ends a connection that rests. What its client has sent already is still read and answered:
// only the side that reads is closed, and the server then closes the connection.
func (c *clientConn) giveUp(h *share.Permit) {
	if c.seat.permit.CompareAndSwap(h, nil) {
		h.Close()
		_ = c.CloseRead() // it is closed already
	}
}

// leave gives the place back.
func (c *clientConn) leave() {
	if h := c.seat.permit.Swap(nil); h != nil {
		h.Close()
	}
}

// await says that the connection waits for its first request.
func (c *clientConn) await() {
	if h := c.seat.permit.Load(); h != nil {
		h.RestSince(time.Now().Add(-unserved))
	}
}

// Rest says that the connection waits for the next request.
func (c *clientConn) Rest() {
	if h := c.seat.permit.Load(); h != nil {
		h.Rest()
	}
}

// work says that a request is there. It returns false if the connection was ended.
func (c *clientConn) work() bool {
	h := c.seat.permit.Load()
	return h != nil && h.Work()
}

// Begin says that a request is there. It returns true if the connection is to end with its answer. A
// late connection gets a place if there is one now.
func (c *clientConn) Begin() (last bool) {
	if c.from.places == nil {
		return false
	}
	last = !c.work()
	if c.seat.late.Load() && c.from.places.enter(c.from.places.main, c) {
		c.seat.late.Store(false)
		last = false
	}
	if c.seat.late.Load() {
		c.seat.due.Store(time.Now().Add(readTimeout).UnixNano())
		last = true
	}
	return last
}

// Late reports whether the connection has no place.
func (c *clientConn) Late() bool { return c.seat.late.Load() }

// clientOf returns the connection of a client, also where package front carries its requests through
// memory; nil: it is another one, or shared by requests.
func clientOf(conn net.Conn) *clientConn {
	if carrier, ok := conn.(interface{ Client() net.Conn }); ok {
		conn = carrier.Client()
	}
	c, _ := conn.(*clientConn)
	return c
}

// seated marks the connection as at work while h runs.
func seated(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		c := clientOf(rc.Conn())
		last := c != nil && c.Begin()
		h(rc)
		if last { // after h, which may begin its answer anew
			rc.SetConnectionClose()
		}
	}
}

// resting is told of the states of connections.
func resting(conn net.Conn, state fasthttp.ConnState) {
	if state != fasthttp.StateIdle {
		return
	}
	if c := clientOf(conn); c != nil {
		c.Rest()
	}
}

// errNoPlace refuses a request on a late connection.
var errNoPlace = &problem.Problem{Status: fasthttp.StatusServiceUnavailable, Code: "overloaded", RetryAfter: 1,
	Detail: "Too many connections are open from this address, or in all. Nothing was changed; try again, and close " +
		"what is not used."}

// late reports whether the request came on a connection without a place.
func late(rc *fasthttp.RequestCtx) bool {
	c, ok := rc.Conn().(interface{ Late() bool })
	return ok && c.Late()
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
