package front

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeBytes is the most that one direction of a connection in memory holds. It holds no memory while
// it is empty.
const pipeBytes = 32 << 10

var pipeBuffers = sync.Pool{New: func() any {
	b := make([]byte, pipeBytes)
	return &b
}}

// A half is one direction of a connection in memory: bytes in order, at most pipeBytes of them. One
// goroutine writes, one reads, and any may end it.
type half struct {
	mu      sync.Mutex
	changed sync.Cond
	buf     *[]byte // nil: empty
	from    int     // the first unread byte
	to      int     // the end of the unread ones
	ended   bool    // no more is written: after the unread bytes comes io.EOF
	broken  bool    // nothing is written or read any more
	due     time.Time
}

func newHalf() *half {
	h := &half{}
	h.changed.L = &h.mu
	return h
}

// Read returns io.EOF behind the last byte, net.ErrClosed when the half is broken, and
// os.ErrDeadlineExceeded when its deadline has passed and nothing is there.
func (h *half) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case h.broken:
			return 0, net.ErrClosed
		case h.from < h.to:
			return h.take(p), nil
		case h.ended:
			return 0, io.EOF
		case h.due.IsZero():
			h.changed.Wait()
		default:
			left := time.Until(h.due)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			h.waitFor(left)
		}
	}
}

// take needs mu, and bytes that are there.
func (h *half) take(p []byte) int {
	n := copy(p, (*h.buf)[h.from:h.to])
	h.from += n
	if h.from == h.to {
		h.release()
	}
	h.changed.Broadcast()
	return n
}

// waitFor waits for a change, for at most that long. It needs mu.
func (h *half) waitFor(left time.Duration) {
	timer := time.AfterFunc(left, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changed.Broadcast()
	})
	h.changed.Wait()
	timer.Stop()
}

// release gives the buffer back. It needs mu.
func (h *half) release() {
	if h.buf != nil {
		pipeBuffers.Put(h.buf)
		h.buf = nil
	}
	h.from, h.to = 0, 0
}

// Write waits while the half is full. It fails with io.ErrClosedPipe when the half has ended or broken.
func (h *half) Write(p []byte) (n int, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.broken || h.ended:
			return n, io.ErrClosedPipe
		case len(p) == 0:
			return n, nil
		case h.to-h.from == pipeBytes:
			h.changed.Wait()
			continue
		}
		if h.buf == nil {
			h.buf = pipeBuffers.Get().(*[]byte)
		}
		if h.to == pipeBytes {
			h.to = copy(*h.buf, (*h.buf)[h.from:h.to])
			h.from = 0
		}
		some := copy((*h.buf)[h.to:], p)
		h.to += some
		n += some
		p = p[some:]
		h.changed.Broadcast()
	}
}

// await waits until something is there to be read, or nothing will come.
func (h *half) await() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.from == h.to && !h.ended && !h.broken {
		h.changed.Wait()
	}
}

// end says that no more is written.
func (h *half) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.changed.Broadcast()
}

// abort ends both sides at once, and drops what was not read.
func (h *half) abort() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
	h.release()
	h.changed.Broadcast()
}

// over reports whether the writer has ended the half, or somebody broke it.
func (h *half) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended || h.broken
}

func (h *half) setDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = t
	h.changed.Broadcast()
}
