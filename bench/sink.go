package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// hangFor bounds how long a sink leaves a delivery without an answer. It is longer than any usual
// delivery timeout.
const hangFor = 2 * time.Minute

// A Sink is all push consumers of a run, in one HTTP server on loopback.
type Sink struct {
	url       string
	server    *fasthttp.Server
	behaviour *Behaviour
	receive   func(consumer int, a arrival)
	asked     func(consumer int)
	closing   chan struct{}
	served    sync.WaitGroup
}

// StartSink listens on a free port. It calls receive for each delivery that the sink accepts,
// before the answer; the slices of an arrival are valid during the call. It calls asked for every
// request, as soon as it has arrived.
func StartSink(b *Behaviour, receive func(consumer int, a arrival), asked func(consumer int)) (*Sink, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start sink: %w", err)
	}
	s := &Sink{url: "http://" + ln.Addr().String() + "/", behaviour: b, receive: receive, asked: asked,
		closing: make(chan struct{})}
	s.server = &fasthttp.Server{
		Handler:               s.handle,
		MaxRequestBodySize:    2 * maxBodyBytes,
		NoDefaultServerHeader: true,
		NoDefaultDate:         true,
		Logger:                silent{},
	}
	s.served.Go(func() { _ = s.server.Serve(ln) }) // ends when the listener closes
	return s, nil
}

// URL returns the callback of a consumer.
func (s *Sink) URL(consumer int) string { return s.url + strconv.Itoa(consumer) }

// Close refuses new deliveries and waits a short time for those under way.
func (s *Sink) Close() error {
	close(s.closing)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.server.ShutdownWithContext(ctx)
	s.served.Wait()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("close sink: %w", err)
	}
	return nil
}

func (s *Sink) handle(rc *fasthttp.RequestCtx) {
	consumer, err := strconv.Atoi(strings.TrimPrefix(string(rc.Path()), "/"))
	if err != nil || consumer < 0 {
		rc.SetStatusCode(fasthttp.StatusNotFound)
		return
	}
	s.asked(consumer)
	if s.behaviour.Slow > 0 {
		s.wait(s.behaviour.Slow)
	}
	switch s.behaviour.draw() {
	case fateFail:
		rc.SetStatusCode(fasthttp.StatusInternalServerError)
	case fateThrottle:
		rc.SetStatusCode(fasthttp.StatusTooManyRequests)
		rc.Response.Header.Set("Retry-After", "1")
	case fateHang:
		s.wait(hangFor)
		rc.SetConnectionClose()
		rc.SetStatusCode(fasthttp.StatusServiceUnavailable)
	default:
		s.receive(consumer, arrival{
			identity: rc.Request.Header.Peek(identityHeader), key: rc.Request.Header.Peek(orderingHeader), body: rc.PostBody(),
			details: func() details { return detailsOf(&rc.Request.Header) },
		})
	}
}

// detailsOf reads the fields that an audit compares. It joins the values of a repeated field, so
// that they differ from the value that was sent.
func detailsOf(h *fasthttp.RequestHeader) details {
	field := func(name string) string { return string(bytes.Join(h.PeekAll(name), []byte(", "))) }
	return details{
		messageID: field("X-Broker-Message-ID"), contentType: field("Content-Type"), name: field(nameHeader), attempt: field(
			"X-Broker-Attempt"),
	}
}

func (s *Sink) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closing:
	}
}

// Metadata headers of messages: the identity where bodies are real ones, and in
// an audit the name of the body.
const (
	identityHeader = "X-Bench-Identity"
	nameHeader     = "X-Bench-Body"
)

// silent discards the messages of fasthttp about broken connections.
type silent struct{}

func (silent) Printf(string, ...any) {}
