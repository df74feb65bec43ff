// Package console is between the process and whoever reads its log, stdout and stderr.
//
// A write to a pipe that nobody reads waits for ever, and the caller may hold a lock. A Writer takes
// every line at once, keeps a bounded number of bytes of those that are not written yet, and drops
// the lines that do not fit. It counts them, and says how many there were when the reader is back.
// A reader that is gone drops all lines: main ignores SIGPIPE.
package console

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// most is how many bytes a Writer keeps: a burst of more than a thousand lines.
const most = 256 << 10

// Dropped counts the lines that were dropped. A broker registers it.
var Dropped = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "penstock_log_lines_dropped_total", Help: "Lines that were not written because nobody read them or their " +
		"reader was gone, by where to: stdout, stderr or file.",
}, []string{"to"})

// A Writer writes lines to another writer without ever waiting for it. It is safe for concurrent use.
type Writer struct {
	out  io.Writer
	name string // label of Dropped

	mu      sync.Mutex
	lines   []line
	bytes   int // of lines
	dropped int // lines since the last notice. While it is not 0 there is a gap, and others are dropped too
	failing bool
	writing bool
	closed  bool
	notice  func(dropped int) []byte
	wake    chan struct{} // capacity 1
	idle    sync.Cond     // nothing is left to write
}

// A line is what waits to be written: bytes of the process, or the notice of so many dropped lines.
type line struct {
	text   []byte
	notice int
}

// New returns a Writer to out, which it calls from one goroutine, until Close.
// name is stdout, stderr or file.
func New(out io.Writer, name string) *Writer {
	w := &Writer{out: out, name: name, wake: make(chan struct{}, 1), notice: plain}
	w.idle.L = &w.mu
	Dropped.WithLabelValues(name) // shown as 0
	go w.run()
	return w
}

func plain(dropped int) []byte {
	return fmt.Appendf(nil, "(%d lines were dropped, because nobody read them)\n", dropped)
}

// Announce sets the line that says how many lines were dropped.
func (w *Writer) Announce(notice func(dropped int) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notice = notice
}

// Terminal reports whether the lines go to a character device, as terminals are.
func (w *Writer) Terminal() bool {
	f, ok := w.out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Write takes lines, or drops them. It never waits and never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) == 0 || w.closed {
		return len(p), nil
	}
	full := w.bytes > 0 && w.bytes+len(p) > most
	if probe := w.failing && w.bytes == 0; full || w.dropped > 0 && !probe {
		w.drop(p)
		return len(p), nil
	}
	w.add(line{text: bytes.Clone(p)}) // the caller uses p again
	return len(p), nil
}

// add needs mu.
func (w *Writer) add(l line) {
	w.lines = append(w.lines, l)
	w.bytes += len(l.text)
	if w.closed {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// drop counts lines that are not written. It needs mu.
func (w *Writer) drop(p []byte) {
	n := max(bytes.Count(p, []byte("\n")), 1)
	w.dropped += n
	Dropped.WithLabelValues(w.name).Add(float64(n))
}

// run writes lines one by one: out may be a pipe, in which short lines of several processes do not mix.
func (w *Writer) run() {
	for range w.wake {
		for {
			l, ok := w.next()
			if !ok {
				break
			}
			w.done(l, w.put(l.text))
		}
	}
}

// next returns the oldest line.
func (w *Writer) next() (l line, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing = len(w.lines) > 0; w.writing {
		return w.lines[0], true
	}
	w.lines = nil // the array keeps nothing
	w.idle.Broadcast()
	return line{}, false
}

// put writes bytes. A panic of the writer ends here.
func (w *Writer) put(text []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("console: panic: %v", v)
		}
	}()
	_, err = w.out.Write(text)
	return err
}

// done ends the write of a line. One that could not be written counts as dropped. The notice ends a
// gap, as soon as half of the room is free: it stands where the lines are missing.
func (w *Writer) done(l line, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines[0] = line{}
	w.lines = w.lines[1:]
	w.bytes -= len(l.text)
	w.failing = err != nil
	switch {
	case err != nil && l.notice > 0:
		w.dropped += l.notice
	case err != nil:
		w.drop(l.text)
	case w.dropped > 0 && w.bytes <= most/2:
		w.add(line{w.notice(w.dropped), w.dropped})
		w.dropped = 0
	}
}

// Flush waits until all lines are written, for at most that long. It reports whether they are.
func (w *Writer) Flush(within time.Duration) bool {
	end := time.Now().Add(within)
	timer := time.AfterFunc(within, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.idle.Broadcast()
	})
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.lines) > 0 || w.writing {
		if !time.Now().Before(end) {
			return false
		}
		w.idle.Wait()
	}
	return true
}

// Close flushes, and ends the goroutine of the Writer once it does not wait for out any more. What is
// written later is lost.
func (w *Writer) Close(within time.Duration) (flushed bool) {
	flushed = w.Flush(within)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		close(w.wake)
	}
	return flushed
}
