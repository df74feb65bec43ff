// Package journal keeps messages on the broker's own disk until the store has them. A message is
// flushed before Append returns, and returned by Read, in order, until Advance says that it is over.
//
// The files are segments of hashicorp/raft-wal, which checks a commit frame with a checksum when it
// opens a file, so that a torn last write is dropped, and makes one flush per Append. This package
// adds what a queue needs: group commit, a bound of bytes and age, receipts, a checksum per entry,
// removal from the front, and a lock. It is strict about a failed write or flush: nothing is
// appended to that file any more, since no later flush proves what is on disk.
package journal

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/penstock-broker/penstock/internal/failpoint"
	"github.com/penstock-broker/penstock/internal/guard"
)

// The refusals of Append. Nothing is in the journal then, except after ErrFailed, where a message
// may be.
var (
	ErrFull   = errors.New("journal: it holds as many bytes as it may")
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
	MaxBytes int64         // of its files
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
}

// A Journal is one folder with messages. It is safe for concurrent use, except that one goroutine
// reads it.
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
	cursor   uint64 // up to here everything is over or held
	settled  uint64 // up to here everything is over
	waiting  int64  // entries behind cursor
	oldestMs int64  // of the first of them; 0: unknown
}

// An appending is a call of Append.
type appending struct {
	entries  [][]byte
	bytes    int64
	receipts []Receipt
	err      error
	done     chan struct{}
}

// openIn opens the journal in a folder that is locked already.
func openIn(dir string, lock *os.File, o Options) (*Journal, error) {
	j := &Journal{dir: dir, o: o, sign: o.Sign, log: o.Log, lock: lock, nextID: 1, more: make(chan struct{}, 1), stopped: make(chan struct{}),
		segment: min(mostSegment, max(leastSegment, o.MaxBytes/4))}
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
	a := &appending{done: make(chan struct{})}
	for i := range records {
		b := records[i].encode()
		a.entries = append(a.entries, b)
		a.bytes += int64(len(b)) + entryOverhead
	}
	if err := j.enqueue(a); err != nil {
		return nil, err
	}
	<-a.done
	return a.receipts, a.err
}

// Room reports why bytes of messages would not be taken now, or nil.
func (j *Journal) Room(bytes int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.room(bytes)
}

func (j *Journal) room(bytes int64) error {
	switch {
	case j.closed:
		return ErrClosed
	case j.bytes+j.reserved+bytes > j.o.MaxBytes:
		return ErrFull
	case j.waiting > 0 && j.oldestMs > 0 && time.Now().UnixMilli()-j.oldestMs > j.o.MaxAge.Milliseconds():
		return ErrOld
	case !j.failedAt.IsZero() && time.Since(j.failedAt) < retryAfter:
		return ErrFailed
	}
	return nil
}

func (j *Journal) enqueue(a *appending) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.room(a.bytes); err != nil {
		return err
	}
	j.reserved += a.bytes
	j.queue = append(j.queue, a)
	j.wake.Signal()
	return nil
}

// write appends what is queued until the journal is closed: everything that waits shares a flush.
func (j *Journal) write() {
	defer close(j.stopped)
	for {
		batch := j.next()
		if len(batch) == 0 {
			return
		}
		err := j.flush(batch)
		for _, a := range batch {
			a.err = err
			close(a.done)
		}
		if err == nil {
			select {
			case j.more <- struct{}{}:
			default:
			}
		}
	}
}

// next waits for calls of Append and returns those that share the next flush.
func (j *Journal) next() []*appending {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.queue) == 0 {
		if j.closed {
			return nil
		}
		j.wake.Wait()
	}
	n, bytes := 0, int64(0)
	for n < len(j.queue) && (n == 0 || bytes+j.queue[n].bytes <= appendBytes) {
		bytes += j.queue[n].bytes
		n++
	}
	batch := j.queue[:n:n]
	j.queue = append([]*appending(nil), j.queue[n:]...)
	return batch
}

// flush appends and flushes a batch. A crash before the end of the flush leaves a torn or
// unanswered write, which the next start drops or replays. After it the entries are replayed.
func (j *Journal) flush(batch []*appending) error {
	j.mu.Lock()
	p, err := j.tail()
	j.appending = err == nil
	j.mu.Unlock()
	if err != nil {
		j.failed(nil, batch, err)
		return errors.Join(ErrFailed, err)
	}
	ms := time.Now().UnixMilli()
	var logs []types.LogEntry
	seq := p.last
	for _, a := range batch {
		a.receipts = make([]Receipt, len(a.entries))
		for i, b := range a.entries {
			seq++
			a.receipts[i] = newReceipt(ms, j.id, seq, j.sign)
			seal(b, a.receipts[i])
			logs = append(logs, types.LogEntry{Index: seq, Data: b})
		}
	}
	if err := p.open.Append(logs); err != nil {
		j.failed(p, batch, err)
		return errors.Join(ErrFailed, err)
	}
	failpoint.At(failpoint.JournalFlushed)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appending = false
	for _, a := range batch {
		j.reserved -= a.bytes
		j.bytes += a.bytes
		p.bytes += a.bytes
	}
	if j.waiting == 0 {
		j.oldestMs = ms
	}
	p.last, j.last = seq, seq
	j.waiting += int64(len(logs))
	return nil
}

// failed gives up a file after a failed write or flush. Its earlier entries were flushed and stay.
// The places of the batch are not used again: the disk may show its entries at the next start.
func (j *Journal) failed(p *part, batch []*appending, err error) {
	j.log.Error("the journal cannot be written; messages are refused until it can", "folder", j.dir, "error", err)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appending = false
	j.failedAt = time.Now()
	for _, a := range batch {
		j.reserved -= a.bytes
		if p != nil {
			j.last = max(j.last, p.last) + uint64(len(a.entries))
		}
	}
	if p != nil {
		j.retire()
	}
}

// More is signalled when there are new entries.
func (j *Journal) More() <-chan struct{} { return j.more }

// Waiting returns the number of messages that are neither over nor held.
func (j *Journal) Waiting() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.waiting
}

// A State is what a journal holds.
type State struct {
	Waiting int64 // messages that are neither over nor held
	Bytes   int64 // of its files
	Oldest  time.Duration
}

// State returns what the journal holds.
func (j *Journal) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := State{Waiting: j.waiting, Bytes: j.bytes}
	if j.waiting > 0 && j.oldestMs > 0 {
		s.Oldest = time.Duration(max(0, time.Now().UnixMilli()-j.oldestMs)) * time.Millisecond
	}
	return s
}

// Has reports whether the message of a receipt surely waits in this journal.
func (j *Journal) Has(r Receipt) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	seq := r.seq()
	return [4]byte(r[6:10]) == j.id && seq > j.cursor && seq <= j.last
}

// Last returns the place of the newest entry.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// Dir returns the folder of the journal.
func (j *Journal) Dir() string { return j.dir }
