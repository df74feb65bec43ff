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

// endBody makes sure that nothing of a streamed body is left on the connection,
// where it would be taken for the next request: the rest is skipped, or the
// connection closed.
func endBody(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		next(rc)
		stream := rc.RequestBodyStream() // gone when the body was replaced by a read one
		if stream == nil || rc.Response.IsBodyStream() {
			return // a streamed answer is still reading, and sees to it itself
		}
		switch {
		case rc.Response.ConnectionClose(): // what comes matters to the answer only, see drain
			_ = rc.Conn().SetReadDeadline(time.Now().Add(drainPause))
		case rc.Response.StatusCode() >= fasthttp.StatusBadRequest:
			// Refused before its body was read, which may never come.
			_ = rc.Conn().SetReadDeadline(time.Now().Add(drainTimeout))
		}
		if !skip(stream) {
			rc.SetConnectionClose()
			drain(rc.Conn())
		}
	}
}

// skipBuffers are small: a thousand clients that were refused, and go on sending,
// take four megabytes.
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
