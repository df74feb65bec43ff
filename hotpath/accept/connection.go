package accept

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/intake"
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

func newWire(c net.Conn) *wire {
	ctx, stop := context.WithCancel(context.Background())
	return &wire{conn: c, ctx: ctx, stop: stop}
}

// A wiredBody is the body of a batch, read over its wire.
type wiredBody struct {
	from   io.Reader
	wire   *wire
	length int // below 0: it comes in chunks
	read   int
}

// Read takes the end of the connection for that of the body only where the body is
// whole, which fasthttp does not.
func (b *wiredBody) Read(p []byte) (int, error) {
	if err := b.wire.reading(); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p)
	b.read += n
	if errors.Is(err, io.EOF) && (b.read < b.length || b.length < 0 && intake.CutShort(b.wire.conn)) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// reading is called before the reader waits for bytes.
func (w *wire) reading() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cutIt {
		return net.ErrClosed
	}
	if w.conn == nil {
		return nil
	}
	w.move()
	return w.conn.SetReadDeadline(time.Now().Add(batchIdle))
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
