package bulk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A rowEnd finds the end of a row, part by part. Rows of CSV end with a line break outside of
// quotes, those of NDJSON with any.
type rowEnd struct {
	csv     bool
	state   cellState
	content bool // the row has more than white space or, of CSV, its line break
}

type cellState uint8

const (
	cellStart  cellState = iota // before a cell
	plainCell                   // in a cell without quotes
	quotedCell                  // between quotes
	quoteEnd                    // behind a quote that may be the first of two
)

// find returns how many bytes of part belong to the row, its line break included, and whether it
// ends there. content then tells about the row, until the next call.
func (e *rowEnd) find(part []byte) (n int, done bool) {
	if !e.csv {
		n = bytes.IndexByte(part, '\n') + 1
		if done = n > 0; !done {
			n = len(part)
		}
		e.content = e.content || len(bytes.TrimSpace(part[:n])) > 0
		return n, done
	}
	for i, c := range part {
		if c == '\n' && e.state != quotedCell {
			e.state = cellStart
			return i + 1, true
		}
		e.content = e.content || c != '\r'
		switch {
		case e.state == quotedCell:
			if c == '"' {
				e.state = quoteEnd
			}
		case c == ',':
			e.state = cellStart
		case c == '"' && (e.state == cellStart || e.state == quoteEnd):
			e.state = quotedCell
		default:
			e.state = plainCell
		}
	}
	return len(part), false
}

// A counter counts the rows of a body as it comes.
type counter struct {
	end  rowEnd
	rows int64
}

func (c *counter) add(part []byte) {
	for len(part) > 0 {
		n, done := c.end.find(part)
		if part = part[n:]; done {
			c.finish()
		}
	}
}

func (c *counter) finish() {
	if c.end.content {
		c.rows++
	}
	c.end = rowEnd{csv: c.end.csv}
}

// total returns the number of rows of the whole body.
func (c *counter) total() int64 {
	c.finish()
	if c.end.csv {
		return max(0, c.rows-1)
	}
	return c.rows
}

// errRowTooLong says that a row was longer than allowed; it was skipped.
var errRowTooLong = errors.New("bulk: row too long")

// readAhead is what a rowReader reads at once, bytes. A longer row is copied.
const readAhead = 64 << 10

// rowFactor is how many times the memory of a long row is counted: for its text, its cells or members,
// and the message.
const rowFactor = 3

// A rowReader reads rows of bounded length.
type rowReader struct {
	r     *bufio.Reader
	csv   bool
	most  int          // bytes of a row
	room  *share.Bound // of the memory of long rows; nil: not counted
	key   share.Key
	at    int64 // position behind the row that was returned last
	long  []byte
	taken int64
}

var bom = []byte("\xEF\xBB\xBF")

// newRowReader returns a reader of rows from a position, at which r begins.
func newRowReader(r io.Reader, csv bool, at int64, most int) *rowReader {
	return &rowReader{r: bufio.NewReaderSize(r, readAhead), csv: csv, at: at, most: most}
}

// next returns the next row that is not blank, without its line break, valid until the next call.
// io.EOF comes alone, after the last row. After errRowTooLong the row was skipped.
func (s *rowReader) next(ctx context.Context) ([]byte, error) {
	if s.at == 0 {
		if begin, _ := s.r.Peek(len(bom)); bytes.Equal(begin, bom) {
			_, _ = s.r.Discard(len(bom))
			s.at = int64(len(bom))
		}
	}
	for {
		row, blank, err := s.row(ctx)
		if err != nil || !blank {
			return row, err
		}
	}
}

func (s *rowReader) row(ctx context.Context) (row []byte, blank bool, err error) {
	s.release()
	e := rowEnd{csv: s.csv}
	var tooLong error
	for {
		if _, err := s.r.Peek(1); errors.Is(err, io.EOF) {
			if len(s.long) == 0 && tooLong == nil {
				return nil, false, io.EOF
			}
			return trimBreak(s.long), !e.content, tooLong
		} else if err != nil {
			return nil, false, err
		}
		part, _ := s.r.Peek(s.r.Buffered())
		n, done := e.find(part)
		s.at += int64(n)
		if done && len(s.long) == 0 && tooLong == nil && n <= s.most { // the usual case: nothing is copied
			row = part[:n]
			_, _ = s.r.Discard(n)
			return trimBreak(row), !e.content, nil
		}
		if tooLong == nil {
			if tooLong, err = s.keep(ctx, part[:n]); err != nil {
				return nil, false, err
			}
		}
		_, _ = s.r.Discard(n)
		if done {
			return trimBreak(s.long), !e.content, tooLong
		}
	}
}

// keep adds a part to the long row. It waits while other bodies have the memory.
func (s *rowReader) keep(ctx context.Context, part []byte) (tooLong, err error) {
	need := len(s.long) + len(part)
	if need > s.most+2 { // the line break does not count
		s.release()
		return errRowTooLong, nil
	}
	if need > cap(s.long) {
		room := min(max(2*need, 4<<10), s.most+2)
		if s.room != nil && room > readAhead {
			more := rowFactor*int64(room) - s.taken
			if err := s.room.Wait(ctx, s.key, more); err != nil {
				return nil, err
			}
			s.taken += more
		}
		s.long = append(make([]byte, 0, room), s.long...)
	}
	s.long = append(s.long, part...)
	return nil, nil
}

// release forgets the long row and its memory.
func (s *rowReader) release() {
	s.long = s.long[:0]
	if s.taken > 0 {
		s.room.Give(s.key, s.taken)
		s.long, s.taken = nil, 0
	}
}

// trimBreak returns a row without its line break.
func trimBreak(row []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(row, []byte{'\n'}), []byte{'\r'})
}
