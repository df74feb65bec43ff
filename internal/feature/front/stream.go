package front

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A Client is the connection of a client as api.Listen accepts it, beyond a net.Conn.
type Client interface {
	net.Conn
	// Begin says that a request is there. It returns true if the connection is to take no other one.
	Begin() (last bool)
	// Rest says that there is none.
	Rest()
	// Late reports whether the connection has no place.
	Late() bool
}

// An unknown is a connection that api.Listen did not accept. It is not counted.
type unknown struct{ net.Conn }

func (unknown) Begin() bool { return false }
func (unknown) Rest()       {}
func (unknown) Late() bool  { return false }

// clientOf returns the connection of the client under one of net/http.
func clientOf(c net.Conn) Client {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if known, ok := c.(Client); ok {
		return known
	}
	return unknown{c}
}

type connKey struct{}

// withConn puts the connection into the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

var (
	errVersion = problem.New(http.StatusBadRequest, "bad_request",
		"This listener speaks HTTP/2 only, with prior knowledge (h2c). HTTP/1.1 is at BROKER_LISTEN, and over TLS at "+
			"BROKER_TLS_LISTEN.")
	errMalformed = problem.New(http.StatusBadRequest, "bad_request", "The request is not well-formed HTTP.")
	errLength    = problem.New(http.StatusBadRequest, "bad_request",
		"The header content-length is not the length of the body: it is no number, is there more than once, or the body "+
			"is shorter or longer. Nothing of a body that came in part was taken for a whole one.")
	errStreams = &problem.Problem{Status: http.StatusServiceUnavailable, Code: "overloaded", RetryAfter: 1,
		Detail: "Too many requests of HTTP/2 are under way from this address, or in all. Nothing was changed; try again."}
)

// ServeHTTP hands a request of HTTP/2 to the HTTP/1.1 server, and its answer back.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok || r.ProtoMajor < 2 {
		w.Header().Set("Connection", "close")
		refuse(w, errVersion)
		return
	}
	client := clientOf(conn)
	late := client.Late()
	last := client.Begin()
	if late { // its deadline was that of the first request, or ends with its place
		_ = client.SetReadDeadline(time.Time{}) // a closed connection says so when it is read
	}
	if !writable(r) {
		refuse(w, errMalformed)
		return
	}
	if !measured(r) {
		refuse(w, errLength)
		return
	}
	key := share.Address(share.AddressOf(conn.RemoteAddr()))
	if !f.o.Streams.Take(key, 1) {
		refuse(w, errStreams)
		return
	}
	p := &pace{tell: http.NewResponseController(w).SetWriteDeadline}
	defer p.end()
	link := newLink()
	defer link.abort()
	in := &inside{link: link, local: conn.LocalAddr(), remote: conn.RemoteAddr(), slow: p, late: client.Late,
		closed: make(chan struct{}), leave: func() { f.o.Streams.Give(key, 1) }}
	if f.inside.enter(wrap(in, r.TLS)) != nil {
		_ = in.Close() // it never fails
		refuse(w, problem.ErrDraining)
		return
	}
	a := &answer{w: w, pace: p, last: last || f.stopping.Load()}
	if err := relay(link, a, r); err != nil {
		// A stream that was reset counts as long as its handler runs: net/http bounds these, too.
		link.abort()
		<-in.closed
		if errors.Is(err, errCut) && !a.begun && r.Context().Err() == nil {
			refuse(w, errLength)
			return
		}
		panic(http.ErrAbortHandler) // the stream ends with an error, as a connection of HTTP/1.1 would
	}
}

// wrap makes an inside one of TLS.
func wrap(in *inside, state *tls.ConnectionState) net.Conn {
	if state == nil {
		return in
	}
	s := &secure{inside: in, state: *state}
	s.state.NegotiatedProtocol = ""
	return s
}

// relay writes the request and passes the answer on. The answer may come before the end of the
// request. A client that leaves breaks the link. errCut: the body was not as long as announced.
func relay(link *link, a *answer, r *http.Request) (failed error) {
	stop := context.AfterFunc(r.Context(), link.abort)
	defer stop()
	buf := pieces.Get().(*[]byte)
	_, err := link.requests.Write(head((*buf)[:0], r))
	pieces.Put(buf)
	if err == nil && r.ContentLength != 0 {
		sent := make(chan struct{})
		var cut error
		go func() {
			defer close(sent)
			if cut = sendBody(link.requests, r); cut != nil {
				link.abort()
			}
		}()
		defer func() {
			link.abort()
			_ = r.Body.Close() // the read under way returns
			<-sent
			if failed != nil {
				failed = errors.Join(failed, cut)
			}
		}()
	}
	return a.relay(r, link.answers)
}

// refuse answers a request that the HTTP/1.1 server does not get.
func refuse(w http.ResponseWriter, p *problem.Problem) {
	body := p.JSON("")
	w.Header().Set("Content-Type", problem.ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
}
