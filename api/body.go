package api

import (
	"errors"
	"io"
	"sync"

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
	if n := rc.Request.Header.ContentLength(); n > max {
		return fasthttp.ErrBodyTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(stream, int64(max)+1))
	if err != nil {
		return err
	}
	if len(body) > max {
		return fasthttp.ErrBodyTooLarge
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
