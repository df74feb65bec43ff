package api

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// maxSkipped is how much of a body that nobody read is read to keep the
// connection; past it the connection is closed instead.
const maxSkipped = 64 << 10

// wholeBody reads the body of a request into memory before next, at most max
// bytes; a larger one is 413. The server streams bodies, so that the batch door
// can take any length; every other door of the control plane comes through here.
func wholeBody(max int, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		if err := readBody(rc, max); err != nil {
			rc.SetConnectionClose()
			refuse(rc, err)
			return
		}
		next(rc)
	}
}

func readBody(rc *fasthttp.RequestCtx, max int) error {
	stream := rc.RequestBodyStream()
	if stream == nil {
		return nil
	}
	length := rc.Request.Header.ContentLength() // below 0: in chunks
	if length > max {
		return fasthttp.ErrBodyTooLarge
	}
	var head *fasthttp.RequestHeader
	if length < 0 {
		head = &fasthttp.RequestHeader{}
		rc.Request.Header.CopyTo(head)
	}
	body, err := io.ReadAll(io.LimitReader(stream, int64(max)+1))
	switch {
	case err != nil:
		return err
	case len(body) > max:
		return fasthttp.ErrBodyTooLarge
	case len(body) < length || length < 0 && ended(rc.Conn()): // cut short, which fasthttp forgives
		return io.ErrUnexpectedEOF
	}
	if head != nil {
		// fasthttp adds the trailer to the headers, where a token would count
		// that a proxy has not seen.
		head.CopyTo(&rc.Request.Header)
	}
	rc.Request.SetBody(body)
	return nil
}

// endBody makes sure that nothing of a streamed body is left on the connection,
// where it would be taken for the next request: the rest is skipped, or the
// connection closed.
func endBody(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		next(rc)
		stream := rc.RequestBodyStream() // gone when the body was replaced by a read one
		if stream == nil || rc.Response.IsBodyStream() || rc.Response.ConnectionClose() {
			return // a streamed answer is still reading, and sees to it itself
		}
		if rc.Response.StatusCode() >= fasthttp.StatusBadRequest {
			// Refused before its body was read, which may never come.
			_ = rc.Conn().SetReadDeadline(time.Now().Add(drainTimeout))
		}
		if !skip(stream) {
			rc.SetConnectionClose()
			drain(rc.Conn())
		}
	}
}

var skipBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// skip reads what is left of a body, and reports whether that was all.
func skip(body io.Reader) bool {
	buf := skipBuffers.Get().(*[4 << 10]byte)
	defer skipBuffers.Put(buf)
	for total := 0; total <= maxSkipped; {
		n, err := body.Read(buf[:])
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		total += n
	}
	return false
}
