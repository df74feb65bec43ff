package front

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// handshakeTimeout bounds a TLS handshake, whatever the client sends meanwhile.
	handshakeTimeout = 10 * time.Second
	// idleTimeout bounds the time without a request on a connection of HTTP/2: that of HTTP/1.1.
	idleTimeout = 75 * time.Second
	// maxHeaderBytes is above the bound of the HTTP/1.1 server, which answers a larger head with its
	// own words; net/http refuses more than this.
	maxHeaderBytes = 32 << 10
	// mostStreams are the requests under way on one connection. A client with more waits, as the
	// protocol has it.
	mostStreams = 250
	// unreadStream and unreadConn are what a client may send before it is read.
	unreadStream, unreadConn = 128 << 10, 512 << 10
	// silence is how long nothing may come on a connection until it is asked for a sign of life, and
	// signOfLife how soon that must come.
	silence, signOfLife = 30 * time.Second, 15 * time.Second
)

// Options assemble a Front.
type Options struct {
	TLS, H2C     net.Listener             // of api.Listen; nil: none
	Certificates *Certificates            // for TLS
	Serve        func(net.Listener) error // of the HTTP/1.1 server; returns when Accept of its listener fails
	Streams      *share.Bound             // of requests under way, by the address of the client
	Registry     prometheus.Registerer
	Log          *slog.Logger
}

// A Front serves HTTP/2 and TLS.
type Front struct {
	o        Options
	inside   *entrance // of the HTTP/1.1 server
	secured  *entrance // of the server of HTTP/2 over TLS
	secure   *http.Server
	plain    *http.Server
	counts   *counts
	stopping atomic.Bool

	mu      sync.Mutex
	waiting map[net.Conn]struct{} // connections over TLS that have not begun a request; nil: stopped
	tunnels map[net.Conn]struct{}
}

// New returns a front. Nothing runs yet.
func New(o Options) *Front {
	f := &Front{o: o, inside: newEntrance(), secured: newEntrance(), waiting: map[net.Conn]struct{}{},
		tunnels: map[net.Conn]struct{}{}}
	f.counts = newCounts(o)
	f.secure = f.server("h2", func(p *http.Protocols) { p.SetHTTP2(true) })
	f.plain = f.server("h2c", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true); p.SetHTTP1(true) })
	return f
}

// Addrs are the addresses of the listeners.
func (f *Front) Addrs() (all []net.Addr) {
	for _, ln := range []net.Listener{f.o.TLS, f.o.H2C} {
		if ln != nil {
			all = append(all, ln.Addr())
		}
	}
	return all
}

// server returns a server of HTTP/2.
func (f *Front) server(protocol string, set func(*http.Protocols)) *http.Server {
	var p http.Protocols
	set(&p)
	return &http.Server{
		Handler:           f,
		Protocols:         &p,
		ReadHeaderTimeout: firstByte,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
		ConnState:         func(c net.Conn, state http.ConnState) { f.changed(protocol, c, state) },
		ErrorLog:          log.New(quiet{f.o.Log}, "", 0),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: mostStreams, MaxReceiveBufferPerStream: unreadStream,
			MaxReceiveBufferPerConnection: unreadConn, SendPingTimeout: silence, PingTimeout: signOfLife,
			WriteByteTimeout: intake.Patience, CountError: f.counts.broken},
	}
}

// quiet logs the lines of net/http about broken connections at level debug: nobody need act on them.
type quiet struct{ log *slog.Logger }

func (q quiet) Write(p []byte) (int, error) {
	q.log.Debug("connection", "error", strings.TrimSpace(string(p)))
	return len(p), nil
}

// changed is told of the states of connections of HTTP/2.
func (f *Front) changed(protocol string, c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		f.counts.opened(protocol)
	case http.StateIdle:
		clientOf(c).Rest()
	case http.StateClosed:
		f.counts.closed(protocol)
	}
}

// Run serves until Shutdown or Close, and returns once all connections are closed. Without listeners it
// returns at once.
func (f *Front) Run(ctx context.Context) {
	if f.o.TLS == nil && f.o.H2C == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg, watch sync.WaitGroup
	wg.Go(func() { f.ended("inside", f.o.Serve(lasting{f.inside})) })
	if f.o.TLS != nil {
		watch.Go(func() { guard.Loop(ctx, "certificates", f.watch) })
		wg.Go(func() { f.ended("h2", f.secure.Serve(f.secured)) })
		wg.Go(func() { f.ended("TLS", f.accept()) })
	}
	if f.o.H2C != nil {
		wg.Go(func() { f.ended("h2c", f.plain.Serve(f.o.H2C)) })
	}
	wg.Wait()
	cancel()
	watch.Wait()
}

