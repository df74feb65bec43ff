package api

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// readTimeout bounds a head with the beginning of its body. Package intake gives a large
	// body more time.
	readTimeout = 30 * time.Second
	// writeTimeout bounds a small answer. The connections of Listen give a large one more time, as
	// package intake does a large body.
	writeTimeout = intake.Patience
	// idleTimeout bounds the time between requests. It is longer than the usual 60 s of load
	// balancers, because a request fails when the broker closes while the balancer sends.
	idleTimeout = 75 * time.Second
	// maxHeaderBytes bounds the request line and headers, which the read buffer must contain.
	maxHeaderBytes = 16 << 10
)

// ServerOptions are the limits of a server.
type ServerOptions struct {
	Concurrency int          // connections served at once; 0: fasthttp's default, 256 Ki
	Answers     *share.Bound // of large answers; nil: one of its own
	Log         *slog.Logger
}

// NewServer returns a server for h, usually the Handler of an API. It refuses requests that
// are too large, too slow or ambiguous, with answers of the form that h uses.
func NewServer(h fasthttp.RequestHandler, o ServerOptions) *fasthttp.Server {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Answers == nil {
		o.Answers = answer.NewBound(defaultBodies)
	}
	return &fasthttp.Server{
		Handler:                      lingering(contain(seated(settled(strict(endBody(h)), o.Answers)))),
		ConnState:                    resting,
		StreamRequestBody:            true, // the handlers bound their bodies: see package intake
		MaxRequestBodySize:           1,    // with streaming: only the bytes that the server awaits before the handler
		ErrorHandler:                 refuseBroken,
		Logger:                       serverLog{o.Log},
		Concurrency:                  o.Concurrency,
		ReadBufferSize:               maxHeaderBytes,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		TCPKeepalive:                 true,
		CloseOnShutdown:              true,
		DisablePreParseMultipartForm: true, // a body is bytes, whatever its content type is
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
	}
}

// settled counts what is large of the answers of h.
func settled(h fasthttp.RequestHandler, answers *share.Bound) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		h(rc)
		answer.Settle(rc, answers)
	}
}

// strict refuses headers that fasthttp accepts and a proxy in front of the broker may read
// differently: the two would disagree about the end of the request. It costs one pass over
// the header bytes.
func strict(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	twice := endBody(func(rc *fasthttp.RequestCtx) { refuse(rc, errTwice) })
	return func(rc *fasthttp.RequestCtx) {
		seen, err := inspect(rc.Request.Header.RawHeaders())
		switch err {
		case errAmbiguous:
			rc.SetConnectionClose()
			refuse(rc, errAmbiguous)
			return
		case errTwice:
			twice(rc)
			return
		}
		seen.keep(rc)
		if rc.IsConnect() { // there is no tunnel, so the next bytes are no request
			rc.SetConnectionClose()
		}
		next(rc)
	}
}

var (
	errAmbiguous = errors.New("api: ambiguous request header")
	errTwice     = errors.New("api: a header of the broker occurs twice")
)

// usualNames is the number of X-Broker- headers up to which inspect allocates and sorts
// nothing. Clients send six or seven.
const usualNames = 16

