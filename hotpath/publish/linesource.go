package publish

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// errLineTooLong says that a line was longer than allowed; it was skipped.
var errLineTooLong = errors.New("accept: line too long")

// lineBuffer is what a line source reads ahead, bytes.
const lineBuffer = 64 << 10

// lineFactor is how many times the memory of a long line is counted: for its text, for a string
// without its escapes, and for the message.
const lineFactor = 3

// A lineSource reads lines of bounded length from a body that may come slowly.
type lineSource struct {
	r    *bufio.Reader
	room *share.Bound // of the memory of long lines
	key  share.Key
	max  int
	long []byte // a line longer than the reader's buffer
	held int64  // bytes of it that are counted
}

// newLineSource returns a source of lines of up to about p.maxBody payload bytes:
// in base64, with escapes and the other members, a line may be twice as long.
func newLineSource(body io.Reader, p *Publisher, k share.Key) *lineSource {
	return &lineSource{r: bufio.NewReaderSize(body, lineBuffer), room: p.bytes, key: k, max: 2*p.maxBody + 16<<10}
}

// ready reports whether a whole line can be read without waiting.
func (s *lineSource) ready() bool {
	buffered, err := s.r.Peek(s.r.Buffered())
	return err == nil && bytes.IndexByte(buffered, '\n') >= 0
}

// next returns the next line without its end, valid until the next call. The
// last line needs no newline. io.EOF comes alone, after the last line. After
// errLineTooLong and problem.ErrOverloaded, which says that the broker has no memory
// for a long line now, the line was skipped.
func (s *lineSource) next() ([]byte, error) {
	s.release()
	part, err := s.r.ReadSlice('\n')
	if err == nil {
		return part[:len(part)-1], nil
	}
	var refusal error
	for ; errors.Is(err, bufio.ErrBufferFull); part, err = s.r.ReadSlice('\n') {
		if refusal == nil {
			refusal = s.keep(part)
		}
	}
	if refusal == nil {
		refusal = s.keep(part)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case refusal != nil:
		return nil, refusal
	case len(s.long) == 0:
		return nil, io.EOF
	}
	return bytes.TrimSuffix(s.long, []byte{'\n'}), nil
}

// keep adds a part to the long line.
func (s *lineSource) keep(part []byte) error {
	need := len(s.long) + len(part)
	if need > s.max && (need > s.max+1 || part[len(part)-1] != '\n') {
		s.release()
		return errLineTooLong
	}
	if need > cap(s.long) {
		room := min(max(2*need, lineBuffer/16), s.max+1)
		if room > lineBuffer { // smaller buffers are little beside that of the reader
			more := lineFactor*int64(room) - s.held
			if !s.room.Take(s.key, more) {
				s.release()
				return problem.ErrOverloaded
			}
			s.held += more
		}
		s.long = append(make([]byte, 0, room), s.long...)
	}
	s.long = append(s.long, part...)
	return nil
}

// release forgets the long line and its memory.
func (s *lineSource) release() {
	s.long = s.long[:0]
	if s.held > 0 {
		s.room.Give(s.key, s.held)
		s.long, s.held = nil, 0
	}
}

// skip reads the rest of the body and drops it. It returns nil at its end.
func (s *lineSource) skip(most int64, until time.Time) error {
	for skipped := int64(0); skipped <= most && time.Now().Before(until); {
		if _, err := s.r.Peek(1); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n, _ := s.r.Discard(s.r.Buffered())
		skipped += int64(n)
	}
	return errBodyTooLarge
}
