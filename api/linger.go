package api

import (
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// How much of a request that was refused early is read and thrown away after its answer, and for how
// long; a client that sends nothing for lingerPause has sent it all, or waits for the end.
const (
	maxLingeredBytes = 64 << 20
	lingerTimeout    = 30 * time.Second
	lingerPause      = 5 * time.Second
)

// lingering marks the connections that end with the refusal of a request.
func lingering(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		next(rc)
		if rc.Response.ConnectionClose() && rc.Response.StatusCode() >= fasthttp.StatusBadRequest {
			linger(rc.Conn())
		}
	}
}

// linger makes Close of the connection read what the client still sends, so that the client gets the
// answer. Many clients read it only when they have written the whole request, and a connection that
// is closed before that is reset: they would report a broken pipe.
func linger(conn net.Conn) {
	if c := clientOf(conn); c != nil {
		c.lingers.Store(true)
	}
}

// readOut ends the answer and reads until the client has closed its side, within bounds. The
// connection counts as one that rests meanwhile: it goes first when its address needs the place.
func (c *clientConn) readOut() {
	c.Rest()
	if c.CloseWrite() != nil {
		return
	}
	end := time.Now().Add(lingerTimeout)
	buf := skipBuffers.Get().(*[4 << 10]byte)
	defer skipBuffers.Put(buf)
	for total := 0; total < maxLingeredBytes; {
		pause := time.Now().Add(lingerPause)
		if pause.After(end) {
			pause = end
		}
		if c.SetReadDeadline(pause) != nil {
			return
		}
		n, err := c.TCPConn.Read(buf[:])
		if total += n; err != nil {
			return
		}
	}
}
