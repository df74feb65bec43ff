package publish

import (
	"errors"
	"io"
	"time"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// errArray is the result of the rest of a batch whose array cannot be read on.
var errArray = problem.New(400, "invalid_cloudevent", "CloudEvents: the batch is not a JSON array of events from "+
	"here on; no event after this one was stored.")

// A source is the messages of a batch, as text.
type source interface {
	ready() bool           // whether next does not wait
	next() ([]byte, error) // see lineSource
	release()
	skip(most int64, until time.Time) error
}

// An arraySource reads the elements of a JSON array. It finds only their ends, and does not check
// the elements.
type arraySource struct {
	*lineSource
	state arrayState
}

type arrayState uint8

const (
	atArray   arrayState = iota // before the array
	atFirst                     // before the first element
	behindOne                   // behind an element
	behind                      // behind the array
	broken                      // errArray was returned
)

// next returns the next element, valid until the next call. io.EOF comes alone, after the last one.
// After errArray only io.EOF comes, when the rest of the body has been dropped.
func (s *arraySource) next() ([]byte, error) {
	s.release()
	if s.state == broken {
		if err := s.skip(mostSkipped, time.Now().Add(longestSkip)); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	for {
		c, err := s.token()
		switch {
		case errors.Is(err, io.EOF) && s.state == behind:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, s.breaks()
		case err != nil:
			return nil, err
		case s.state == atArray && c == '[':
			s.state = atFirst
		case c == ']' && (s.state == atFirst || s.state == behindOne):
			s.state = behind
		case s.state == atFirst && c != ',':
			return s.element(c)
		case s.state == behindOne && c == ',':
			if c, err = s.token(); err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			if err != nil || c == ',' || c == ']' {
				return nil, s.breaks()
			}
			return s.element(c)
		default:
			return nil, s.breaks()
		}
	}
}

func (s *arraySource) breaks() error {
	s.state = broken
	return errArray
}

// token returns the next byte that is no white space.
func (s *arraySource) token() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c, err
		}
	}
}

// element reads the element that begins with a byte that was read already.
func (s *arraySource) element(first byte) ([]byte, error) {
	s.state = behindOne
	var e elementEnd
	refusal := s.keep([]byte{first})
	e.find([]byte{first})
	for done := false; !done; {
		if _, err := s.r.Peek(1); errors.Is(err, io.EOF) {
			return nil, s.breaks()
		} else if err != nil {
			return nil, err
		}
		part, _ := s.r.Peek(s.r.Buffered())
		var n int
		n, done = e.find(part)
		if refusal == nil && n > 0 {
			refusal = s.keep(part[:n])
		}
		_, _ = s.r.Discard(n)
	}
	return s.long, refusal
}

// ready reports whether a whole element can be read without waiting.
func (s *arraySource) ready() bool {
	part, err := s.r.Peek(s.r.Buffered())
	if err != nil || s.state != behindOne {
		return false
	}
	for i, c := range part {
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' {
			continue
		}
		var e elementEnd
		_, done := e.find(part[i:])
		return done
	}
	return false
}

// An elementEnd finds the end of a JSON value, part by part.
type elementEnd struct {
	depth           int
	quoted, escaped bool
}

// find returns how many bytes of the part belong to the value, and whether it ends there.
func (e *elementEnd) find(part []byte) (n int, done bool) {
	for i, c := range part {
		switch {
		case e.escaped:
			e.escaped = false
		case e.quoted && c == '\\':
			e.escaped = true
		case c == '"':
			e.quoted = !e.quoted
		case e.quoted:
		case e.depth == 0 && (c == ',' || c == ']' || c == '}'):
			return i, true
		case c == '{' || c == '[':
			e.depth++
		case c == '}' || c == ']':
			if e.depth--; e.depth == 0 {
				return i + 1, true
			}
		}
	}
	return len(part), false
}
