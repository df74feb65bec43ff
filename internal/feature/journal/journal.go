// Package journal keeps messages on the broker's own disk until the store has them. A message is
// flushed before Append returns, and returned by Read, in order, until Advance says that it is over.
//
// The files are segments of hashicorp/raft-wal, written by that package with one flush per Append,
// and read by this one: each entry has a checksum of its own, so a damaged byte costs no other
// message. Only the newest file may have a torn end. Of what is not understood elsewhere the
// messages are reported as lost, and the file is kept under another name. This package adds what a
// queue needs: group commit, a bound of bytes with a share for each channel and of age, receipts,
// removal of what is over, entries that are held, and a lock. It is strict about a failed write or
// flush: nothing is appended to that file any more, since no later flush proves what is on disk.
package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// The refusals of Append. Nothing is in the journal then, except after an error that is ErrUnsure as
// well as ErrFailed, where a message may be.
var (
	ErrFull   = errors.New("journal: it holds as many bytes as it may")
	ErrUnsure = errors.New("journal: what was written may be on disk")
	ErrOld    = errors.New("journal: its oldest message waits for longer than it may")
	ErrFailed = errors.New("journal: the disk failed")
	ErrClosed = errors.New("journal: closed")
)

const (
	// appendBytes bounds one flush. A larger message is flushed alone.
	appendBytes = 4 << 20
	// retryAfter is the time for which a disk that failed is left alone.
	retryAfter = time.Second
)

// Options configure a journal.
type Options struct {
	MaxBytes int64         // of its files; a channel may have as many as are free
	MaxAge   time.Duration // of its oldest message
	Sign     Signer
	Log      *slog.Logger

	Files Files // nil: those of the system; set by tests
}

// Files are the files of journals.
type Files interface {
	types.VFS
	// Size returns the length of a file in bytes.
	Size(dir, name string) (int64, error)
	// Rename gives a file another name in its folder.
	Rename(dir, from, to string) error
	// Truncate cuts the end of a file off, and flushes it.
	Truncate(dir, name string, size int64) error
}

// A Journal is one folder with messages. It is safe for concurrent use, except that one goroutine
// calls Read, Settle, Release and Move.
type Journal struct {
	dir     string
	id      [4]byte
	o       Options
	sign    Signer
	log     *slog.Logger
	filer   *segment.Filer
	segment int64 // bytes
	lock    *os.File
	more    chan struct{} // capacity 1: there are new entries
	stopped chan struct{} // closed when the writer has ended

	mu        sync.Mutex
	wake      sync.Cond // queue is not empty, or closed
	queue     []*appending
	reserved  int64 // bytes of queue
	appending bool
	closed    bool
	failedAt  time.Time

	parts    []*part
	writing  *part
	nextID   uint64
	bytes    int64  // of all parts
	last     uint64 // the newest entry
	waiting  int64  // entries that are neither over nor held
	oldestMs int64  // of the first of them; 0: unknown
	usage    usages
	held     map[uint32]*holding // by channel
	again    spans               // that were held and are due
	damaged  int                 // files that are kept
	foreign  bool                // it belongs to another store
	// elsewhere are places that have lost an entry which another place has, as of the start.
	elsewhere map[uint64]bool

	cached     *part // that was read last, and what it contains; of the goroutine that reads
	cache      *scan
	moveFailed time.Time
}

// openIn opens the journal in a folder that is locked already.
func openIn(dir string, lock *os.File, o Options) (*Journal, error) {
	j := &Journal{dir: dir, o: o, sign: o.Sign, log: o.Log, lock: lock, nextID: 1, more: make(chan struct{}, 1),
		stopped: make(chan struct{}),
		usage:   usages{}, held: map[uint32]*holding{}, elsewhere: map[uint64]bool{}, segment: min(mostSegment,
			max(leastSegment, o.MaxBytes/8))}
	j.wake.L = &j.mu
	if j.o.Files == nil {
		j.o.Files = disk{}
	}
	j.filer = segment.NewFiler(dir, j.o.Files)
	var err error
	if j.id, err = identify(dir); err == nil {
		err = j.load()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if j.waiting > 0 {
		j.more <- struct{}{}
	}
	go guard.Vital("journal", j.write)
	return j, nil
}

// Close ends the journal. What it holds stays on disk.
func (j *Journal) Close() error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.wake.Broadcast()
	<-j.stopped
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.parts {
		j.closePart(p)
	}
	return j.lock.Close()
}

