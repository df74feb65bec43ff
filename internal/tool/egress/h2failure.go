package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrRefused says that an HTTP/2 consumer refused the request before it processed it (RFC 9113, 6.8
// and 8.7), again and again until the time was over.
var ErrRefused = errors.New("egress: the consumer refused the request unread (HTTP/2 GOAWAY or REFUSED_STREAM)")

// errNoH2 says that a server with an http URL does not speak HTTP/2, or wants HTTP/1.1 for a request
// (HTTP_1_1_REQUIRED). It has processed nothing.
var errNoH2 = errors.New("egress: the consumer does not speak HTTP/2")

// errH2 is a failure of HTTP/2 for which there is no better name.
var errH2 = errors.New("egress: the HTTP/2 connection failed before an answer")

// Waits before a refused request is sent again, on another connection where the consumer ended that
// one: the first repeat is at once, later waits double.
const firstRefusalWait, lastRefusalWait = 20 * time.Millisecond, time.Second

// noH2For is how long an http host that speaks no HTTP/2 gets HTTP/1.1 before it is asked again.
const noH2For = 10 * time.Minute

// codesH2 are the error codes of RFC 9113 as net/http names them.
var codesH2 = []string{"PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
	"FRAME_SIZE_ERROR",
	"CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "NO_ERROR"}

// errUnused says that the consumer ended the connection before it had a request.
var errUnused = errors.New("egress: the consumer ended the HTTP/2 connection before a request")

// errors11 are the failures of net/http that are about an answer over HTTP/1.1, which a consumer
// with an https URL may speak instead.
var errors11 = []struct {
	says string
	err  error
}{
	{"multiple Content-Length", errLengths},
	{"Content-Length", errLength},
	{"transfer encoding", errTransfer},
	{"malformed HTTP", errNotHTTP},
	{"malformed MIME header", errHeader},
	{"chunk", errChunks},
}

// failure returns why an exchange failed, in the words of this package. The errors of HTTP/2 in
// net/http are not exported, so that their text is all there is; a test with a server for each kind
// notices a change.
func (h *h2Client) failure(ctx context.Context, err error) error {
	var de *dialError
	switch {
	case h.c.closed():
		return ErrClosed
	case errors.As(err, &de):
		return de
	case errors.Is(err, errNoH2):
		return errNoH2
	case errors.Is(err, errFlood):
		return errFlood
	case errors.Is(err, http.ErrBodyReadAfterClose): // net/http gave up the stream before its end
		return ErrRefused
	case ctx.Err() != nil || isTimeout(err):
		return ErrTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w (%w)", ErrNoAnswer, err)
	}
	text := err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case has("REFUSED_STREAM"), has("graceful shutdown GOAWAY"), has("received GOAWAY from server"),
		has("LastStreamID=0,"), has("client conn not usable"),
		has("cannot rewind body"): // the connection took no more requests
		return ErrRefused
	case has("HTTP_1_1_REQUIRED"):
		return errNoH2
	case has("could not be established"):
		return errUnused
	case has("response headers exceeded"), has("header list"):
		return errHeadSize
	case has("client connection"), has("client conn "):
		return ErrNoAnswer
	case alert(err):
		return fmt.Errorf("egress: TLS: %w", err)
	}
	for _, e := range errors11 {
		if has(e.says) {
			return e.err
		}
	}
	for _, code := range codesH2 {
		if has(code) {
			return fmt.Errorf("egress: the consumer ended the HTTP/2 stream (%s)", code)
		}
	}
	return errH2
}

// brokeOff returns why the body of an answer did not come to its end.
func (h *h2Client) brokeOff(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return h.failure(ctx, err)
	case isTimeout(err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return bodyError(err, false)
	}
	return fmt.Errorf("%w: %w", ErrIncomplete, h.failure(ctx, err))
}

// A priorConn is a connection on which the client speaks HTTP/2 without having asked. Whatever the
// server says first must be a SETTINGS frame, whose first byte is zero; a text is not. A server that
// closes the connection before it has said anything speaks no HTTP/2 either.
type priorConn struct {
	net.Conn
	heard  bool // only the reader of the connection uses it
	speaks atomic.Bool
}

func (p *priorConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 && !p.heard {
		if b[0] != 0 {
			return 0, errNoH2
		}
		p.heard = true
		p.speaks.Store(true)
	}
	return n, err
}

// pause waits before a refused request is sent again. It reports whether there is time for that.
func pause(ctx context.Context, refusals int, deadline time.Time) bool {
	if refusals == 1 {
		return time.Now().Before(deadline)
	}
	wait := min(firstRefusalWait<<min(refusals-2, 10), lastRefusalWait)
	if !time.Now().Add(wait).Before(deadline) {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
