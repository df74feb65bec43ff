package egress

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// callsAtOnce bounds the requests of Web under way, callsPerHost those to one host and port.
	callsAtOnce, callsPerHost = 512, 32
	// callYoung is the age from which a request that moves slower than fastCall, bytes a second, is
	// ended where others wait for its place.
	callYoung, fastCall = 5 * time.Second, 64 << 10
)

// For says on whose account the requests with a context are sent: each has a part of the places.
func For(ctx context.Context, who share.Key) context.Context {
	return context.WithValue(ctx, account{}, who)
}

// account is the key of For in a context.
type account struct{}

// A calls divides the requests of Web: all of them by host, so that a host that hangs stops no others,
// and those to one host by account, so that no account takes a host that others call too.
type calls struct {
	all *share.Bound

	mu    sync.Mutex
	hosts map[string]*calledHost
}

// A calledHost has requests under way, or that wait.
type calledHost struct {
	places *share.Bound
	users  int
}

func newCalls() *calls {
	return &calls{hosts: map[string]*calledHost{}, all: share.New(share.Options{Name: "calls", Most: callsAtOnce,
		Young: callYoung, Fast: fastCall, Others: true})}
}

// Bounds returns what the requests of Web share.
func (c *Client) Bounds() []*share.Bound { return []*share.Bound{c.calls.all} }

func (c *calls) host(address string) *calledHost {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[address]
	if h == nil {
		h = &calledHost{places: share.New(share.Options{Most: callsPerHost, Young: callYoung, Fast: fastCall, Others: true})}
		c.hosts[address] = h
	}
	h.users++
	return h
}

func (c *calls) leave(address string, h *calledHost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(c.hosts, address)
	}
}

// A call is a request in its places. Its context ends with it, and under pressure.
type call struct {
	io.ReadCloser // the body of the answer
	places        []*share.Permit
	over          func() // once
}

// begin waits for the places of a request.
func (c *calls) begin(ctx context.Context, address string) (context.Context, *call, error) {
	who, _ := ctx.Value(account{}).(share.Key)
	h := c.host(address)
	inside, stop := context.WithCancel(ctx)
	of := &call{places: []*share.Permit{h.places.Permit(who, stop), c.all.Permit(share.Host(address), stop)}}
	of.over = sync.OnceFunc(func() {
		for _, p := range of.places {
			p.Close()
		}
		stop()
		c.leave(address, h)
	})
	for _, p := range of.places {
		if err := p.Wait(ctx, 1); err != nil {
			of.over()
			return nil, nil, err
		}
	}
	return inside, of, nil
}

// Read is part of the body of the answer.
func (c *call) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	for _, p := range c.places {
		p.Moved(n)
	}
	return n, err
}

// Close ends the call.
func (c *call) Close() error {
	err := c.ReadCloser.Close()
	c.over()
	return err
}

// send sends a request in its places.
func (c *calls) send(r *http.Request, over http.RoundTripper) (*http.Response, error) {
	ctx, of, err := c.begin(r.Context(), r.URL.Host)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := over.RoundTrip(r.WithContext(ctx))
	if err != nil {
		of.over()
		return nil, err
	}
	of.ReadCloser, answer.Body = answer.Body, of
	context.AfterFunc(r.Context(), of.over) // a body that is not closed
	return answer, nil
}