// Append flushes messages to disk and returns their receipts. The messages of one call are
// consecutive entries, all of them or none.
func (j *Journal) Append(records []Record) ([]Receipt, error) {
	a := newAppending(false)
	for i := range records {
		a.add(&records[i])
	}
	if err := j.enqueue(a); err != nil {
		return nil, err
	}
	<-a.done
	return a.receipts, a.err
}

// Room reports why bytes of messages of a channel would not be taken now, or nil.
func (j *Journal) Room(channel uint32, bytes int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.room(bytes, usages{channel: {bytes: bytes}})
}

// room reports why the journal has no room. A channel may have as many bytes as are free, so one
// that is paused, or that nobody stores, leaves room for each other one.
func (j *Journal) room(bytes int64, of usages) error {
	free := j.o.MaxBytes - j.bytes - j.reserved
	switch {
	case j.closed:
		return ErrClosed
	case bytes > free:
		return ErrFull
	case j.waiting > 0 && j.oldestMs > 0 && time.Now().UnixMilli()-j.oldestMs > j.o.MaxAge.Milliseconds():
		return ErrOld
	case !j.failedAt.IsZero() && time.Since(j.failedAt) < retryAfter:
		return ErrFailed
	}
	for channel, u := range of {
		if j.usage[channel].bytes+u.bytes > free {
			return fmt.Errorf("%w: the channel has as many as are free", ErrFull)
		}
	}
	return nil
}

func (j *Journal) enqueue(a *appending) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a.apart {
		if j.closed {
			return ErrClosed
		}
	} else if err := j.room(a.bytes, a.usage); err != nil {
		return err
	} else {
		j.reserve(a, 1)
	}
	j.queue = append(j.queue, a)
	j.wake.Signal()
	return nil
}

// More is signalled when there are new entries.
func (j *Journal) More() <-chan struct{} { return j.more }

// Waiting returns the number of messages that are neither over nor held.
func (j *Journal) Waiting() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.waiting
}

// Waits reports whether messages of a channel wait that are neither over nor held.
func (j *Journal) Waits(channel uint32) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.usage[channel].waiting > 0
}

// A State is what a journal holds.
type State struct {
	Waiting   int64 // messages that are neither over nor held
	Bytes     int64 // of its files
	Oldest    time.Duration
	Held      int64 // messages
	HeldBytes int64
	Damaged   int // files that are kept
}

// State returns what the journal holds.
func (j *Journal) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := State{Waiting: j.waiting, Bytes: j.bytes, Damaged: j.damaged}
	for _, h := range j.held {
		s.Held += h.messages
		s.HeldBytes += h.bytes
	}
	if j.waiting > 0 && j.oldestMs > 0 {
		s.Oldest = time.Duration(max(0, time.Now().UnixMilli()-j.oldestMs)) * time.Millisecond
	}
	return s
}

// Has reports whether the message of a receipt surely waits in this journal, or is held there.
func (j *Journal) Has(r Receipt) bool {
	if r.journal() != j.id {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	seq := r.seq()
	for _, p := range j.parts {
		if seq > p.cursor && seq <= p.last && p.order == p.info.BaseIndex {
			return true
		}
	}
	for _, h := range j.held {
		if h.all.has(seq) {
			return true
		}
	}
	return j.again.has(seq)
}

// Last returns the place of the newest entry.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Dir returns the folder of the journal.
func (j *Journal) Dir() string { return j.dir }
