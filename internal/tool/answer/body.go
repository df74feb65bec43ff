package answer

import (
	"encoding/base64"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/jsontext"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Small is the size, bytes, up to which an answer is not counted. The server keeps a buffer of at
// most that size for each connection.
const Small = 64 << 10

// ErrOverloaded refuses an answer that is more than the share of its key.
var ErrOverloaded = &problem.Problem{Status: 503, Code: "overloaded", RetryAfter: 1,
	Detail: "Too many large answers wait for their clients to read them. Nothing was changed; try again, and read faster."}

// errEnded ends an answer under pressure.
var errEnded = errors.New("answer: ended, because its client reads slower than others")

// NewBound returns the bound of all answers of a process. most is in bytes.
func NewBound(most int64) *share.Bound {
	return share.New(share.Options{Name: "answers", Most: most, Reserve: most / 8, Small: 1 << 20})
}

// A Body is a large answer: first the memory that is counted for it, then the body of a response.
// A nil Body is that of a small answer. Its methods may be called in one goroutine.
type Body struct {
	permit *share.Permit
	text   Text

	buffer *[]byte // of kept; nil: none

	mu   sync.Mutex
	conn net.Conn // while it is written
	over bool     // was ended
}

// Open counts n bytes of an answer under a key. Within Small it returns nil. The caller sends or
// drops the Body.
func Open(b *share.Bound, k share.Key, n int) (*Body, error) {
	if n <= Small {
		return nil, nil
	}
	body := &Body{}
	body.permit = b.Permit(k, body.end)
	if !body.permit.Take(int64(n)) {
		body.permit.Close()
		return nil, ErrOverloaded
	}
	return body, nil
}

// Drop gives back what is counted, unless the answer was sent.
func (b *Body) Drop() {
	if b != nil && b.text.B == nil {
		b.free()
	}
}

// Send makes a text the body of the response. Its Content-Length is known.
func (b *Body) Send(rc *fasthttp.RequestCtx, t Text) {
	if b == nil {
		t.Whole = true
		rc.Response.SetBodyRaw(t.flat())
		return
	}
	b.text, b.conn = t, rc.Conn()
	rc.Response.SetBodyStream(b, t.Size())
}

// keptBytes bounds the buffers that are used again, and those that one of them may serve.
const keptBytes = 512 << 10

var kept = sync.Pool{New: func() any {
	b := make([]byte, 0, keptBytes)
	return &b
}}

// Buffer returns an empty buffer for a text of about size bytes that Send gets. It is used again
// when the answer is written.
func (b *Body) Buffer(size int) []byte {
	if size > keptBytes || size < keptBytes/8 {
		return make([]byte, 0, size)
	}
	b.buffer = kept.Get().(*[]byte)
	return (*b.buffer)[:0]
}

// flat returns the text with its parts.
func (t *Text) flat() []byte {
	if len(t.parts) == 0 {
		return t.B
	}
	out := Text{B: make([]byte, 0, t.Size()), Whole: true}
	at := 0
	for _, p := range t.parts {
		out.B = append(out.B, t.B[at:p.at]...)
		out.String(p.payload, p.base64)
		at = p.at
	}
	return append(out.B, t.B[at:]...)
}

// Settle makes the large answers of handlers that know nothing of this package like all others: the
// server calls it with each answer. It refuses only what reads: the effect of another request
// stays.
func Settle(rc *fasthttp.RequestCtx, b *share.Bound) {
	if rc.Response.IsBodyStream() || len(rc.Response.Body()) <= Small || rc.IsHead() {
		return
	}
	raw := rc.Response.Body()
	if own := rc.Response.SwapBody(nil); len(own) > 0 {
		raw = own
	}
	body := &Body{}
	body.permit = b.Permit(KeyOf(rc), body.end)
	switch {
	case body.permit.Take(int64(cap(raw))):
	case rc.IsGet():
		body.permit.Close()
		refuse(rc)
		return
	default:
		body.permit.Add(int64(cap(raw)))
	}
	body.Send(rc, Text{B: raw})
}

func refuse(rc *fasthttp.RequestCtx) {
	for _, name := range []string{fasthttp.HeaderETag, fasthttp.HeaderLastModified, fasthttp.HeaderContentEncoding} {
		rc.Response.Header.Del(name)
	}
	problem.Write(rc, ErrOverloaded)
}

const keyValue = "answer key"

// SetKey sets under which key the answers of a request count.
func SetKey(rc *fasthttp.RequestCtx, k share.Key) { rc.SetUserValue(keyValue, k) }

// KeyOf returns that key: by default that of the client's address.
func KeyOf(rc *fasthttp.RequestCtx) share.Key {
	if k, ok := rc.UserValue(keyValue).(share.Key); ok {
		return k
	}
	return share.Address(share.AddressOf(rc.RemoteAddr()))
}

// end ends the answer: a write that waits for the client fails, and so does the next one.
func (b *Body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if c, ok := b.conn.(interface{ Cut() }); ok {
		c.Cut()
	}
}

// Close ends the response. The server calls it once the body is written or given up.
func (b *Body) Close() error {
	b.mu.Lock()
	b.conn = nil // it may belong to the next request from now on
	b.mu.Unlock()
	b.free()
	return nil
}

// free gives everything back, once.
func (b *Body) free() {
	if b.permit != nil {
		b.permit.Close()
		b.permit = nil
	}
	if b.buffer != nil {
		kept.Put(b.buffer)
		b.buffer = nil
	}
}

// SupportsBodyWriteTo makes fasthttp call WriteTo.
func (b *Body) SupportsBodyWriteTo() bool { return true }

// Read makes a Body an io.Reader, as a body must be. It is available only through WriteTo.
func (b *Body) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

const (
	// pieceBytes is how much is written at once.
	pieceBytes = 32 << 10
	// sourceBytes is how much of a payload is escaped at once. Base64 has groups of three.
	sourceBytes = 9 << 10
)

// buffers hold a piece and what sourceBytes become at worst: six times as many.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, pieceBytes+6*sourceBytes)
	return &b
}}

