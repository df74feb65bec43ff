package intake

import (
	"bytes"
	"errors"
	"io"
	"net"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/problem"
)

// The refusals of a body. The bound on all bodies refuses with
// problem.ErrOverloaded.
var (
	ErrTooLarge = problem.New(413, "body_too_large", "The body is larger than this broker accepts.")
	ErrBroken   = problem.New(400, "bad_request", "The body of the request did not arrive whole.")
	ErrSlow     = problem.New(408, "request_timeout", "The request did not arrive in time.")
)

// The first piece of memory for a body, bytes: of a known length, and in chunks.
// Most messages fit into it.
const firstOfLength, firstOfChunks = 16 << 10, 1 << 10

// Read reads the body of a request, at most that many bytes, into memory of its
// own: the request's memory is used again as soon as the handler returns. taken is
// what the caller gives back to b when it is done with the body; after an error
// it is 0. The connection of a body that did not arrive whole is closed with the
// answer.
func (b *Bound) Read(rc *fasthttp.RequestCtx, most int) (body []byte, taken int64, err error) {
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
	g := growing{bound: b, pace: pace{conn: rc.Conn(), begun: rc.Time(), next: paceStep}}
	if n >= 0 {
		err = g.read(stream, min(n, firstOfLength), n)
	} else { // one byte more shows that it is too large
		err = g.read(stream, min(most+1, firstOfChunks), most+1)
	}
	if err = judge(rc, n, len(g.body), most, err); err != nil {
		b.Give(g.taken)
		return nil, 0, err
	}
	if cap(g.body)-len(g.body) > len(g.body)/4 { // it may be kept for long
		g.body = bytes.Clone(g.body)
	}
	return g.body, g.taken, nil
}

// judge returns the problem of a body of which got bytes came before err; n is
// its announced length, negative for chunks.
func judge(rc *fasthttp.RequestCtx, n, got, most int, err error) error {
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

// A growing is a body whose memory follows what has arrived, four times as much at
// each step: a client that announces a large one and does not send it takes none
// from others.
type growing struct {
	bound *Bound
	pace  pace
	body  []byte
	taken int64 // bytes counted
}

// read reads until there are most bytes or the stream ends; room is the size of
// the first piece.
func (g *growing) read(stream io.Reader, room, most int) error {
	for {
		more := int64(room - cap(g.body))
		if !g.bound.Take(more) {
			return problem.ErrOverloaded
		}
		g.taken += more
		g.body = append(make([]byte, 0, room), g.body...)[:len(g.body):room]
		for len(g.body) < room {
			got, err := stream.Read(g.body[len(g.body):room])
			g.body = g.body[:len(g.body)+got]
			if err != nil {
				return err
			}
			if err := g.pace.reached(len(g.body)); err != nil {
				return err
			}
		}
		if len(g.body) == most {
			return nil
		}
		room = min(4*room, most)
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