// inspect returns errAmbiguous when a header block has a folded line (obsolete since RFC
// 7230), a line that does not end in CR LF, a name with a blank in it, a transfer encoding
// other than chunked, or both a length and an encoding. It returns errTwice when two
// X-Broker- headers have the same name: the broker would read the first one, and a proxy
// that checks tokens perhaps the last. It also returns which X-Broker- headers it saw: the route
// refuses those that it does not know.
func inspect(block []byte) (seen seenHeaders, err error) {
	length, encoding := false, false
	var space [usualNames][]byte
	names := space[:0]
	for len(block) > 0 {
		line := block
		if end := bytes.IndexByte(block, '\n'); end >= 0 {
			line, block = block[:end], block[end+1:]
		} else {
			block = nil
		}
		if len(line) == 0 || line[len(line)-1] != '\r' {
			return seen, errAmbiguous
		}
		if line = line[:len(line)-1]; len(line) == 0 {
			continue // the end of the block
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return seen, errAmbiguous
		}
		name, value := line[:colon], line[colon+1:]
		if bytes.IndexByte(name, ' ') >= 0 || bytes.IndexByte(name, '\t') >= 0 { // a folded line too
			return seen, errAmbiguous
		}
		switch name[0] {
		case 'C', 'c':
			length = length || isName(name, fasthttp.HeaderContentLength)
		case 'T', 't':
			if isName(name, fasthttp.HeaderTransferEncoding) {
				encoding = true
				if !isName(bytes.Trim(value, " \t"), "chunked") {
					return seen, errAmbiguous
				}
			}
		case 'X', 'x':
			if n := len(brokerPrefix); len(name) >= n && (string(name[:n]) == brokerPrefix || isName(name[:n], brokerPrefix)) {
				names = append(names, name)
				seen.see(name)
			}
		}
	}
	if length && encoding {
		return seen, errAmbiguous
	}
	if repeated(names) {
		return seen, errTwice
	}
	return seen, nil
}

// repeated reports whether two of these header names are the same. It sorts them when they
// are too many for a comparison of each pair.
func repeated(names [][]byte) bool {
	if len(names) > usualNames {
		slices.SortFunc(names, compareNames)
		for i := 1; i < len(names); i++ {
			if compareNames(names[i-1], names[i]) == 0 {
				return true
			}
		}
		return false
	}
	for i, name := range names {
		for _, earlier := range names[:i] {
			if len(name) == len(earlier) && compareNames(name, earlier) == 0 {
				return true
			}
		}
	}
	return false
}

// compareNames orders header names by length, which usually decides, then by their bytes in
// lower case.
func compareNames(a, b []byte) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	for i := len(a) - 1; i >= 0; i-- { // from the end, because the beginnings are the same
		x, y := a[i], b[i]
		if 'A' <= x && x <= 'Z' {
			x += 'a' - 'A'
		}
		if 'A' <= y && y <= 'Z' {
			y += 'a' - 'A'
		}
		if x != y {
			return int(x) - int(y)
		}
	}
	return 0
}

func isName(b []byte, name string) bool {
	return len(b) == len(name) && strings.EqualFold(string(b), name)
}

// refuseBroken answers a request that could not be read. The server then closes the connection,
// because the start of the next request is unknown.
func refuseBroken(rc *fasthttp.RequestCtx, err error) {
	refuse(rc, err)
	linger(rc.Conn())
}

// refuse answers a request that is not well-formed.
func refuse(rc *fasthttp.RequestCtx, err error) {
	setRequestID(rc)
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	p := problem.New(fasthttp.StatusBadRequest, "bad_request", "The request is not well-formed HTTP.")
	switch {
	case errors.Is(err, errTwice):
		p = problem.New(fasthttp.StatusBadRequest, "duplicate_header",
			"A header whose name begins with X-Broker- occurs more than once.")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		p = problem.New(fasthttp.StatusRequestEntityTooLarge, "body_too_large",
			"The body is larger than this broker accepts.")
	case errors.As(err, &small):
		p = problem.New(fasthttp.StatusRequestHeaderFieldsTooLarge, "header_too_large",
			"The request line and headers have more than 16 KiB.")
	case errors.As(err, &timeout) && timeout.Timeout():
		p = problem.New(fasthttp.StatusRequestTimeout, "request_timeout", "The request did not arrive in time.")
	}
	Refuse(rc, p)
}

// serverLog logs fasthttp's lines about broken connections at level debug, because an
// operator need not act on them.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Printf(format string, args ...any) {
	l.log.Debug("connection", "error", fmt.Sprintf(format, args...))
}
