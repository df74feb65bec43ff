package publish

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/request"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// aliveEvery is how often at most the deadline of writing is moved.
const aliveEvery = time.Second

// A wire is the connection of a batch, as far as its deadlines go. A client that
// sends makes progress although it may read nothing yet, so the deadline of writing
// moves with every read. The reader and the writer of the batch share it.
type wire struct {
	conn net.Conn        // nil: none, as in tests
	ctx  context.Context // ends when the connection is given up
	stop context.CancelFunc

	mu    sync.Mutex
	cutIt bool
	moved time.Time // when the deadline of writing was set last
}

func newWire(ctx context.Context, c net.Conn) *wire {
	ctx, stop := context.WithCancel(ctx)
	return &wire{conn: c, ctx: ctx, stop: stop}
}

// A Body is the body of a batch or a bulk, read over its wire at a least rate (package intake). That of
// a batch may pause between lines for batchIdle: the rate is that of the line which has begun.
type Body struct {
	from   io.Reader
	check  func() error // of its sender, with each part that came; nil: a batch, which checks each line
	wire   *wire
	length int // below 0: it comes in chunks
	read   int
	whole  bool          // the rate is that of the whole body
	permit *share.Permit // of what the body holds; nil: nothing
	begun  time.Time     // of the body, or of the present line
	part   int           // bytes of the present line
	left   time.Time     // when the last read ended; zero: there was none
}

// Body returns the body of a request whose client may be slow, but may not stop. Only its end is
// io.EOF: a body that breaks off ends with another error. So does the body of a sender that would not
// be admitted any more.
func (p *Publisher) Body(rc *fasthttp.RequestCtx, st *catalogue.Standing) *Body {
	ctx := request.Of(rc)
	from, n := rc.RequestBodyStream(), rc.Request.Header.ContentLength()
	if from == nil {
		from = bytes.NewReader(rc.Request.Body())
	}
	return &Body{from: from, check: func() error { return p.Still(ctx, st) }, wire: newWire(ctx, rc.Conn()), length: n,
		begun: rc.Time(), whole: true}
}

// End makes a read under way fail, and each later one.
func (b *Body) End() { b.wire.cut() }

// due returns the time by which the next bytes must come.
func (b *Body) due() time.Time {
	now := time.Now()
	switch {
	case b.whole:
		return intake.Deadline(b.begun, now, b.read)
	case b.part == 0:
		return now.Add(batchIdle)
	}
	return intake.Deadline(b.begun, now, b.part)
}

// came counts bytes that came. Lines end with a line break, events with a brace.
func (b *Body) came(p []byte) {
	b.read += len(p)
	if b.permit != nil {
		b.permit.Moved(len(p))
	}
	if b.whole || len(p) == 0 {
		return
	}
	end := max(bytes.LastIndexByte(p, '\n'), bytes.LastIndexByte(p, '}'))
	if end >= 0 || b.part == 0 {
		b.begun, b.part = time.Now(), 0
	}
	b.part += len(p) - end - 1
}

// Read takes the end of the connection for that of the body only where the body is
// whole, which fasthttp does not.
func (b *Body) Read(p []byte) (int, error) {
	if !b.left.IsZero() { // the time in which nobody read is the broker's, such as a wait for the store
		b.begun = b.begun.Add(time.Since(b.left))
	}
	defer func() { b.left = time.Now() }()
	if err := b.wire.reading(b.due()); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p)
	b.came(p[:n])
	if b.check != nil {
		if refusal := b.check(); refusal != nil {
			return 0, refusal
		}
	}
	if errors.Is(err, io.EOF) && (b.read < b.length || b.length < 0 && intake.CutShort(b.wire.conn)) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// reading is called before the reader waits for bytes, until due.
func (w *wire) reading(due time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cutIt {
		return net.ErrClosed
	}
	if w.conn == nil {
		return nil
	}
	w.move()
	return w.conn.SetReadDeadline(due)
}

// alive says that the client is not idle: it sends, or is held back by the broker.
func (w *wire) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.move()
}

func (w *wire) move() {
	if now := time.Now(); w.conn != nil && now.Sub(w.moved) >= aliveEvery {
		w.moved = now
		_ = w.conn.SetWriteDeadline(now.Add(batchUnread)) // a connection that is closed says so when it is used
	}
}

// writing is called before answers are written.
func (w *wire) writing() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return nil
	}
	w.moved = time.Now()
	return w.conn.SetWriteDeadline(w.moved.Add(batchUnread))
}

// cut ends the reading of the request: a read under way returns, and no other one
// waits.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cutIt {
		return
	}
	w.cutIt = true
	w.stop()
	if w.conn != nil {
		_ = w.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// end gives the connection up: nothing more is read or written.
func (w *wire) end() {
	w.cut()
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.conn.(interface{ Cut() }); ok {
		c.Cut()
	}
}

// leave is the end of the batch: the connection may belong to the next request.
func (w *wire) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
}

func (w *wire) isCut() bool { return w.ctx.Err() != nil }