// WriteTo writes the answer.
func (b *Body) WriteTo(w io.Writer) (n int64, err error) {
	calm(b.conn)
	out := &writer{b: b, w: w}
	at := 0
	for i := range b.text.parts {
		p := &b.text.parts[i]
		out.plain(b.text.B[at:p.at])
		out.part(p)
		at = p.at
	}
	out.plain(b.text.B[at:])
	return out.n, out.err
}

// A writer writes the pieces of an answer until one fails.
type writer struct {
	b   *Body
	w   io.Writer
	n   int64
	err error
}

func (w *writer) plain(p []byte) {
	for len(p) > 0 && w.err == nil {
		k := min(len(p), pieceBytes)
		w.write(p[:k])
		p = p[k:]
	}
}

func (w *writer) part(p *part) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	out := append((*buf)[:0], '"')
	for rest := p.payload; len(rest) > 0 && w.err == nil; {
		k := min(len(rest), sourceBytes)
		if p.base64 {
			out = base64.StdEncoding.AppendEncode(out, rest[:k])
		} else {
			out = jsontext.AppendEscaped(out, rest[:k])
		}
		rest = rest[k:]
		if len(out) >= pieceBytes {
			w.write(out)
			out = out[:0]
		}
	}
	w.write(append(out, '"'))
}

func (w *writer) write(p []byte) {
	if w.err != nil {
		return
	}
	w.b.mu.Lock()
	over := w.b.over
	w.b.mu.Unlock()
	if over {
		w.err = errEnded
		return
	}
	var n int
	n, w.err = w.w.Write(p)
	w.n += int64(n)
	w.b.permit.Moved(n)
}
