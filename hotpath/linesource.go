package hotpath

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// errLineTooLong says that a line was longer than allowed; it was skipped.
var errLineTooLong = errors.New("hotpath: line too long")

// A lineSource reads lines of bounded length from a body that may come slowly.
type lineSource struct {
	r    *bufio.Reader
	conn net.Conn // its read deadline moves as long as bytes come; may be nil
	max  int
	long []byte // a line longer than the reader's buffer
}

// newLineSource returns a source of lines of up to about max payload bytes: in
// base64, with escapes and the other members, a line may be twice as long.
func newLineSource(body io.Reader, conn net.Conn, max int) *lineSource {
	return &lineSource{r: bufio.NewReaderSize(body, 64<<10), conn: conn, max: 2*max + 16<<10}
}

// ready reports whether a whole line can be read without waiting.
func (s *lineSource) ready() bool {
	buffered, err := s.r.Peek(s.r.Buffered())
	return err == nil && bytes.IndexByte(buffered, '\n') >= 0
}

// next returns the next line without its end, valid until the next call. The
// last line needs no newline. io.EOF comes alone, after the last line.
func (s *lineSource) next() ([]byte, error) {
	if s.conn != nil && !s.ready() {
		if err := s.conn.SetReadDeadline(time.Now().Add(batchIdle)); err != nil {
			return nil, err
		}
	}
	line, err := s.r.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	s.long = append(s.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = s.r.ReadSlice('\n')
		if len(s.long) <= s.max {
			s.long = append(s.long, line...)
		}
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(s.long) == 0:
		return nil, io.EOF
	case len(s.long) > s.max:
		return nil, errLineTooLong
	}
	return bytes.TrimSuffix(s.long, []byte{'\n'}), nil
}
