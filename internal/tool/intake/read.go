package intake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// The refusals of a body. The bound on all bodies refuses with
// problem.ErrOverloaded.
var (
	ErrTooLarge = problem.New(413, "body_too_large", "The body is larger than this broker accepts.")
	ErrBroken   = problem.New(400, "bad_request", "The body of the request did not arrive whole.")
	ErrCoded    = problem.New(415, "unsupported_media_type", "This route takes no body with a Content-Encoding.")
	ErrSlow     = problem.New(408, "request_timeout", "The request did not arrive in time.")
)

// The first piece of memory for a body, bytes: of a known length, and in chunks.
// Most messages fit into it.
const firstOfLength, firstOfChunks = 16 << 10, 1 << 10

// roomPatience is how long a body waits for memory that others have, before it is refused.
const roomPatience = time.Second

// Read reads the body of a request, at most that many bytes, into memory of its
// own: the request's memory is used again as soon as the handler returns. taken is
// what the caller gives back to b under k when it is done with the body; after an
// error it is 0. The connection of a body that did not arrive whole is closed with
// the answer.
func Read(rc *fasthttp.RequestCtx, b *share.Bound, k share.Key, most int) (body []byte, taken int64, err error) {
	stream, n := rc.RequestBodyStream(), rc.Request.Header.ContentLength()
	switch {
	case n > most:
		return nil, 0, ErrTooLarge
	case stream == nil:
		if len(rc.Request.Body()) > most {
			return nil, 0, ErrTooLarge
		}
		return append([]byte{}, rc.Request.Body()...), 0, nil
	}
	g := growing{bound: b, key: k, conn: rc.Conn(), begun: rc.Time()}
	if n >= 0 {
		err = g.read(stream, min(n, firstOfLength), n)
	} else { // one byte more shows that it is too large
		err = g.read(stream, min(most+1, firstOfChunks), most+1)
	}
	if err = problemOf(rc, n, len(g.body), most, err); err != nil {
		g.drop()
		return nil, 0, err
	}
	if cap(g.body)-len(g.body) > len(g.body)/4 { // it may be kept for long
		g.body = bytes.Clone(g.body)
	}
	return g.body, g.keep(), nil
}

// problemOf returns the problem of a body of which got bytes came before err; n is
// its announced length, negative for chunks.
func problemOf(rc *fasthttp.RequestCtx, n, got, most int, err error) error {
	whole := n < 0 && err == io.EOF // elsewhere than between chunks the error is another one
	switch {
	case got == n:
		return nil
	case errors.Is(err, problem.ErrOverloaded):
		return err
	case got > most:
		return ErrTooLarge
	case !whole:
		return broken(rc, err)
	case CutShort(rc.Conn()):
		return broken(rc, io.ErrUnexpectedEOF)
	}
	return nil
}

// A growing is a body whose memory follows what has arrived, twice as much at each
// step: a client that announces a large one and does not send it takes none from
// others. Of a body that is larger than its first piece, the slowest is ended when
// others need the memory.
type growing struct {
	bound *share.Bound
	key   share.Key
	conn  net.Conn
	begun time.Time // of the request
	body  []byte
	first int64 // bytes counted while the body is small
	// rest is what a larger body holds, and pace how fast it comes; nil while it is small.
	rest *share.Permit
	pace *pace
}

// take counts n bytes more.
func (g *growing) take(n int64) bool {
	if g.first+n <= firstOfLength {
		if !g.bound.Take(g.key, n) {
			return false
		}
		g.first += n
		return true
	}
	if g.rest == nil {
		g.pace = newPace(g.conn, g.begun)
		g.rest = g.bound.Permit(g.key, g.pace.end)
	}
	return g.rest.Await(context.Background(), n, roomPatience)
}

// keep leaves the bytes counted, and returns how many they are.
func (g *growing) keep() int64 {
	if g.rest == nil {
		return g.first
	}
	return g.first + g.rest.Keep()
}

// drop gives the bytes back.
func (g *growing) drop() { g.bound.Give(g.key, g.keep()) }

// read reads until there are most bytes or the stream ends; room is the size of
// the first piece.
func (g *growing) read(stream io.Reader, room, most int) error {
	for {
		more := int64(room - cap(g.body))
		if !g.take(more) {
			return problem.ErrOverloaded
		}
		g.body = append(make([]byte, 0, room), g.body...)[:len(g.body):room]
		for len(g.body) < room {
			got, err := stream.Read(g.body[len(g.body):room])
			g.body = g.body[:len(g.body)+got]
			if err != nil {
				return err
			}
			if g.rest == nil {
				continue
			}
			g.rest.Moved(got)
			if err := g.pace.reached(len(g.body)); err != nil {
				return err
			}
		}
		if len(g.body) == most {
			return nil
		}
		room = min(2*room, most)
	}
}

// CutShort reports whether the client had stopped sending when its body in
// chunks ended: then the last chunk is missing, which fasthttp forgives. Only
// the connections of api.Listen can tell.
func CutShort(c net.Conn) bool {
	e, ok := c.(interface{ Ended() bool })
	return ok && e.Ended()
}

// broken is the refusal of a body that could not be read to its end. Where the
// next request would start is not known, so there is none.
func broken(rc *fasthttp.RequestCtx, err error) error {
	rc.SetConnectionClose()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return ErrSlow
	}
	return ErrBroken
}
