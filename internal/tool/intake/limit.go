package intake

import (
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/tool/coding"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A Limit is what the body of a request to one route may be.
type Limit struct {
	bound *share.Bound
	most  int
	coded bool
}

// NewLimit returns the limit of a route whose bodies have up to most bytes; with 0
// it takes none but an empty one.
func NewLimit(b *share.Bound, most int) Limit { return Limit{bound: b, most: most} }

// Coded returns a limit that takes bodies with a content coding, which their reader keeps.
func (l Limit) Coded() Limit {
	l.coded = true
	return l
}

// Loaded is what a body holds of the bound.
type Loaded struct {
	key share.Key
	n   int64
}

// Load reads the body of an authorised request of a key, which rc.Request.Body then
// returns. It must be called before anything else asks for the body, which would
// read it without a limit. What it returns goes to Drop.
func (l Limit) Load(rc *fasthttp.RequestCtx, k share.Key) (loaded Loaded, err error) {
	n := rc.Request.Header.ContentLength() // below 0: in chunks
	switch {
	case n > l.most:
		return Loaded{}, ErrTooLarge
	case rc.RequestBodyStream() == nil && len(rc.Request.Body()) > l.most:
		return Loaded{}, ErrTooLarge
	case n == 0 || rc.RequestBodyStream() == nil: // it is there already, or there is none
		return Loaded{}, l.uncoded(rc, n)
	}
	if err := l.uncoded(rc, n); err != nil {
		return Loaded{}, err
	}
	var head *fasthttp.RequestHeader
	if n < 0 {
		head = &fasthttp.RequestHeader{}
		rc.Request.Header.CopyTo(head)
	}
	body, taken, err := Read(rc, l.bound, k, l.most)
	if err != nil {
		return Loaded{}, err
	}
	if head != nil {
		// fasthttp adds the trailer to the headers, where a token or a lease would
		// count that a proxy has not seen.
		head.CopyTo(&rc.Request.Header)
	}
	rc.Request.SetBodyRaw(body)
	return Loaded{k, taken}, nil
}

// uncoded refuses a body of n bytes with a content coding, which would be read as if it had none.
func (l Limit) uncoded(rc *fasthttp.RequestCtx, n int) error {
	if l.coded || n == 0 {
		return nil
	}
	value := rc.Request.Header.Peek(coding.Header)
	if len(value) == 0 {
		return nil
	}
	if clean, err := coding.Clean(string(value)); err == nil && clean == "" {
		return nil
	}
	return ErrCoded
}

// Drop forgets the body of rc: its memory must not wait with the answer for a
// client that reads slowly.
func (l Limit) Drop(rc *fasthttp.RequestCtx, loaded Loaded) {
	if loaded.n > 0 {
		rc.Request.ResetBody()
		l.bound.Give(loaded.key, loaded.n)
	}
}
