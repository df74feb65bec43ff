package egress

import (
	"errors"
	"io"
	"sync"
)

// firstKept is the first buffer of a body whose length is not known, bytes.
const firstKept = 512

// A Keep says what of one answer is kept.
type Keep struct {
	Bytes   int                    // of the body
	Headers func(name string) bool // names
	// Room is asked before a body takes more than Has bytes of memory, for n more. It may wait, and
	// sets Waited then. Where it refuses, or after End, the body is cut off. nil: there is room.
	Room   func(n int) bool
	Has    int
	Waited bool // the time of the exchange may be over for lack of room, not for that of an answer

	cut   bool
	mu    sync.Mutex
	ended bool
	stop  func() // makes a read of the body return; nil: the body is not read
}

// Cut reports whether the body was cut off for lack of room.
func (k *Keep) Cut() bool { return k.cut }

// End cuts the body off where it is. It may be called from another goroutine.
func (k *Keep) End() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	if k.stop != nil {
		k.stop()
	}
}

// reading sets what makes a read return, and reports whether End was called.
func (k *Keep) reading(stop func()) (ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stop = stop
	return k.ended
}

// read reads the part of a body that is kept. length is that of the body, -1 where it is not known,
// and stop makes a read of it return. An error matters only before that part is whole.
func (k *Keep) read(body io.Reader, length int, stop func()) (b []byte, truncated bool, err error) {
	k.reading(stop)
	b, whole, err := k.fill(body, length)
	ended := k.reading(nil)
	if len(b) > k.Bytes {
		return b[:k.Bytes:k.Bytes], true, nil
	}
	if !whole && (ended || err == nil || k.Waited && isTimeout(err)) {
		k.cut = true
		return b, true, nil
	}
	return b, false, err
}

// fill reads until one byte more than is kept, or the end of the room. whole: the body has ended.
func (k *Keep) fill(body io.Reader, length int) (b []byte, whole bool, err error) {
	size := min(firstKept, k.Bytes+1)
	if length >= 0 {
		size = min(length, k.Bytes, max(k.Has, firstKept)) + 1
	}
	b = make([]byte, 0, size)
	for len(b) <= k.Bytes {
		into := b[len(b):cap(b)]
		if len(into) == 0 {
			into = make([]byte, 1) // the end needs no room
		}
		n, err := body.Read(into)
		if len(b) == cap(b) && n > 0 && !k.grow(&b) {
			return b, false, nil
		}
		b = append(b, into[:n]...)
		if errors.Is(err, io.EOF) {
			return b, true, nil
		}
		if err != nil {
			return b, false, err
		}
	}
	return b, false, nil
}

// grow doubles the memory of a body, or returns false where that has no room.
func (k *Keep) grow(b *[]byte) bool {
	size := min(2*cap(*b), k.Bytes+1)
	if had := k.Has + 1; cap(*b) < had {
		size = min(size, had)
	}
	if more := size - 1 - max(k.Has, cap(*b)-1); more > 0 && k.Room != nil && !k.Room(more) {
		return false
	}
	*b = append(make([]byte, 0, size), *b...)
	return true
}