// ended logs the end of a server that nobody stopped.
func (f *Front) ended(which string, err error) {
	if !f.stopping.Load() && err != nil {
		f.o.Log.Error("a listener has ended", "listener", which, "error", err)
	}
}

// accept takes connections over TLS, each in a goroutine of its own, until the listener is closed. It
// waits for them.
func (f *Front) accept() error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := f.o.TLS.Accept()
		if err != nil {
			return err
		}
		wg.Go(func() {
			_ = guard.Do("tls connection", func() error { f.greet(c); return nil })
		})
	}
}

// greet does the handshake, and hands the connection to the server of its protocol.
func (f *Front) greet(c net.Conn) {
	conn := tls.Server(c, f.o.Certificates.config())
	if !f.await(conn) {
		_ = c.Close()
		return
	}
	defer f.settle(conn)
	end := time.Now().Add(handshakeTimeout)
	if c.SetReadDeadline(end) != nil || c.SetWriteDeadline(end) != nil {
		_ = c.Close()
		return
	}
	if err := conn.Handshake(); err != nil {
		f.counts.handshakes.Inc()
		f.o.Log.Debug("a TLS handshake failed", "address", c.RemoteAddr().String(), "error", err)
		_ = c.Close()
		return
	}
	_ = c.SetWriteDeadline(time.Time{}) // it is closed if this fails
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		f.counts.opened("http/1.1")
		defer f.counts.closed("http/1.1")
		f.tunnel(conn)
		return
	}
	_ = c.SetReadDeadline(time.Time{}) // as above
	if f.secured.enter(conn) != nil {
		_ = c.Close()
	}
}

// await remembers a connection that has not begun a request, unless the front is stopped.
func (f *Front) await(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		return false
	}
	f.waiting[c] = struct{}{}
	return true
}

// settle forgets a connection of await.
func (f *Front) settle(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, c)
}

// keep remembers a tunnel until the function that it returns is called.
func (f *Front) keep(c net.Conn) (forget func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.waiting, c)
	f.tunnels[c] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.tunnels, c)
	}
}

// Drain makes each connection of HTTP/2 take no other request after the next answer on it.
func (f *Front) Drain() {
	if f != nil {
		f.stopping.Store(true)
	}
}

// Shutdown closes the listeners and waits for the requests of HTTP/2 under way; when ctx ends first,
// it ends them. Requests of HTTP/1.1 over TLS end with the shutdown of that server, which may run at the
// same time and waits for the end of this one.
func (f *Front) Shutdown(ctx context.Context) error {
	if f == nil {
		return nil
	}
	f.Drain()
	err := f.closeListeners()
	var wg sync.WaitGroup
	var stopped [2]error
	for i, s := range []*http.Server{f.secure, f.plain} {
		wg.Go(func() {
			err := s.Shutdown(ctx)
			if err != nil && !errors.Is(err, net.ErrClosed) { // its listener is closed already
				stopped[i] = err
			}
			if ctx.Err() != nil {
				_ = s.Close() // as above
			}
		})
	}
	wg.Wait()
	return errors.Join(err, stopped[0], stopped[1], f.inside.Close())
}

// Close ends everything at once. To close again does no harm.
func (f *Front) Close() {
	if f == nil {
		return
	}
	f.Drain()
	_ = f.closeListeners() // nobody waits for what it would say
	_ = f.secure.Close()
	_ = f.plain.Close()
	_ = f.inside.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.tunnels {
		_ = c.(*tls.Conn).NetConn().Close()
	}
}

// closeListeners closes the listeners, and the connections over TLS without a request.
func (f *Front) closeListeners() (err error) {
	for _, ln := range []net.Listener{f.o.TLS, f.o.H2C} {
		if ln == nil {
			continue
		}
		if e := ln.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.waiting {
		_ = c.(*tls.Conn).NetConn().Close()
	}
	f.waiting = nil
	return err
}
