package api

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// maxSkipped is the number of bytes of an unread body that endBody skips to keep the
// connection. It closes the connection when the body is longer.
const maxSkipped = 64 << 10

// skipTimeout is how long endBody waits for such a body.
const skipTimeout = 5 * time.Second

// endBody removes the unread rest of a streamed body from the connection, where the server
// would take it for the next request. It skips a short rest, or closes the connection.
func endBody(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		next(rc)
		stream := rc.RequestBodyStream() // nil when the body has been read into memory
		if stream == nil || rc.Response.IsBodyStream() {
			return // a streamed answer still reads the body, and ends it itself
		}
		switch {
		case rc.Response.ConnectionClose(): // the rest only matters to the answer, see linger
			return
		case rc.Request.Header.ContentLength() > maxSkipped && rc.Response.StatusCode() >= fasthttp.StatusBadRequest:
			rc.SetConnectionClose()
			linger(rc.Conn())
			return
		case rc.Response.StatusCode() >= fasthttp.StatusBadRequest:
			// The request was refused before its body was read. The body may never come.
			_ = rc.Conn().SetReadDeadline(time.Now().Add(skipTimeout))
		}
		if !skip(stream) {
			rc.SetConnectionClose()
			linger(rc.Conn())
		}
	}
}

// skipBuffers are small: a thousand refused clients that continue to send take four
// megabytes.
var skipBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// skip reads the rest of a body within maxSkipped, and reports whether it reached the end.
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
