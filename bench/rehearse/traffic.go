package rehearse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	// inFlight bounds the posts under way. When it is reached, nothing is posted until one ends.
	inFlight = 400
	// askAgain is the time between two posts of a message without an answer.
	askAgain = 500 * time.Millisecond
	// postTimeout is longer than a broker takes to answer 503.
	postTimeout = 8 * time.Second
)

// A producer posts messages and learns what became of them.
type producer struct {
	client  *penstock.Client
	channel string
	books   *books
	under   sync.WaitGroup
}

// run posts at a rate until ctx ends. Messages without an answer are asked about until asking ends.
func (p *producer) run(ctx, asking context.Context, rate float64) {
	places := make(chan struct{}, inFlight)
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		n := p.books.begin()
		p.under.Go(func() {
			defer func() { <-places }()
			for !p.post(asking, n) {
				select {
				case <-asking.Done():
					return
				case <-time.After(askAgain):
				}
			}
		})
	}
}

// post sends a message and reports whether its fate is known.
func (p *producer) post(ctx context.Context, n int) bool {
	id := p.books.id(n)
	_, err := p.client.Publish(ctx, p.channel, penstock.Message{ID: id, Payload: []byte(id), ContentType: "text/plain"})
	var answer *penstock.Error
	switch {
	case err == nil:
		p.books.tell(n, accepted, "")
	case errors.As(err, &answer) && answer.Status != 0 && problem.NothingStored(answer.Status, answer.Code):
		p.books.tell(n, refused, fmt.Sprintf("%d %s", answer.Status, answer.Code))
	case neverSent(err):
		p.books.tell(n, refused, "no connection")
	default:
		p.books.tell(n, unknown, "")
		return false
	}
	return true
}

// neverSent reports whether a request has not left this machine.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// A sink is the push consumer.
type sink struct {
	books  *books
	down   atomic.Bool
	server *http.Server
	url    string
}

// listen starts a push consumer.
func listen(address, url string, b *books) (*sink, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--sink: %w", err)
	}
	s := &sink{books: b, url: url}
	if s.url == "" {
		s.url = "http://" + l.Addr().String() + "/"
	}
	s.server = &http.Server{Handler: s, ReadTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }()
	return s, nil
}

// ServeHTTP takes a delivery. A consumer that is down ends the connection without an answer.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if s.down.Load() || err != nil {
		panic(http.ErrAbortHandler)
	}
	s.books.arrive(push, string(body)) // with identity=minimal there is no other ID of ours
	w.WriteHeader(http.StatusNoContent)
}

// A puller is the pull consumer: a worker that starts and stops.
type puller struct {
	client            *penstock.Client
	channel, consumer string
	books             *books
	stop              context.CancelFunc
	ended             chan struct{}
	err               error
}

// start begins to work.
func (p *puller) start(ctx context.Context) error {
	w, err := p.client.Worker(p.channel, penstock.WorkerOptions{Concurrency: 16, Lease: 10 * time.Second,
		Wait: 2 * time.Second, StopTimeout: 5 * time.Second, Channel: p.channel, Consumer: p.consumer})
	if err != nil {
		return err
	}
	w.HandleOther(func(_ context.Context, d *penstock.Delivery) error {
		p.books.arrive(pull, d.MessageID)
		return nil
	})
	ctx, p.stop = context.WithCancel(ctx)
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		defer close(ended)
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			p.err = err
		}
	}()
	return nil
}

// finish stops working and waits for what is under way.
func (p *puller) finish() {
	if p.stop != nil {
		p.stop()
		<-p.ended
		p.stop = nil
	}
}

// failure is why the worker has ended by itself.
func (p *puller) failure() error {
	select {
	case <-p.ended:
		return p.err
	default:
		return nil
	}
}

// silent drops the log of the clients: what they meet is what is rehearsed.
var silent = slog.New(slog.DiscardHandler)
