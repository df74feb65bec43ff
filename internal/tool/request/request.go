// Package request is the context of a request, on its way from the socket to the store and back.
//
// A handler takes it once (Of) and gives it to whatever works for the request: the check of its tokens,
// the wait for admission, the transaction, a claim, a read. It has the ID of the request, and whatever
// is derived from it goes the same way: deadlines, and a trace when there is one. Work that is done for
// several requests at once leads to each of them (Joint, Each).
//
// It does not end when its client leaves: what a client has sent is stored, and only the answer is
// lost. What ends it are the deadlines of those who work for it.
package request

import (
	"context"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// HeaderID is the header of an answer with the ID of its request.
const HeaderID = "X-Request-ID"

// maxID is the longest ID, bytes: the API gives a longer one of a client another.
const maxID = 128

// A Context is the context of one request. It is not the RequestCtx, which the server uses again while
// a driver of a store may still read the context, and it keeps nothing of that.
type Context struct {
	id [maxID]byte
	n  int

	key, value any // of Bind
}

type contextKey struct{}

// Of returns the context of a request, the same one each time.
func Of(rc *fasthttp.RequestCtx) *Context {
	if c, ok := rc.UserValue(contextKey{}).(*Context); ok {
		return c
	}
	c := &Context{}
	c.begin(rc)
	rc.SetUserValue(contextKey{}, c)
	return c
}

func (c *Context) begin(rc *fasthttp.RequestCtx) {
	c.n = copy(c.id[:], rc.Response.Header.Peek(HeaderID))
	c.key, c.value = nil, nil
}

var lent = sync.Pool{New: func() any { return new(Context) }}

// Lend returns a context of a request that takes no memory, for the path that each message takes. Its
// borrower gives it back (Return) before the request is over, and whoever could still have it then
// takes a copy (Keep).
func Lend(rc *fasthttp.RequestCtx) *Context {
	c := lent.Get().(*Context)
	c.begin(rc)
	return c
}

// Return ends the use of a context that was lent.
func (c *Context) Return() { lent.Put(c) }

// Keep returns a context that may be kept for longer than a request, in place of the context of one.
func Keep(ctx context.Context) context.Context {
	if c, ok := ctx.(*Context); ok {
		kept := *c
		return &kept
	}
	return ctx
}

// ID returns the X-Request-ID of the answer.
func (c *Context) ID() string { return string(c.id[:c.n]) }

// Deadline is that of a context without one.
func (c *Context) Deadline() (deadline time.Time, ok bool) { return deadline, false }

// Done is that of a context without an end.
func (c *Context) Done() <-chan struct{} { return nil }

// Err is that of a context without an end.
func (c *Context) Err() error { return nil }

// Bind puts one value into the context, in the place of another one. The handler does so, before it gives the
// context to others.
func (c *Context) Bind(key, value any) { c.key, c.value = key, value }

// Value returns the context itself for its own key, and the value that was bound for its key.
func (c *Context) Value(key any) any {
	switch {
	case key == (contextKey{}):
		return c
	case c.key != nil && key == c.key:
		return c.value
	}
	return nil
}

// ID returns the ID of the request for which a context is, "" if it is of none, or of several.
func ID(ctx context.Context) string {
	if c, ok := ctx.Value(contextKey{}).(*Context); ok {
		return c.ID()
	}
	return ""
}

// A Joint is the work that is done for several requests at once, as a transaction of many publishes.
type Joint interface {
	// Each calls f with the context of each member until f returns false.
	Each(f func(member context.Context) bool)
}

// JointKey is the key under which the context of such work has its Joint.
type JointKey struct{}

// Each calls f with the context of each request for which the work of ctx is done, until f returns
// false: with ctx itself where it is not done for several.
func Each(ctx context.Context, f func(member context.Context) bool) {
	if j, ok := ctx.Value(JointKey{}).(Joint); ok {
		j.Each(f)
		return
	}
	f(ctx)
}
