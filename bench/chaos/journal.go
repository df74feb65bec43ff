//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// journalLinger is how long lines of several goroutines wait to share one flush.
const journalLinger = 2 * time.Millisecond

// lineEnd shows that a line is whole: half a number looks like a number.
const lineEnd = "\t.\n"

// A journal is a file of tab-separated lines that outlives its process: a line
// is on disk when its flush is done. Its methods may be called concurrently.
type journal struct {
	file *os.File

	mu     sync.Mutex
	next   *flush
	signal chan struct{} // capacity 1
	closed bool
	ended  chan struct{}
}

// A flush is one write of many lines.
type flush struct {
	lines bytes.Buffer
	done  chan struct{}
	err   error // valid once done is closed
}

// Wait returns once the line that Add returned the flush for is on disk.
func (f *flush) Wait() error {
	<-f.done
	return f.err
}

// openJournal appends to the file at path. It ends an incomplete last line of a killed process, so
// that the line spoils no other.
func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteString("\n"); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	j := &journal{file: file, next: &flush{done: make(chan struct{})}, signal: make(chan struct{}, 1),
		ended: make(chan struct{})}
	go j.run()
	return j, nil
}

// Add appends a line of fields. It does not wait.
func (j *journal) Add(fields ...any) *flush {
	j.mu.Lock()
	f := j.next
	for i, v := range fields {
		if i > 0 {
			f.lines.WriteByte('\t')
		}
		switch v := v.(type) {
		case string:
			f.lines.WriteString(v)
		case int:
			f.lines.WriteString(strconv.Itoa(v))
		case int64:
			f.lines.WriteString(strconv.FormatInt(v, 10))
		case time.Time:
			if v.IsZero() {
				f.lines.WriteByte('0')
			} else {
				f.lines.WriteString(strconv.FormatInt(v.UnixMicro(), 10))
			}
		default:
			fmt.Fprint(&f.lines, v)
		}
	}
	f.lines.WriteString(lineEnd)
	j.mu.Unlock()
	select {
	case j.signal <- struct{}{}:
	default:
	}
	return f
}

func (j *journal) run() {
	defer close(j.ended)
	for range j.signal {
		time.Sleep(journalLinger)
		j.mu.Lock()
		f := j.next
		j.next = &flush{done: make(chan struct{})}
		closed := j.closed
		j.mu.Unlock()
		if _, f.err = j.file.Write(f.lines.Bytes()); f.err == nil {
			f.err = j.file.Sync()
		}
		close(f.done)
		if closed {
			return
		}
	}
}

// Close writes the remaining lines. Add must not be called afterwards.
func (j *journal) Close() error {
	j.mu.Lock()
	j.closed = true
	last := j.next
	j.mu.Unlock()
	select {
	case j.signal <- struct{}{}:
	default:
	}
	<-j.ended
	select {
	case <-last.done:
	default: // nothing was added since
	}
	return j.file.Close()
}

// A line is one whole line of a journal. Its methods return zero for a missing field, since one
// version of one program writes and reads a journal.
type line struct{ fields [][]byte }

func (l *line) text(i int) string {
	if i >= len(l.fields) {
		return ""
	}
	return string(l.fields[i])
}

func (l *line) number(i int) int64 {
	n, _ := strconv.ParseInt(l.text(i), 10, 64) // zero for a missing field
	return n
}

func (l *line) time(i int) time.Time { return time.UnixMicro(l.number(i)) }

// readJournal calls f with each line. It skips an incomplete line, which only occurs if a process
// was killed while it wrote; the process had not acted on that line.
func readJournal(path string, f func(kind byte, l *line)) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the process never began
	}
	if err != nil {
		return err
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, 1<<20)
	for {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if whole, ok := bytes.CutSuffix(text, []byte(lineEnd)); ok && len(whole) > 0 {
			f(whole[0], &line{fields: bytes.Split(whole, []byte{'\t'})})
		}
	}
}
